"""Compression of text and JSON with gzip."""

import gzip
from typing import Any

import pytest

from tests.support.requests import http
from tests.support.samples.forms import BROWSER_HEADERS, image
from tests.support.servers.in_process import Running
from web.http.responses import accepts_gzip

TEXTS = ("/", "/docs", "/status", "/static/site.css", "/api/v1/formats", "/api/v1/openapi.json")
GZIP = {"Accept-Encoding": "br, gzip"}


def transferred(server: Running, path: str, method: str = "GET", **headers: str) -> tuple[Any, bytes]:
    """The response, and its body as it was sent."""
    with (
        http.Client(base_url=server.url, timeout=60) as client,
        client.stream(method, path, headers={**GZIP, **headers}) as response,
    ):
        return response, b"".join(response.iter_raw())


@pytest.mark.parametrize("path", TEXTS)
def test_text_is_compressed_if_the_client_accepts_it(server: Running, path: str) -> None:
    response, body = transferred(server, path)
    plain, whole = transferred(server, path, **{"Accept-Encoding": "identity"})
    assert response.headers["Content-Encoding"] == "gzip"
    assert int(response.headers["Content-Length"]) == len(body) < len(whole) / 2
    assert "Content-Encoding" not in plain.headers
    assert int(plain.headers["Content-Length"]) == len(whole)
    assert response.headers["Vary"] == plain.headers["Vary"]
    assert response.headers["Vary"].split(", ")[-1] == "Accept-Encoding"
    assert len(gzip.decompress(body)) == pytest.approx(len(whole), abs=40)  # request ids and the queue differ


@pytest.mark.parametrize("path", TEXTS)
def test_head_has_the_headers_of_get(server: Running, path: str) -> None:
    response, body = transferred(server, path, "HEAD")
    assert (response.headers["Content-Encoding"], body) == ("gzip", b"")
    shown = int(transferred(server, path)[0].headers["Content-Length"])
    assert int(response.headers["Content-Length"]) == pytest.approx(shown, abs=40)


@pytest.mark.parametrize("path", ["/static/site.css", "/api/v1/formats"])
def test_conditional_requests(server: Running, path: str) -> None:
    response, _ = transferred(server, path)
    etag = response.headers["ETag"]
    assert etag.startswith('W/"')
    assert "Accept-Ranges" not in response.headers
    again, body = transferred(server, path, **{"If-None-Match": etag})
    assert (again.status_code, body) == (304, b"")
    assert "Content-Encoding" not in again.headers


def test_ranges_are_of_the_uncompressed_file(server: Running) -> None:
    _, whole = transferred(server, "/static/site.css", **{"Accept-Encoding": "identity"})
    response, body = transferred(server, "/static/site.css", Range="bytes=0-4999")
    assert (response.status_code, body) == (206, whole[:5000])
    assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize("target", ["bmp", "svg"])
def test_results_are_not_compressed(server: Running, target: str) -> None:
    document = server.convert(image(), "pdf").content if target == "svg" else image()
    response = server.convert(document, target, headers=GZIP)
    assert response.status_code == 200
    assert "Content-Encoding" not in response.headers
    assert int(response.headers["Content-Length"]) == len(response.content) > 1024


def test_short_responses_are_not_compressed(server: Running) -> None:
    response, body = transferred(server, "/healthz")
    assert "Content-Encoding" not in response.headers
    assert body == b'{"status": "ok"}'


def test_responses_with_secrets_are_not_compressed(server: Running) -> None:
    """The size of a compressed response would reveal a secret next to text of an attacker (BREACH)."""
    with http.Client(base_url=server.url, headers={"Origin": server.url, **GZIP}) as client:
        client.post("/dashboard/sign-in", data={"key": server.account()})
        shown = client.post("/dashboard/keys", data={"name": "second"}, follow_redirects=True)
        dashboard = client.get("/dashboard")
    assert "shown only once" in shown.text
    for response in (shown, dashboard, http.get(f"{server.url}/nothing", headers={**BROWSER_HEADERS, **GZIP})):
        assert "no-store" in response.headers["Cache-Control"]
        assert len(response.content) > 1024
        assert "Content-Encoding" not in response.headers


@pytest.mark.parametrize(
    ("header", "accepted"),
    [
        *[("gzip", True), ("br;q=1, GZIP;q=0.5", True), ("*", True), ("identity, *;q=0.1", True)],
        *[("", False), ("br", False), ("gzip;q=0", False), ("gzip;q=0, *", False), ("gzip;q=x", False)],
    ],
)
def test_accept_encoding(header: str, accepted: bool) -> None:
    assert accepts_gzip(header) is accepted
