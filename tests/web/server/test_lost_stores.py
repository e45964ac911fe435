"""A database or a blob store that does not respond: requests fail in time with 503, uncharged, and the server stops."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.stores import S3Server
from tests.support.servers.tcp_proxy import tcp_proxy

_KEYED = {"Idempotency-Key": "a key"}


def _form() -> dict[str, Any]:
    return {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}


def _refused(response: httpx.Response) -> None:
    problem(response, 503, "not_ready", retryable=True)
    assert int(response.headers["Retry-After"]) > 0


def _balance(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["meta"]["credits_remaining"])


def _outages(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The names of the logs with warnings that the log limits, because they are repeated every second."""
    return {record.name for record in caplog.records if getattr(record, "outage", False)}


def test_a_database_that_is_cut_off(
    servers: Servers, data_dir: Path, new_postgres_url: Callable[[], str], caplog: pytest.LogCaptureFixture
) -> None:
    parts = urlsplit(new_postgres_url())
    with tcp_proxy(parts.port or 0) as proxy:
        url = parts._replace(netloc=f"convertd@127.0.0.1:{proxy.port}").geturl()
        with servers.running(data_dir, database_url=url, store_timeout=1) as server:
            key = server.account(5)
            file = server.upload(sample("png"), "a.png", key=key)["file_id"]
            proxy.cut_off()
            requests: list[tuple[str, str, dict[str, Any]]] = [
                *[("POST", "/convert", _form())] * 4,
                *[
                    ("POST", "/convert", {"headers": {"Idempotency-Key": f"{number}"}, **_form()})
                    for number in range(4)
                ],
                ("POST", "/convert/json", _form()),
                ("POST", "/files/upload", {"files": _form()["files"]}),
                ("GET", "/account", {}),
                ("GET", f"/files/{file}", {}),
            ]
            with ThreadPoolExecutor(len(requests)) as threads:
                send = lambda request: server.request(request[0], request[1], key, **request[2])  # noqa: E731
                for response in threads.map(send, requests):
                    _refused(response)
            assert eventually(lambda: _outages(caplog) >= {"convertd.jobs", "convertd.webhooks"})
            proxy.reconnect()
            assert eventually(lambda: server.request("GET", "/account", key).is_success)
            assert _balance(server, key) == 5
            assert server.request("POST", "/convert", key, headers=_KEYED, **_form()).is_success


def test_a_server_stops_without_database(servers: Servers, data_dir: Path, new_postgres_url: Callable[[], str]) -> None:
    parts = urlsplit(new_postgres_url())
    with tcp_proxy(parts.port or 0) as proxy:
        url = parts._replace(netloc=f"convertd@127.0.0.1:{proxy.port}").geturl()
        with servers.running(data_dir, database_url=url, store_timeout=1) as server:
            key = server.account(5)
            proxy.cut_off()
            _refused(server.request("POST", "/convert", key, **_form()))  # whose hold is released in the background


@pytest.mark.parametrize("end", ["kill", "stall"])
@pytest.mark.long
def test_a_blob_store_that_is_lost(servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    with S3Server() as store:
        for name, value in store.environment.items():
            monkeypatch.setenv(name, value)
        with servers.running(data_dir, blob_url=store.url("lost"), store_timeout=1) as server:
            key = server.account(5)
            file = server.upload(sample("png"), "a.png", key=key)["file_id"]
            getattr(store, end)()
            _refused(server.request("POST", "/convert", key, headers=_KEYED, **_form()))
            _refused(server.request("POST", "/convert/json", key, **_form()))
            _refused(server.request("POST", "/files/upload", key, files=_form()["files"]))
            _refused(server.request("POST", f"/files/{file}/convert", key, json={"output_format": "webp"}))
            assert _balance(server, key) == 5
            if end == "stall":
                store.resume()
                assert server.request("POST", "/convert", key, headers=_KEYED, **_form()).is_success
                assert _balance(server, key) == 4
