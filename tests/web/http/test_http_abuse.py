"""Malformed, unusual and refused requests, and hostile texts: each is answered in time, and the next succeeds."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from time import thread_time

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ConversionError
from engine.options import validate_options
from engine.registry import load_registry
from tests.support.growth import SEPARATORS, is_linear
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.requests.http_requests import BODY, MALFORMED, REFUSED, SERVED, get_request, post_request
from tests.support.samples.forms import FORM, TARGET, image, part
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from web.api import fields, job_fields, url_fields
from web.api.errors import ApiError
from web.api.field_types import RequestModel, field_names, validate
from web.api.headers import extended_filename, parse_header
from web.http.downloads import requested_range
from web.services.webhooks.outgoing import Outgoing, OutgoingError

MIB = 1 << 20
_MODULES = (fields, job_fields, url_fields)
_FIELD = 60 << 10  # bytes, as many as a form allows
_HEADER = 30 << 10
_DOCUMENTED = ("Authorization", "Accept", "Accept-Encoding", "Content-Type", "Idempotency-Key", "Prefer", "Range")
_OTHERS = ("If-None-Match", "If-Range", "X-Forwarded-For", "Origin", "Cookie", "Sec-Fetch-Site", "Host", "Expect")


def sent(server: Running, request: bytes) -> httpx.Response:
    """Returns the response. Asserts that the server still works afterwards."""
    length = len(request.partition(b"\r\n\r\n")[2])
    request = request.replace(b"Authorization: KEY", b"Authorization: Bearer " + server.key.encode())
    assert len(request.partition(b"\r\n\r\n")[2]) == length
    response = parsed(server.raw(request))
    assert http.get(f"{server.url}/healthz").status_code == 200
    assert eventually(lambda: not server.work_files())
    return response


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(server: Running, name: str) -> None:
    response = sent(server, MALFORMED[name])
    problem(response, 400, "invalid_parameter", reason="malformed")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(server: Running, name: str) -> None:
    request, status, code = REFUSED[name]
    problem(sent(server, request), status, code)


@pytest.mark.parametrize("name", SERVED)
def test_served(server: Running, name: str) -> None:
    response = sent(server, SERVED[name])
    assert response.status_code == 200
    dressed(response)
    assert "injected" not in str(response.headers).lower()


def test_head_has_no_body(server: Running) -> None:
    response = http.head(f"{server.api}/formats")
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            get_request() + get_request(b"/nothing") + get_request(b"/version", more=b"Connection: close\r\n")
        )
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]


@pytest.mark.parametrize("method", [b"FOO", b"get", b"FINISH", b"UNKNOWN", b"TRACE"])
@pytest.mark.parametrize("framing", [b"", b"Content-Length: 200000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_connection_stays_usable_after_an_unknown_method(server: Running, method: bytes, framing: bytes) -> None:
    bodies = {b"": b"", b"Content-Length: 200000\r\n": b"x" * 200_000}
    refused = get_request(b"/api/v1/convert", verb=method, more=framing) + bodies.get(framing, b"2\r\nab\r\n0\r\n\r\n")
    with server.connect() as connection:
        connection.sendall(refused)
        problem(parsed(read_response(connection)), 405, "method_not_allowed")
        connection.sendall(get_request(b"/version"))
        assert parsed(read_response(connection)).status_code == 200


def test_100_continue_is_sent_after_the_checks(server: Running) -> None:
    wrong = post_request(b"Expect: 100-continue\r\nContent-Length: 10\r\n").replace(b"KEY", b"Bearer none")
    with server.connect() as connection:
        connection.sendall(wrong)
        problem(parsed(connection.recv(65_536)), 401, "invalid_api_key")
    right = post_request(b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(BODY))
    with server.connect() as connection:
        connection.sendall(right.replace(b"KEY", b"Bearer " + server.key.encode()))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert connection.recv(20).startswith(b"HTTP/1.1 200 ")


@given(noise=st.binary(min_size=1, max_size=40), at=st.integers(0, 250))
def test_noise_gets_the_envelope_or_nothing(server: Running, noise: bytes, at: int) -> None:
    request = post_request(b"Content-Length: 40\r\n", b"x" * 40)
    request = request[:at] + noise + request[at + len(noise) :]
    with server.connect() as connection, suppress(ConnectionError):
        connection.settimeout(0.05)  # an incomplete request gets no response yet
        connection.sendall(request)
        with suppress(TimeoutError):
            # Noise may split a request in two: each gets a response.
            for text in re.split(rb"(?=HTTP/1\.1 \d{3} )", connection.recv(65_536))[1:]:
                response = parsed(text)
                assert response.status_code < 500
                assert not response.content or response.json()["error"]["request_id"]


def test_too_large_is_refused_before_the_body(server: Running) -> None:
    head = f"{server.posting}Content-Type: {FORM['Content-Type']}\r\n"
    response = parsed(server.raw(f"{head}Content-Length: {200 * MIB}\r\n\r\n".encode()))
    problem(response, 413, "file_too_large", reason="bytes", details={"max_file_size": 100 * MIB})


def test_too_large_is_refused_instead_of_100_continue(server: Running) -> None:
    head = f"{server.posting}Expect: 100-continue\r\n"
    with server.connect() as connection:
        connection.sendall(f"{head}Content-Length: 999999999\r\n\r\n".encode())
        problem(parsed(read_response(connection)), 413, "file_too_large")
        assert connection.recv(100) == b""


def test_too_large_while_streaming(server: Running) -> None:
    def body() -> Iterator[bytes]:
        yield TARGET
        yield part(b"", 'name="file"; filename="a.jpg"')[:-2]
        for _ in range(101):
            yield bytes(MIB)

    response = http.post(f"{server.api}/convert", content=body(), headers={**FORM, **server.auth}, timeout=60)
    problem(response, 413, "file_too_large", reason="bytes", retryable=False)
    assert eventually(lambda: not server.work_files())


def test_a_client_that_never_stops_sending_is_cut_off(server: Running) -> None:
    head = f"POST /nothing HTTP/1.1\r\nHost: here\r\nContent-Length: {1 << 40}\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head.encode())
        problem(parsed(read_response(connection)), 404, "not_found")
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(200 * MIB))


def test_a_request_gets_one_response(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: here\r\nContent-Length: five\r\n\r\n")
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answers.count(b"HTTP/1.1 ") == 1
    problem(parsed(answers), 404, "not_found")


def _models() -> Iterator[type[RequestModel]]:
    pending = [RequestModel]
    while pending:
        found = pending.pop().__subclasses__()
        yield from found
        pending += found


def _readers() -> Iterator[tuple[str, Callable[[str], object]]]:
    """What reads the fields of requests and some headers, by name."""
    options = load_registry().options

    def read_field(model: type[RequestModel], name: str, text: str) -> object:
        return validate(model, {name: text}, from_text=True)

    def read_option(name: str, text: str) -> object:
        return validate_options(options, {name: text}, from_text=True)

    for model in _models():
        yield from ((f"{model.__name__}.{name}", partial(read_field, model, name)) for name in field_names(model))
    yield from ((name, partial(read_option, name)) for name in options)
    yield "Range", partial(requested_range, size=1000)
    yield "parameters", parse_header
    yield "filename*", lambda text: extended_filename(text.encode())
    yield "url", Outgoing().check_url


def _refusing(read: Callable[[str], object]) -> Callable[[bytes], None]:
    def call(text: bytes) -> None:
        with suppress(ApiError, ConversionError, OutgoingError):
            read(text.decode("latin-1"))

    return call


def _hostile(
    names: Callable[[str], bool], starts: tuple[bytes, ...] = (b"",), step: int = 1
) -> tuple[str, bytes, bytes] | None:
    """The first reader, start and piece, of whose repetitions the time is not linear; one of `step` is examined."""
    readers = {name: _refusing(read) for name, read in _readers() if names(name)}
    triples = [(name, start, piece) for name in sorted(readers) for start in starts for piece in SEPARATORS]
    return next((one for one in triples[::step] if not is_linear(readers[one[0]], *one[1:], size=_FIELD)), None)


def test_fields_and_headers() -> None:
    texts = ("UrlsFields.urls", "formats", "Range", "parameters", "url", "filename*")
    assert _hostile(lambda name: name in texts, (b"", b"x", b"bytes=", b"attachment;")) is None
    assert _hostile(lambda name: name not in texts, step=7) is None


@pytest.mark.long
def test_fields_and_headers_with_many_starts() -> None:
    assert _hostile(bool, (b"", b"x", *SEPARATORS)) is None


def _of_headers(servers: Servers, server: Running, names: tuple[str, ...], pieces: tuple[bytes, ...]) -> list[str]:
    """The headers that take the server a time that grows faster."""

    async def used() -> float:
        return thread_time()

    def requested(name: str) -> Callable[[bytes], object]:
        head = f"GET /api/v1/files HTTP/1.1\r\nConnection: close\r\n{name}: ".encode()
        return lambda text: server.raw(head + text.translate(None, b"\0\r\n") + b"\r\n\r\n")

    return [
        f"{name}: {piece!r}"
        for name in names
        for piece in pieces
        if not is_linear(requested(name), b"", piece, _HEADER, clock=lambda: float(servers.run(used())))
    ]


def test_headers_of_requests(servers: Servers, server: Running) -> None:
    pieces = (b" ", b"; ", b",", b'"', b"=", b"a")
    assert _of_headers(servers, server, (*_DOCUMENTED, *_OTHERS), pieces) == []


@pytest.mark.long
def test_headers_of_requests_with_all_pieces(servers: Servers, server: Running) -> None:
    assert _of_headers(servers, server, (*_DOCUMENTED, *_OTHERS), SEPARATORS) == []


@pytest.mark.parametrize("option", ["formats", "pages", "outputs"])
def test_nested_json_is_an_invalid_option(server: Running, option: str) -> None:
    problem(server.convert(image(), "png", **{option: "[" * 60_000}), 400, "invalid_parameter", param=option)
