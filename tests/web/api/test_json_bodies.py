"""Strict parsing of JSON bodies."""

import pytest

from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'"text"',
        b"null",
        b'{"name": NaN}',
        b'{"email": "a@example.test", "email": "b@example.test"}',
        b'{"name": "\xff"}',
        b'{"name": ' + b"[" * 30_000,
        b'{"name": ' + b"9" * 5000 + b"}",
        b'{"name": 1e999}',
        b'{"name": ' + b"[" * 32 + b"]" * 32 + b"}",
        b'{"name": ' + b'{"a": ' * 5000 + b"1" + b"}" * 5001,
        b'{"\\ud800": 1}',
        b'{"name": "\\udfff"}',
        b'\xef\xbb\xbf{"name": "x"}',
        '{"name": "x"}'.encode("utf-16"),
    ],
)
def test_bodies_that_are_no_object(server: Running, body: bytes) -> None:
    problem(http.post(f"{server.api}/register", content=body), 400, "invalid_parameter", reason="malformed")


def test_other_charsets_and_empty_bodies(server: Running) -> None:
    headers = {"Content-Type": "application/json; charset=latin-1"}
    response = http.post(f"{server.api}/register", content=b"{}", headers=headers)
    problem(response, 400, "invalid_parameter", reason="malformed")
    problem(http.post(f"{server.api}/register"), 400, "invalid_parameter", param="email", reason="missing")


@pytest.mark.parametrize("path", ["/register", "/convert"])
@pytest.mark.parametrize("value", ["multipart/form-data;" + ";" * 8000, 'multipart/form-data; boundary="' + ";" * 8000])
def test_long_content_types_are_refused(server: Running, path: str, value: str) -> None:
    headers = {**server.auth, "Content-Type": value}
    response = http.post(f"{server.api}{path}", content=b"{}", headers=headers)
    problem(response, 400, "invalid_parameter", reason="malformed")
    assert "4096 bytes" in response.json()["error"]["message"]


@pytest.mark.parametrize("content_type", [None, "application/json", "application/x-www-form-urlencoded", "text/plain"])
def test_the_content_type_of_json_is_ignored(server: Running, content_type: str | None) -> None:
    body = b'{"name": "An app"}'
    headers = {**server.auth, **({"Content-Type": content_type} if content_type else {})}
    assert http.post(f"{server.api}/account/keys", content=body, headers=headers).status_code == 200


def test_unknown_fields_are_refused(server: Running) -> None:
    response = http.post(f"{server.api}/account/keys", json={"nmae": "Laptop"}, headers=server.auth)
    problem(
        response, 400, "invalid_parameter", param="nmae", reason="unknown_parameter", details={"available": ["name"]}
    )
    path = f"{server.api}/files/{server.upload(image())['file_id']}/convert"
    response = http.post(path, json={"output_format": "png", "qualty": 80}, headers=server.auth)
    problem(response, 400, "invalid_parameter", param="qualty", reason="unknown_parameter")
    assert response.json()["error"]["details"]["available"][0] == "quality"


def test_large_bodies(server: Running) -> None:
    body = b" " * 65_536 + b"{}"
    for content in (body, iter([body])):
        response = http.post(f"{server.api}/register", content=content)
        problem(response, 413, "file_too_large", param="body", reason="bytes", details={"max_body_size": 65_536})
