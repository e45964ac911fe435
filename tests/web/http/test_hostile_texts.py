"""What clients and the servers of their URLs send as text is read in a time that grows no faster than the text."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from time import thread_time

import pytest

from engine.errors import ConversionError
from engine.options import validate_options
from engine.registry import load_registry
from tests.support.growth import SEPARATORS, is_linear
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers
from web.api import fields, job_fields, url_fields
from web.api.errors import ApiError
from web.api.field_types import RequestModel, field_names, validate
from web.api.header_parameters import extended_filename, parse_header
from web.http.downloads import requested_range
from web.services.webhooks.outgoing import Outgoing, OutgoingError

_MODULES = (fields, job_fields, url_fields)
_FIELD = 60 << 10  # bytes, as many as a form allows
_HEADER = 30 << 10
_DOCUMENTED = ("Authorization", "Accept", "Accept-Encoding", "Content-Type", "Idempotency-Key", "Prefer", "Range")
_OTHERS = ("If-None-Match", "If-Range", "X-Forwarded-For", "Origin", "Cookie", "Sec-Fetch-Site", "Host", "Expect")


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
