"""All errors have the same envelope and the same headers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from engine.executor import Job, JobLimits, JobResult
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import FILE, FORM, form, part, picture
from tests.support.servers.in_process import Running, Servers, eventually
from web.api import errors


class Broken:
    """An executor with a bug."""

    async def run(
        self, job: Job, account: str, inputs: Sequence[int], output: int, limits: JobLimits = JobLimits()
    ) -> JobResult:
        raise RuntimeError("a secret of the machine")

    async def ready(self) -> bool:
        return True


@pytest.fixture(scope="module")
def strict(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server without formats and with low rate limits."""
    folder = tmp_path_factory.mktemp("strict")
    with servers.running(folder, executor=Broken(), rate_limit_anonymous=3, rate_limit_paid=50) as running:
        yield running


@pytest.mark.parametrize("verb", ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"])
@pytest.mark.parametrize("path", ["/nothing", "/api/v1", "/api/v1/convert/", "/api/v2/formats", "/api/v1/%00"])
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


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({"target": None}, "output_format", "missing"),
        ({"target": ""}, "output_format", "malformed"),
        ({"target": "../png"}, "output_format", "malformed"),
        ({"target": "p" * 21}, "output_format", "malformed"),
        ({"quality": "80.5"}, "quality", "not_an_integer"),
        ({"quality": ""}, "quality", "not_an_integer"),
        ({"quality": "true"}, "quality", "not_an_integer"),
        ({"quality": "٨٠"}, "quality", "not_an_integer"),
        ({"quality": "0"}, "quality", "out_of_range"),
        ({"quality": "-1"}, "quality", "out_of_range"),
        ({"quality": "101"}, "quality", "out_of_range"),
    ],
)
def test_parameters(server: Running, fields: dict[str, str | None], param: str, reason: str) -> None:
    target, quality = fields.get("target", "png"), fields.get("quality")
    parts = [FILE] if target is None else [FILE, part(target.encode(), 'name="output_format"')]
    if quality is not None:
        parts.append(part(quality.encode(), 'name="quality"'))
    response = http.post(f"{server.api}/convert", content=form(*parts), headers={**FORM, **server.auth})
    problem(response, 400, "invalid_parameter", param=param, reason=reason)


def test_file_type(server: Running) -> None:
    problem(server.convert(b"just words"), 400, "invalid_file_type", reason="unrecognized")
    problem(server.convert(b""), 400, "invalid_file_type", reason="empty_file")


@pytest.mark.parametrize("target", ["xyz", "dng"])
def test_pair(server: Running, target: str) -> None:
    response = server.convert(picture(), target)
    problem(response, 400, "unsupported_conversion")
    details = response.json()["error"]["details"]
    assert (details["input_format"], details["output_format"]) == ("jpeg", target)
    assert "webp" in details["available"]


def test_corrupt_input(server: Running) -> None:
    response = server.convert(b"\xff\xd8\xff\xe0 and nothing of a picture")
    problem(response, 500, "processing_failed", reason="corrupt_input", retryable=False)


def test_an_unexpected_exception_is_not_shown_to_the_client(strict: Running) -> None:
    response = strict.convert(picture())
    problem(response, 500, "server_error")
    assert "secret" not in response.text
    assert eventually(lambda: not strict.work_files())


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

    kinds: list[type[Exception]] = [errors.ApiError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert set().union(*map(codes, kinds)) <= set(errors.STATUS)
