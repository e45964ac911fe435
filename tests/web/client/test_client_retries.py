"""The Python client with network faults and an overloaded server: no request is lost or charged twice."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convertd_client import ConnectionFailed, NotReady, ProcessingFailed, RateLimited, UnexpectedAnswer
from tests.support.requests.clients import KINDS, calling
from tests.support.samples.generated import sample
from tests.support.servers.flaky import Proxy, cut, lost, passing, responding
from tests.support.servers.in_process import Running

_CREDITS = 10


def _envelope(code: str, *, retryable: bool) -> bytes:
    return json.dumps(
        {"error": {"code": code, "message": "No.", "request_id": "req_1", "retryable": retryable}}
    ).encode()


_BUSY = responding(429, _envelope("rate_limit_exceeded", retryable=True), Retry_After="1")
_CRASHED = responding(500, _envelope("processing_failed", retryable=True))
_CORRUPT = responding(500, _envelope("processing_failed", retryable=False))
_RUNNING = responding(409, _envelope("idempotency_conflict", retryable=True), Retry_After="180")
_DOWN = responding(503, _envelope("not_ready", retryable=True))
_GATEWAY = responding(502, b"<html>Bad gateway</html>")


@pytest.fixture
def proxy(server: Running) -> Iterator[Proxy]:
    with Proxy(server.url) as made:
        yield made


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: Running, proxy: Proxy) -> Iterator[Any]:
    with calling(request.param, proxy.url, server.account(_CREDITS), backoff=0.01, max_retry_wait=10) as made:
        yield made


@pytest.mark.parametrize(
    "faults",
    [[lost], [lost, lost], [cut], [_BUSY], [_CRASHED], [_RUNNING], [_RUNNING] * 6, [_DOWN], [_GATEWAY, lost, _CRASHED]],
)
def test_retryable_errors_are_retried_and_charged_once(client: Any, proxy: Proxy, faults: list[Any]) -> None:
    proxy.faults.extend(faults)

    assert client.convert(sample("png"), "gif").content.startswith(b"GIF8")
    assert client.account().credits_remaining == _CREDITS - 1
    assert len(proxy.keys()) == 1
    assert [seen.path for seen in proxy.requests].count("/api/v1/convert") == len(faults) + 1


def test_every_call_has_its_own_idempotency_key(client: Any, proxy: Proxy) -> None:
    for _ in range(2):
        client.convert(sample("png"), "gif")

    assert len(proxy.keys()) == 2


@pytest.mark.parametrize(
    ("fault", "kind", "attempts"),
    [
        (_CORRUPT, ProcessingFailed, 1),
        (responding(302, Location="http://127.0.0.1:1/"), UnexpectedAnswer, 1),
        (lost, ConnectionFailed, 5),
        (_CRASHED, ProcessingFailed, 5),
        (_DOWN, NotReady, 5),
    ],
)
def test_number_of_attempts(client: Any, proxy: Proxy, fault: Any, kind: type[Exception], attempts: int) -> None:
    """One after a permanent error."""
    proxy.faults.extend([fault] * 20)

    with pytest.raises(kind):
        client.convert(sample("png"), "gif")

    assert len(proxy.requests) == attempts


def test_no_retry_if_retry_after_exceeds_the_timeout(client: Any, proxy: Proxy) -> None:
    proxy.faults.append(responding(429, _envelope("rate_limit_exceeded", retryable=True), Retry_After="3600"))

    with pytest.raises(RateLimited) as caught:
        client.account()

    assert caught.value.retry_after == 3600
    assert len(proxy.requests) == 1


def test_non_repeatable_requests_are_not_retried(client: Any, proxy: Proxy) -> None:
    proxy.faults.append(lost)

    with pytest.raises(ConnectionFailed):
        client.create_key()

    assert len(proxy.requests) == 1


def test_downloads_resume(client: Any, proxy: Proxy, tmp_path: Path) -> None:
    whole = client.convert(sample("png"), "bmp")
    proxy.requests.clear()
    proxy.faults.extend([cut, cut])

    assert client.download(whole.file_id, to=tmp_path / "out.bmp").path.read_bytes() == whole.content
    starts = [seen.headers.get("range") for seen in proxy.requests]
    assert starts == [None, f"bytes={whole.processed_size // 2}-", f"bytes={whole.processed_size * 3 // 4}-"]


def test_download_restarts_if_the_server_ignores_the_range(client: Any, proxy: Proxy) -> None:
    """The server answers a range request with the whole file."""
    whole = client.convert(sample("png"), "bmp")
    content = whole.content
    proxy.faults.extend([cut, responding(200, content, ETag='"another"')])

    assert client.download(whole.file_id).content == content


def test_failed_download_leaves_no_file_and_can_be_repeated(client: Any, proxy: Proxy, tmp_path: Path) -> None:
    (tmp_path / "out.bmp").write_bytes(b"what was there")
    proxy.faults.extend([passing, *[lost] * 5])

    with pytest.raises(ConnectionFailed) as caught:
        client.convert(sample("png"), "bmp", to=tmp_path / "out.bmp", overwrite=True)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("out.bmp", b"what was there")]
    assert client.download(caught.value.details["file_id"]).content.startswith(b"BM")
    assert client.account().credits_remaining == _CREDITS - 1


def test_convert_many_with_network_faults(client: Any, proxy: Proxy, tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for path in paths:
        path.write_bytes(sample("png"))
    proxy.faults.extend([lost, cut, lost, passing, passing, lost, cut, cut])

    entries = client.convert_many(paths, "gif")

    assert [entry.path and entry.path.name for entry in entries] == ["0.gif", "1.gif", "2.gif"]
    assert client.account().credits_remaining == _CREDITS - 3


def _data(**data: object) -> bytes:
    return json.dumps({"data": data, "meta": {"request_id": "req_1", "credits_remaining": 1}}).encode()


def test_inspections_are_repeated_without_an_idempotency_key(client: Any, proxy: Proxy) -> None:
    conversion = {"input_format": "svg", "output_format": "jpeg", "path": ["svg -> raster"], "losses": ["structure"]}
    data = _data(
        **conversion, credits=1, options={"quality": 85}, width=40, height=30, pages=1, file_count=1, warnings=[]
    )
    proxy.faults.extend([lost, responding(200, data)])

    found = client.inspect(sample("svg"), "jpeg")

    assert (found.path, found.losses, found.options) == (("svg -> raster",), ("structure",), {"quality": 85})
    assert (found.width, found.height, found.pages) == (40, 30, 1)
    assert (len(proxy.requests), proxy.keys()) == (2, set())
