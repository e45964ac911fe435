"""Unusual HTTP that clients and proxies send, as bytes."""

import json

import pytest

from tests.conformance.service import API, Service, form, part, png, posting

_FILE = part('; name="file"; filename="photo.png"', png())
_TARGET = part('; name="output_format"', b"jpeg")
_FORM = form(_FILE, _TARGET)


def _get(target: str, more: str = "", method: str = "GET") -> bytes:
    return f"{method} {target} HTTP/1.1\r\nHost: HOST\r\n{more}\r\n".encode()


def _chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def test_pipelined_requests_are_answered_in_order(service: Service) -> None:
    answers = service.raw(_get(f"{API}/nothing") + _get("/version") + _get(f"{API}/formats"), 3)
    assert [answer.status for answer in answers] == [404, 200, 200]
    assert json.loads(answers[1].body)["name"] == "convertd"


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_chunks(service: Service, size: int) -> None:
    head = posting(0, "Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"")
    (answer,) = service.raw(head + _chunked(_FORM, size))
    assert (answer.status, answer.body[:2]) == (200, b"\xff\xd8")


def test_100_continue(service: Service) -> None:
    head = posting(len(_FORM), "Expect: 100-continue\r\n")
    (answer,) = service.raw(head, body_later=_FORM)
    assert (answer.status, answer.body[:2]) == (200, b"\xff\xd8")


def test_head_has_the_headers_of_get(service: Service) -> None:
    get, head = (service.raw(_get(f"{API}/formats", method=method))[0] for method in ("GET", "HEAD"))
    assert (head.status, head.headers["content-type"]) == (200, get.headers["content-type"])
    assert head.headers["x-request-id"] != get.headers["x-request-id"]


def test_options_needs_no_key(service: Service) -> None:
    (answer,) = service.raw(_get(f"{API}/convert", "Origin: https://example.com\r\n", "OPTIONS"))
    assert (answer.status, answer.headers["access-control-allow-origin"]) == (204, "*")
    assert "POST" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize("path", ["/formats", "/tools", "/openapi.json"])
def test_conditional_requests(service: Service, path: str) -> None:
    first = service.send("GET", path, None)
    etag = first.headers["ETag"]
    for given in (etag, f'"x", {etag}', "*"):
        again = service.send("GET", path, None, headers={"If-None-Match": given})
        assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert service.send("GET", path, None, headers={"If-None-Match": '"x"'}).status_code == 200


@pytest.mark.parametrize(
    ("given", "status", "start", "end"),
    [
        *(("bytes=0-9", 206, 0, 10), ("bytes=10-", 206, 10, None), ("bytes=-5", 206, -5, None)),
        *(("bytes=5-999999999", 206, 5, None), ("lines=1-2", 200, 0, None), ("bytes=9-5", 200, 0, None)),
        ("bytes=999999999-", 416, 0, 0),
    ],
)
def test_ranges(service: Service, stored: tuple[str, bytes], given: str, status: int, start: int, end: int) -> None:
    path, content = stored
    response = service.send("GET", path, headers={"Range": given})
    assert response.status_code == status
    if status == 416:
        assert response.headers["Content-Range"] == f"bytes */{len(content)}"
        return
    assert response.content == content[start:end]
    head = service.send("HEAD", path)
    assert (head.content, int(head.headers["Content-Length"])) == (b"", len(content))


@pytest.fixture(scope="module")
def stored(service: Service) -> tuple[str, bytes]:
    """The path of a stored result, and its content."""
    data = service.convert(png(), "jpeg", accept="application/json").json()["data"]
    path = f"/files/{data['file_id']}/download"
    return path, service.send("GET", path).content


@pytest.mark.parametrize(
    "request_",
    [
        f"GET {API}/account HTTP/1.1\r\nhOST: HOST\r\naUTHORIZATION: Bearer KEY\r\n\r\n",
        f"GET http://HOST{API}/account HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer KEY\r\n\r\n",
        f"GET {API}/account HTTP/1.1\r\nHost:HOST\r\nAuthorization:  Bearer KEY  \r\n\r\n",
        f"GET {API}/account HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer KEY\r\nContent-Length: 0\r\n\r\n",
        f"GET {API}/account HTTP/1.0\r\nHost: HOST\r\nAuthorization: Bearer KEY\r\n\r\n",
        f"GET {API}/account? HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer KEY\r\nConnection: close\r\n\r\n",
    ],
    ids=["header-case", "absolute-target", "spaces", "empty-body", "http-1.0", "empty-query"],
)
def test_served(service: Service, request_: str) -> None:
    (answer,) = service.raw(request_.encode())
    assert answer.status == 200
    assert json.loads(answer.body)["data"]["email"]


@pytest.mark.parametrize(
    "request_",
    [
        posting(-1),
        posting(4, "Content-Length: 5\r\n") + b"12345",
        posting(4, "Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
        _get(f"{API}/account", "Host: elsewhere\r\n"),
        _get(f"{API}/account", "no colon\r\n"),
        posting(0, "Transfer-Encoding: chunked\r\n").replace(b"Content-Length: 0\r\n", b"") + b"zz\r\n",
    ],
    ids=["negative-length", "two-lengths", "length-and-chunks", "two-hosts", "no-colon", "chunk-of-zz"],
)
def test_malformed(service: Service, request_: bytes) -> None:
    (answer,) = service.raw(request_)
    assert answer.status == 400


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        *((None, _FORM), ("multipart/form-data", _FORM), ("multipart/form-data; boundary=other", _FORM)),
        *(("application/json", b'{"output_format": "png"}'), ("text/plain", b"png"), ("application/json", b"{")),
    ],
)
def test_wrong_content_types(service: Service, content_type: str | None, body: bytes) -> None:
    headers = {"Content-Type": content_type} if content_type else {}
    response = service.send("POST", "/convert", content=body, headers=headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_parameter")


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('; name="file"; filename="photo.png"', "photo.png"),
        ("; name=file; filename=photo.png", "photo.png"),
        (';name="file";filename="photo.png"', "photo.png"),
        ('; filename="photo.png"; name="file"', "photo.png"),
        ('; NAME="file"; FileName="photo.png"', "photo.png"),
        ('; name="file"; filename="a \\"b\\".png"', None),
        ('; name="file"; filename="a;b.png"', None),
        ('; name="file"; filename="häuser.png"', "häuser.png"),
        ('; name="file"; filename="x.png"; filename*=UTF-8\'\'h%C3%A4user.png', "häuser.png"),
        ('; name="file"; filename="C:\\\\fakepath\\\\photo.png"', "photo.png"),
        ('; name="file"; filename="../../photo.png"', "photo.png"),
        ('; name="file"; filename=""', None),
        ('; name="file"', None),
    ],
)
def test_names_of_files(service: Service, disposition: str, name: str | None) -> None:
    answer = service.post(form(part(disposition, png())), "/files/upload")
    assert answer.status == 200, answer.body
    data = json.loads(answer.body)["data"]
    assert data["original_name"] == name or name is None
    assert not {"/", "\\", "\r", "\n"} & {*data["original_name"]}
    assert data["extension"] == "png"


@pytest.mark.parametrize(
    "body",
    [
        form(_TARGET, _FILE),
        b"\r\n" + _FORM,
        _FORM + b"an epilogue",
        form(part('; name="file"; filename="photo.png"', png(), "Content-Type: text/plain; charset=utf-8"), _TARGET),
        form(part('; name="file"; filename="photo.png"', png(), "Content-Length: 75", "X-Other: a"), _TARGET),
    ],
    ids=["file-last", "empty-line", "epilogue", "wrong-type", "more-headers"],
)
def test_unusual_forms(service: Service, body: bytes) -> None:
    answer = service.post(body)
    assert (answer.status, answer.body[:2]) == (200, b"\xff\xd8")


@pytest.mark.parametrize(
    "body",
    [
        form(_FILE),
        form(part("", png()), _TARGET),
        form(_FILE, _TARGET, _TARGET),
        form(_FILE, _FILE, _TARGET),
        _FORM[:-4],
        form(
            part('; name="file"; filename="a"', png(), end="\n"),
            part('; name="output_format"', b"png", end="\n"),
            end="\n",
        ),
        b"",
    ],
    ids=["no-target", "no-name", "target-twice", "file-twice", "no-end", "line-feeds-alone", "empty"],
)
def test_refused_forms(service: Service, body: bytes) -> None:
    answer = service.post(body)
    assert (answer.status, json.loads(answer.body)["error"]["code"]) == (400, "invalid_parameter")
