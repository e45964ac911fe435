"""All errors have the same envelope and the same headers."""

import pytest

from config.errors import PublicError
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import FILE, FORM, form, image, part
from tests.support.servers.in_process import Running
from web.api import errors


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
