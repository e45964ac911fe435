"""Every code of the table, produced over HTTP with its status, envelope and headers."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.support.executors.fake import FailingExecutor
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers, eventually
from web.api.errors import STATUS


def _key(server: Running, credits: int = 1, *, verified: bool = True) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.account(credits, verified=verified)}"}


def _reused(server: Running) -> httpx.Response:
    headers = {**_key(server, 5), "Idempotency-Key": "k"}
    server.convert(image(), headers=headers)
    return server.convert(image(), "webp", headers=headers)


def _beyond(server: Running) -> httpx.Response:
    made = server.convert(image(), headers={"Accept": "application/json"}).json()["data"]
    return http.get(server.url + made["download_url"], headers={**server.auth, "Range": "bytes=999999-"})


WAYS: dict[str, Callable[[Running], httpx.Response]] = {
    "invalid_api_key": lambda server: server.convert(image(), headers={"Authorization": "Bearer none"}),
    "key_not_verified": lambda server: server.convert(image(), headers=_key(server, verified=False)),
    "no_credits": lambda server: server.convert(image(), headers=_key(server, 0)),
    "invalid_file_type": lambda server: server.convert(b"words"),
    "file_too_large": lambda server: server.convert(bytes(10_485_761), headers=_key(server)),
    "unsupported_conversion": lambda server: server.convert(image(), "svg"),
    "processing_failed": lambda server: server.convert(image("PNG")[:60]),
    "invalid_parameter": lambda server: server.convert(image(), quality="many"),
    "not_found": lambda server: http.get(f"{server.api}/files/file_0/download", headers=server.auth),
    "method_not_allowed": lambda server: http.put(f"{server.api}/convert"),
    "idempotency_key_reused": _reused,
    "range_not_satisfiable": _beyond,
}


@pytest.mark.parametrize("code", WAYS)
def test_code(server: Running, code: str) -> None:
    problem(WAYS[code](server), STATUS[code], code)


def test_a_bug_is_a_server_error(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, executor=FailingExecutor(RuntimeError("nobody foresaw this"))) as server:
        response = server.convert(image())
        problem(response, 500, "server_error")
        assert "foresaw this" not in response.text
        assert eventually(lambda: not server.work_files())
        account = http.get(f"{server.api}/account", headers=server.auth).json()["data"]
        assert account["credits_used_total"] == 0


def test_every_code_is_tested() -> None:
    elsewhere = {"rate_limit_exceeded", "server_error", "not_ready", "idempotency_conflict", "request_timeout"}
    assert set(WAYS) | elsewhere == set(STATUS)
