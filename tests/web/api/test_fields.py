"""Request fields, content negotiation, strict JSON bodies, and values whose fields make their JSON and its schema."""

from dataclasses import dataclass
from typing import Annotated, Any

import pytest
from pydantic import Field, TypeAdapter

from storage.field_types import Timestamp
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running
from web.api.errors import InvalidParameter
from web.api.field_types import validate
from web.api.fields import RegistrationFields
from web.api.values import Flat, Inline, to_json
from web.http.responses import wants_json


def registered(email: object, name: object) -> RegistrationFields:
    return validate(RegistrationFields, {"email": email, "name": name})


def registered_name(sent: object) -> str:
    return registered("you@example.com", sent).name


LONGEST = "l" * 64 + "@" + ".".join(["d" * 46] * 4) + "de"  # 254 characters


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/json, */*", True),
        ("application/json, text/plain, */*", True),
        ("application/json;q=0", False),
        ("application/json;q=0.5, image/webp", False),
        ("application/json;q=0.5, image/*", True),
        ("image/webp;q=0.4, application/json;q=0.5", True),
        ("text/html, application/xhtml+xml", False),
        ("application/json;q=nonsense", False),
        (";;,,;q=", False),
    ],
)
def test_wants_json(accept: str, json: bool) -> None:
    assert wants_json(accept) is json


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("person@example.com", "person@example.com"),
        ("Person@Example.COM", "Person@example.com"),
        (" person@b.test ", "person@b.test"),
        ("a.b+c_d-e@sub.b.example", "a.b+c_d-e@sub.b.example"),
        ("o'brien@b.test", "o'brien@b.test"),
        ("person@B\u00dccher.test", "person@xn--bcher-kva.test"),
        (f"{'l' * 64}@b.test", f"{'l' * 64}@b.test"),
        (LONGEST, LONGEST),
        (f"{LONGEST}e", None),
        (f"{'l' * 65}@b.test", None),
        ("l" * 60 + "@" + ".".join(["d" * 45 + "\u00fc"] * 4), None),
        (f"person@{'d' * 64}.test", None),
        ("person@b.test\n", None),
        ("person@b.test\r\nBcc: victim@b.test", None),
        ("person@b.test\x00", None),
        ("person@b.test, victim@b.test", None),
        ("Person <person@b.test>", None),
        ("<person@b.test>", None),
        ('"a b"@b.test', None),
        ("p\u00e9rson@b.test", None),
        ("person\ud800@b.test", None),
        ("person@\ud800.test", None),
        ("person@localhost", None),
        ("person@printer.local", None),
        ("person@[127.0.0.1]", None),
        ("person@b..test", None),
        ("person@@b.test", None),
        ("person", None),
        ("@b.test", None),
        ("", None),
        ("x" * 60_000, None),
        (7, None),
        (["person@b.test"], None),
    ],
)
def test_email(sent: object, found: str | None) -> None:
    if found is None:
        with pytest.raises(InvalidParameter) as refused:
            registered(sent, "Photo shop")
        assert (refused.value.param, refused.value.reason) == ("email", "malformed")
        assert "b.test" not in str(refused.value)
    else:
        assert registered(sent, "Photo shop").email == found


@pytest.mark.parametrize(
    "sent", ["My App", "ab", "x" * 100, "\u5199\u771f", "\U0001f44d\U0001f3fd", "O'Brien & <b>Co</b>"]
)
def test_name(sent: str) -> None:
    assert registered_name(f" \t{sent}\n ") == sent


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (None, "missing"),
        (7, "malformed"),
        ({"name": "app"}, "malformed"),
        ("", "out_of_range"),
        ("   ", "out_of_range"),
        (" x ", "out_of_range"),
        ("x" * 101, "out_of_range"),
        ("my\x00app", "malformed"),
        ("my\r\napp", "malformed"),
        ("my\x1b[31mapp", "malformed"),
        ("my\u2028app", "malformed"),
        ("my\ud800app", "malformed"),
    ],
)
def test_wrong_names(sent: object, reason: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        registered_name(sent)
    assert (refused.value.param, refused.value.reason) == ("name", reason)


def test_a_missing_address() -> None:
    with pytest.raises(InvalidParameter) as refused:
        registered(None, "Photo shop")
    assert (refused.value.param, refused.value.reason) == ("email", "missing")


@dataclass(frozen=True)
class Image:
    width: int | None
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    id: str
    created_at: Timestamp
    secret: Annotated[str, Field(exclude=True)] = ""


@dataclass(frozen=True)
class Resource(Flat):
    row: Inline[Row]
    image: Inline[Image | None]
    status: str = "new"


@dataclass(frozen=True)
class Copy(Flat):
    resource: Inline[Resource]
    id: str


_ROW = Row("a", 0, "secret")


_FIELDS = ["id", "created_at", "width", "tags", "status"]


def test_inlined_fields_take_the_place_of_their_dataclass() -> None:
    row = {"id": "a", "created_at": "1970-01-01 00:00:00", "width": 3, "tags": ["x"], "status": "new"}
    assert to_json(Resource(_ROW, Image(3, ("x",)))) == row


def test_the_fields_of_an_absent_value_are_null_or_empty() -> None:
    nothing: dict[str, object] = {"width": None, "tags": []}
    row = {"id": "a", "created_at": "1970-01-01 00:00:00", "status": "new"}
    assert to_json(Resource(_ROW, None)) == row | nothing


def test_own_fields_replace_inlined_ones() -> None:
    copy = to_json(Copy(Resource(_ROW, None, "old"), "b"))
    assert (copy["id"], copy["status"]) == ("b", "old")


def test_the_schema_describes_the_json() -> None:
    schema = TypeAdapter(Copy).json_schema(mode="serialization")
    assert {*schema["properties"]} == {*_FIELDS}
    assert schema["properties"]["width"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert schema["properties"]["created_at"]["examples"] == ["2026-11-21 05:23:00"]


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
        '{"name": "x"}'.encode("utf-16"),
    ],
)
def test_bodies_that_are_no_object(server: Running, body: bytes) -> None:
    problem(http.post(f"{server.api}/register", content=body), 400, "invalid_parameter", reason="malformed")


def test_json_may_begin_with_a_byte_order_mark(server: Running) -> None:
    body = b'\xef\xbb\xbf{"name": "An app"}'
    assert http.post(f"{server.api}/account/keys", content=body, headers=server.auth).status_code == 200


@pytest.mark.parametrize("form", [{"data": {"name": "An app"}}, {"files": {"name": (None, "An app")}}])
def test_forms_in_place_of_json(server: Running, form: dict[str, Any]) -> None:
    response = http.post(f"{server.api}/account/keys", headers=server.auth, **form)
    problem(response, 400, "invalid_parameter", reason="content_type")
    assert "JSON object" in response.json()["error"]["message"]


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
        response,
        400,
        "invalid_parameter",
        param="nmae",
        reason="unknown_parameter",
        details={"available": ["name", "mode"]},
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
