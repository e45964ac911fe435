"""Clients that were refused for want of room, and ask again in the same bytes on the same connection."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tornado.httputil import HTTPHeaders

from storage.limits import MemoryLimiter
from tests.web.checks import dressed, problem
from tests.web.samples import FILE, TARGET, form
from tests.web.servers import Running, Servers, parsed, read_answer
from tests.web.test_convert import request
from tests.web.test_logs import listening, one
from web.patience import Patience
from web.services.turns import Expected, Turns

_OTHER = b"GET /api/v1/formats HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PATIENCE = Patience(idle=1.0)  # seconds
_RESULT = b"\x89PNG"
_MOMENT = 0.1  # seconds: longer than those who were put off wait


@dataclass
class Room:
    """Whether a server has some, and how many heads of requests it has taken apart."""

    there: bool = False
    parsed: int = 0


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    room = Room()
    expect, parse = Turns.expect, HTTPHeaders.parse

    def expected(turns: Turns, account_id: str, limit: int) -> Expected:
        if not room.there:
            raise turns._full("full", 3, "Too many conversions are waiting.")
        return expect(turns, account_id, limit)

    def counted(headers: str, **options: Any) -> HTTPHeaders:
        room.parsed += "multipart" in headers and "Authorization" in headers
        return parse(headers, **options)

    monkeypatch.setattr(Turns, "expect", expected)
    monkeypatch.setattr(HTTPHeaders, "parse", counted)
    return room


@pytest.fixture
def busy(servers: Servers, tmp_path_factory: pytest.TempPathFactory, room: Room) -> Iterator[Running]:
    """A server that knows the account, and has no room but by the fixture of that name."""
    with servers.running(tmp_path_factory.mktemp("data"), patience=_PATIENCE) as server:
        assert server.ask("GET", "/account").status_code == 200
        yield server


@pytest.fixture
def refused(busy: Running, room: Room) -> Iterator[socket.socket]:
    """A connection on which the conversion was refused once."""
    with busy.connect() as connection:
        problem(_asked(connection, _conversion(busy)), 429, "rate_limit_exceeded", reason="queue_full")
        assert room.parsed == 1
        time.sleep(_MOMENT)  # the answer is there before the server listens again
        yield connection


def test_they_are_refused_in_the_same_words_and_nobody_takes_the_request_apart(
    busy: Running, refused: socket.socket, room: Room
) -> None:
    ids = set()
    for _ in range(3):
        answer = _asked(refused, _conversion(busy))
        problem(answer, 429, "rate_limit_exceeded", reason="queue_full", retryable=True)
        assert answer.headers["Retry-After"] == "3"
        assert "Connection" not in answer.headers
        ids.add(answer.headers["X-Request-Id"])
    assert len(ids) == 3
    assert room.parsed == 1


def test_each_refusal_is_noted_like_any_answer(busy: Running, refused: socket.socket) -> None:
    with listening() as lines:
        answer = _asked(refused, _conversion(busy))
        entry = one(lines, answer)
    assert (entry["message"], entry["status"]) == ("POST /api/v1/convert", 429)
    assert (entry["code"], entry["sent"]) == ("rate_limit_exceeded", len(answer.content))


def test_they_are_served_as_soon_as_there_is_room(busy: Running, refused: socket.socket, room: Room) -> None:
    room.there = True
    answer = _asked(refused, _conversion(busy))
    assert (answer.status_code, answer.content[:4]) == (200, _RESULT)
    room.there = False
    problem(_asked(refused, _conversion(busy)), 429, "rate_limit_exceeded")
    assert room.parsed == 3


def test_what_has_come_of_the_body_is_passed_over_whatever_it_is(
    busy: Running, refused: socket.socket, room: Room
) -> None:
    whole = _conversion(busy)
    head = whole[: whole.index(b"\r\n\r\n") + 4]
    hostile = (_OTHER * len(whole))[: len(whole) - len(head)]
    problem(_asked(refused, head + hostile), 429, "rate_limit_exceeded")
    refused.settimeout(_MOMENT)
    with pytest.raises(TimeoutError):
        refused.recv(1)
    refused.settimeout(10)
    assert _asked(refused, _OTHER).status_code == 200
    assert room.parsed == 1


def test_another_request_is_another(busy: Running, refused: socket.socket, room: Room) -> None:
    assert _asked(refused, _OTHER).status_code == 200
    problem(_asked(refused, _conversion(busy)), 429, "rate_limit_exceeded")
    longer = request(busy, form(FILE, TARGET) + b"\r\n")
    problem(_asked(refused, longer), 429, "rate_limit_exceeded")
    assert room.parsed == 3
    stranger = _conversion(busy).replace(busy.key.encode(), busy.key.encode()[::-1])
    problem(_asked(refused, stranger), 401, "invalid_api_key")


def test_requests_that_come_in_pieces_are_answered(busy: Running, refused: socket.socket) -> None:
    whole = _conversion(busy)
    for cut in (10, whole.index(b"\r\n\r\n") + 2, len(whole) // 2, len(whole) - 1):
        refused.sendall(whole[:cut])
        time.sleep(_MOMENT)
        problem(_asked(refused, whole[cut:]), 429, "rate_limit_exceeded")


def test_requests_that_come_at_once_are_answered_one_by_one(busy: Running, refused: socket.socket) -> None:
    refused.sendall(2 * _conversion(busy) + _OTHER)
    answers = _all(refused, 3)
    assert [answer.status_code for answer in answers] == [429, 429, 200]
    for answer in answers:
        dressed(answer)


def test_the_end_of_another_request_is_none_even_if_it_reads_the_same(busy: Running) -> None:
    with busy.connect() as connection:
        begun = b"GET /api/v1/formats HTTP/1.1\r\nX-Begun: "
        problem(_asked(connection, _conversion(busy) + begun), 429, "rate_limit_exceeded")
        time.sleep(_MOMENT)
        assert _asked(connection, _conversion(busy)).status_code == 200


@pytest.mark.parametrize("more", ["Expect: 100-continue\r\n", "Transfer-Encoding: chunked\r\n"])
def test_those_whose_end_is_not_known_from_the_head_are_looked_at(busy: Running, more: str) -> None:
    chunked = "chunked" in more
    length = "" if chunked else "Content-Length: 5\r\n"
    body = b"5\r\nhello\r\n0\r\n\r\n" if chunked else b""
    asked = f"{busy.posting}{length}{more}\r\n".encode() + body
    for _ in range(2):
        with busy.connect() as connection:
            problem(_asked(connection, asked), 429, "rate_limit_exceeded")
            if chunked:
                problem(_asked(connection, asked), 429, "rate_limit_exceeded")


def test_those_of_http_1_0_are_told_each_time_that_the_connection_stays(busy: Running) -> None:
    head = busy.posting.replace("HTTP/1.1", "HTTP/1.0")
    asked = f"{head}Connection: keep-alive\r\nContent-Length: 5\r\n\r\nhello".encode()
    with busy.connect() as connection:
        for _ in range(3):
            answer = _asked(connection, asked)
            problem(answer, 429, "rate_limit_exceeded")
            assert answer.headers["Connection"].lower() == "keep-alive"
            time.sleep(_MOMENT)


def test_they_may_leave_or_stay_away(busy: Running, refused: socket.socket) -> None:
    problem(_asked(refused, _conversion(busy)), 429, "rate_limit_exceeded")
    assert refused.recv(1) == b""  # once it was idle for as long as the server waits
    with busy.connect() as connection:
        for _ in range(2):
            problem(_asked(connection, _conversion(busy)), 429, "rate_limit_exceeded")
        connection.sendall(_conversion(busy))
    assert busy.ask("GET", "/account").status_code == 200


def test_whoever_cannot_be_told_is_cut_off(
    busy: Running, refused: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(*_: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patched:
        patched.setattr(MemoryLimiter, "peek", failing)
        refused.sendall(_conversion(busy))
        assert refused.recv(1) == b""
    assert "could not be refused" in caplog.text
    with busy.connect() as connection:
        problem(_asked(connection, _conversion(busy)), 429, "rate_limit_exceeded")


def test_whoever_takes_no_answers_gets_them_later(busy: Running, refused: socket.socket) -> None:
    refused.setblocking(False)
    sent, whole = 0, _conversion(busy)
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        try:
            sent += refused.send(whole[sent % len(whole) :])
        except BlockingIOError:
            time.sleep(0.01)
    refused.setblocking(True)
    refused.settimeout(10)
    whole_ones = sent // len(whole)
    assert whole_ones > 0
    assert [answer.status_code for answer in _all(refused, whole_ones)] == [429] * whole_ones


def _conversion(server: Running) -> bytes:
    return request(server, form(FILE, TARGET))


def _asked(connection: socket.socket, sent: bytes) -> Any:
    connection.sendall(sent)
    return parsed(read_answer(connection))


def _all(connection: socket.socket, count: int) -> list[Any]:
    """So many answers, however they come."""
    received, answers = b"", list[Any]()
    while len(answers) < count:
        head, found, rest = received.partition(b"\r\n\r\n")
        answer = parsed(received) if found else None
        length = int(answer.headers["Content-Length"]) if answer is not None else 0
        if answer is None or len(rest) < length:
            piece = connection.recv(65_536)
            assert piece
            received += piece
            continue
        answers.append(parsed(head + found + rest[:length]))
        received = rest[length:]
    return answers
