"""Errors: every code over HTTP with its status, the same envelope and headers, and answers to mistakes of beginners."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from config.errors import PublicError
from engine.options import unknown_option
from engine.registry import load_registry
from tests.support.executors.fake import FailingExecutor
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import FILE, FORM, form, image, part
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from web.api import errors
from web.api.errors import STATUS
from web.api.headers import COMMON_HEADERS


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


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize("path", ["/nothing", "/api/v1/convert/", "/api/v2/formats", "/api/v1/%00"])
def test_unknown_paths(server: Running, verb: str, path: str) -> None:
    problem(http.request(verb, server.url + path), 404, "not_found")


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("GET", "/api/v1/convert", "POST, OPTIONS"),
        ("HEAD", "/api/v1/convert", "POST, OPTIONS"),
        ("POST", "/api/v1/formats", "GET, HEAD, OPTIONS"),
        ("DELETE", "/healthz", "GET, HEAD, OPTIONS"),
        ("TRACE", "/api/v1/convert", "POST, OPTIONS"),
        ("PROPFIND", "/api/v1/formats", "GET, HEAD, OPTIONS"),
    ],
)
def test_other_verbs(server: Running, verb: str, path: str, allowed: str) -> None:
    response = http.request(verb, server.url + path)
    assert response.headers["Allow"] == allowed
    dressed(response)
    if verb == "HEAD":
        assert (response.status_code, response.content) == (405, b"")
    else:
        problem(response, 405, "method_not_allowed")


@pytest.mark.parametrize("target", [None, b"", b"../png", b"p" * 21])
def test_a_target_that_is_no_name(server: Running, target: bytes | None) -> None:
    parts = [FILE] if target is None else [FILE, part(target, 'name="output_format"')]
    response = http.post(f"{server.api}/convert", content=form(*parts), headers={**FORM, **server.auth})
    reason = "missing" if target is None else "malformed"
    problem(response, 400, "invalid_parameter", param="output_format", reason=reason)


@pytest.mark.parametrize("target", ["xyz", "dng"])
def test_pair(server: Running, target: str) -> None:
    response = server.convert(image(), target)
    problem(response, 400, "unsupported_conversion")
    details = response.json()["error"]["details"]
    assert (details["input_format"], details["output_format"]) == ("jpeg", target)
    assert "webp" in details["available"]


def test_preflight(server: Running) -> None:
    response = http.options(f"{server.api}/convert", headers={"Origin": "https://example.org"})
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["Access-Control-Allow-Methods"] == "POST, OPTIONS"
    assert "Authorization" in response.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Credentials" not in response.headers
    dressed(response)


def test_every_code_has_a_status() -> None:
    def codes(kind: type[Exception]) -> set[str]:
        return {kind.__dict__["code"]} if "code" in kind.__dict__ else set()

    kinds: list[type[Exception]] = [PublicError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert set().union(*map(codes, kinds)) <= set(errors.STATUS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("strip", "metadata"), ("density", "dpi"), ("w", "width"), ("h", "height"), ("q", "quality")),
        *(("resize", "width"), ("format", "output_format"), ("position", "gravity"), ("page", "pages")),
        *(("widht", "width"), ("Max-Bytes", "max_bytes"), ("colour_space", "color_space")),
    ],
)
def test_other_names_of_options(name: str, meant: str) -> None:
    error = unknown_option(name, ["file", "output_format", *load_registry().options])

    assert str(error) == f"There is no parameter {name}. The nearest one is {meant}."
    assert error.details["available"][0] == meant


@pytest.mark.parametrize("name", ["xyz", "callback", "", "token", "api_key"])
def test_nothing_is_named_if_nothing_is_near(name: str) -> None:
    error = unknown_option(name, load_registry().options)

    assert str(error) == f"There is no parameter {name}."
    assert {*error.details["available"]} == load_registry().options.keys()


def test_another_name_is_only_named_where_it_exists() -> None:
    assert str(unknown_option("strip", ["pages", "password"])) == "There is no parameter strip."


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"X-API-Key": "KEY"}, "was sent in the header X-API-Key"),
        ({"Authorization": "KEY"}, "was sent without the word Bearer"),
        ({"Authorization": "Basic BASIC"}, "was sent by Basic authentication"),
    ],
)
def test_a_key_in_another_place(server: Running, headers: dict[str, str], found: str) -> None:
    basic = base64.b64encode(f"{server.key}:".encode()).decode()
    sent = {name: value.replace("KEY", server.key).replace("BASIC", basic) for name, value in headers.items()}

    response = http.get(f"{server.api}/account", headers=sent)

    problem(response, 401, "invalid_api_key")
    message = response.json()["error"]["message"]
    assert message == f"The API key {found}; send it in the header Authorization: Bearer YOUR_KEY."
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer cvd_live_wrong"}, {"Authorization": "Bearer"}])
def test_a_wrong_key_says_no_more(server: Running, headers: dict[str, str]) -> None:
    response = http.get(f"{server.api}/account", headers=headers)

    assert response.json()["error"]["message"] == "The API key is missing or invalid."


@pytest.mark.parametrize(
    "text",
    [
        "@photo.jpg",
        "photo.jpg",
        "/home/me/photo.jpg",
        "./my photo.HEIC",
        "~/a",
        r"C:\Users\me\photo.jpg",
        "@a\n",
        "photos/my photo.jpg",
        "photos/a",
        "d'été/ä,+.heic",
        r"photos\a",
    ],
)
def test_the_name_of_a_file_instead_of_the_file(server: Running, text: str) -> None:
    for name in (None, "file"):
        response = server.request("POST", "/convert", files={"file": (name, text), "output_format": (None, "png")})
        problem(response, 400, "invalid_parameter", param="file", reason="no_file")
        assert "-F 'file=@photo.jpg'" in response.json()["error"]["message"]


def test_a_form_without_files_in_place_of_one_with_files(server: Running) -> None:
    fields = {"file": "@photo.jpg", "output_format": "png"}
    bodies: tuple[dict[str, Any], ...] = ({"data": fields}, {"json": fields})
    for body in bodies:
        response = server.request("POST", "/convert", **body)
        problem(response, 400, "invalid_parameter", param="file", reason="no_file")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", b"photo.jpg"),
        (None, b"It is 1.5, or 2/3."),
        (None, b"two lines:\nphoto.jpg"),
        (None, b"text " * 300),
        (None, sample("png")),
    ],
)
def test_files_with_such_content_are_files(server: Running, name: str | None, content: bytes) -> None:
    form = {"file": (name, content), "output_format": (None, "pdf")}

    response = server.request("POST", "/convert", files=form)

    assert response.status_code == 200 or response.json()["error"]["code"] != "invalid_parameter"


def test_the_root_of_the_api_leads_to_its_documentation(server: Running) -> None:
    for path in ("", "/"):
        data = http.get(f"{server.api}{path}").json()["data"]
        assert data["docs_url"].endswith("/docs")
        assert data["openapi_url"].endswith("/api/v1/openapi.json")
    page = http.get(f"{server.api}", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["Location"]) == (303, "/docs")
    document = http.get(f"{server.url}/openapi.json")
    assert (document.status_code, document.headers["Location"]) == (308, "/api/v1/openapi.json")


def test_names_of_headers_are_sent_as_documented(server: Running) -> None:
    head = server.raw(b"GET /api/v1/account HTTP/1.1\r\nHost: localhost\r\n\r\n").partition(b"\r\n\r\n")[0].decode()
    sent = {line.partition(":")[0] for line in head.splitlines()[1:]}
    assert {*COMMON_HEADERS, "WWW-Authenticate"} <= sent
