"""Assertions that hold for every response, also by the OpenAPI document: what is undocumented is an error."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs

from engine.registry import load_registry
from web.api.errors import STATUS
from web.api.operations import JSON_FORM
from web.api.values import API
from web.docs.openapi import document
from web.routes import documented_operations

HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_DOCUMENT = "urn:document"
_OF_HTTP = {
    *("connection", "content-encoding", "content-length", "content-type"),
    *("date", "server", "transfer-encoding", "vary"),
}


@cache
def published() -> dict[str, Any]:
    """The document of a server here."""
    return document(documented_operations(load_registry()), load_registry(), f"http://localhost:8000{API}")


def conforms(answer: httpx.Response) -> httpx.Response:
    """Asserts that the document has the response's status, headers and body. Returns the response.

    What is no operation, such as a page or a path that is not there, is passed over.
    """
    found = _operation(str(answer.request.method), answer.request.url.path)
    if found is not None:
        path, verb = found
        responses = published()["paths"][path][verb]["responses"]
        status = str(answer.status_code)
        assert status in responses, f"{verb} {path} does not document {status}: {answer.text[:200]}"
        _check_headers(_looked_up(responses[status]), answer.headers)
        if answer.request.method != "HEAD":
            _check_body(path, verb, status, answer)
    return answer


def _operation(method: str, path: str) -> tuple[str, str] | None:
    verb = {"HEAD": "get"}.get(method, method.lower())
    path = path.replace(f"{API}/tools/pdf-", f"{API}/pdf/")  # where these tools are documented
    for template, pattern in _patterns().items():
        if pattern.fullmatch(path):
            return (template, verb) if verb in published()["paths"][template] else None
    return None


@cache
def _patterns() -> Mapping[str, re.Pattern[str]]:
    """Patterns of the paths that belong to each path of the document."""
    wholes = {path: path if "servers" in item else API + path for path, item in published()["paths"].items()}
    return {path: re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(whole))) for path, whole in wholes.items()}


def _looked_up(value: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in value:
        return value
    found: Any = published()
    for part in value["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _check_headers(response: Mapping[str, Any], sent: httpx.Headers) -> None:
    told = {name.lower(): _looked_up(header) for name, header in response["headers"].items()}
    assert {*sent.keys()} - _OF_HTTP <= {*told}
    assert {name for name, header in told.items() if header["required"]} <= {*sent.keys()}
    for name, header in told.items():
        if name in sent:
            value: object = int(sent[name]) if header["schema"].get("type") == "integer" else sent[name]
            jsonschema_rs.validate(header["schema"], value)


def _check_body(path: str, verb: str, status: str, answer: httpx.Response) -> None:
    media_type = answer.headers.get("Content-Type", "").partition(";")[0]
    if media_type == "application/json" and "Content-Disposition" in answer.headers:
        media_type = "application/octet-stream"  # a file
    if media_type == "application/json" and path + JSON_FORM in published()["paths"]:
        path += JSON_FORM  # where the JSON of a negotiated response is documented
    is_json = media_type == "application/json" and status == "200"
    if is_json and path.startswith("/convert") and "losses" in answer.text:
        path = "/convert/inspect"  # where a dry run is documented
    if is_json and verb == "post" and "wait=" in answer.request.headers.get("Prefer", ""):
        _check_awaited(answer.json()["data"])
        return
    response = published()["paths"][path][verb]["responses"][status]
    content = _looked_up(response).get("content", {})
    if not content:
        assert answer.content == b""
        return
    assert media_type in content
    if media_type == "application/json":
        pointer = response.get("$ref", pointer_of_response(path, verb, status))
        validator_of(pointer, strict=True).validate(answer.json())


def _check_awaited(job: dict[str, Any]) -> None:
    """A job that was waited for also has the fields of its result, and its kind."""
    _validator_at("#/components/schemas/Job").validate({**job, "kind": "job"})


def pointer_of_response(path: str, verb: str, status: str) -> str:
    """Where in the document a response of an operation is."""
    return f"#/paths/{quote(path.replace('/', '~1'))}/{verb}/responses/{status}"


@cache
def validator_of(pointer: str, *, strict: bool = False) -> jsonschema_rs.Draft202012Validator:
    """A validator of the JSON of the response at that place. A strict one allows no additional properties."""
    return _validator_at(f"{pointer}/content/application~1json/schema", strict=strict)


@cache
def _validator_at(pointer: str, *, strict: bool = False) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({"$ref": f"{_DOCUMENT}{pointer}"}, registry=_schemas(strict=strict))


@cache
def _schemas(*, strict: bool) -> jsonschema_rs.Registry:
    document = _strict(published()) if strict else published()
    return jsonschema_rs.Registry([(_DOCUMENT, document)], draft=jsonschema_rs.Draft202012)


def _strict(value: Any) -> Any:
    """The same schema without additional properties."""
    if isinstance(value, dict):
        strict = {name: _strict(inner) for name, inner in value.items()}
        if value.get("type") == "object" and "properties" in value:
            strict.setdefault("additionalProperties", False)
        return strict
    return [_strict(inner) for inner in value] if isinstance(value, list) else value


def problem(response: httpx.Response, status: int, code: str, **expected: object) -> None:
    """Asserts the envelope and the headers of an error."""
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert STATUS[code] == status
    assert error["message"].endswith(".")
    assert isinstance(error["retryable"], bool)
    assert error["doc_url"].endswith(f"/docs/errors#{code}")
    assert response.headers["Content-Type"] == "application/json"
    assert {name: error.get(name) for name in expected} == expected
    assert re.fullmatch(r"req_[A-Za-z0-9]{22}", error["request_id"])
    assert error["request_id"] == response.headers["X-Request-Id"]
    dressed(response)


def dressed(response: httpx.Response) -> None:
    """Asserts the common headers, and that the response matches the OpenAPI document."""
    assert all(response.headers[name].isdigit() for name in HEADERS)
    assert re.fullmatch(r'"default";q=\d+;w=(60|3600|86400)', response.headers["RateLimit-Policy"])
    assert re.fullmatch(r'"default";r=\d+;t=\d+', response.headers["RateLimit"])
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Request-Id" in response.headers["Access-Control-Expose-Headers"]
    if "raw" not in response.extensions:  # a response that is parsed from raw bytes belongs to no request
        conforms(response)
