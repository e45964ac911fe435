"""A server with more to do than it can: whom it refuses costs it next to nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from select import select

import httpx
import pytest

from tests import plain
from tests.web.checks import dressed, problem
from tests.web.samples import FILE, FORM, TARGET, form
from tests.web.servers import Running, Servers, eventually, parsed, read_answer
from tests.web.test_convert import Stuck, request
from tests.web.test_logs import listening, one
from web.moderation import Moderation
from web.patience import Patience

MIB = 1 << 20
_MOST = 51  # conversions of one worker: the one that runs, and 50 that wait
_LIMIT = 10_000  # requests a minute
_MOMENT = 1.0  # seconds
_PATIENCE = Patience(idle=1.0)  # seconds
_CONNECTIONS = 64  # of an address
_OTHER = b"GET /api/v1/formats HTTP/1.1\r\nHost: localhost\r\n\r\n"


@pytest.fixture(scope="module")
def full(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that can take no more."""
    data = tmp_path_factory.mktemp("data")
    with (
        servers.running(data, executor=Stuck(), workers=1, rate_limit_paid=_LIMIT, patience=_PATIENCE) as server,
        ExitStack() as waiting,
    ):
        for _ in range(_MOST):
            waiting.enter_context(server.connect()).sendall(request(server, form(FILE, TARGET)))
        assert eventually(lambda: _one_more_is_refused(server, waiting), 60)
        yield server


def test_those_it_knows_are_refused_without_the_database(full: Running) -> None:
    stranger = full.account(purchased=1)
    with _locked(full):
        answer = _convert(full, full.key)
        problem(answer, 429, "rate_limit_exceeded", reason="queue_full", retryable=True)
        assert answer.headers["Retry-After"].isdigit()
        assert int(answer.headers["X-RateLimit-Remaining"]) < int(answer.headers["X-RateLimit-Limit"]) == _LIMIT
        with pytest.raises(httpx.ReadTimeout):
            _convert(full, stranger, _MOMENT)


@pytest.mark.parametrize("path", ["/files/file_0000000000000000000000/convert", "/pdf/merge", "/pdf/delete-pages"])
def test_whatever_takes_a_turn_is_refused(full: Running, path: str) -> None:
    problem(full.ask("POST", path), 429, "rate_limit_exceeded", reason="queue_full")


def test_all_else_is_not(full: Running) -> None:
    assert full.ask("GET", "/account").status_code == 200
    assert full.ask("OPTIONS", "/convert").status_code == 204
    problem(full.ask("GET", "/convert"), 405, "method_not_allowed")


def test_a_refusal_is_noted_like_any_answer(full: Running) -> None:
    with listening() as lines:
        answer = _convert(full, full.key)
        entry = one(lines, answer)
    assert (entry["message"], entry["status"]) == ("POST /api/v1/convert", 429)
    assert (entry["code"], entry["sent"]) == ("rate_limit_exceeded", len(answer.content))
    assert entry["account"].startswith("acct_")


def test_the_body_is_passed_over_and_the_next_request_answered(full: Running) -> None:
    with full.connect() as connection:
        ids = set()
        for _ in range(3):
            connection.sendall(request(full, bytes(MIB)))
            answer = parsed(read_answer(connection))
            problem(answer, 429, "rate_limit_exceeded")
            dressed(answer)
            ids.add(answer.headers["X-Request-Id"])
        assert len(ids) == 3


def test_whoever_asks_again_waits_for_a_moment(full: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    wait = Moderation.wait

    def watched(moderation: Moderation, descriptor: int, ready: Callable[[], bool]) -> None:
        waited.append(descriptor)
        wait(moderation, descriptor, ready)

    monkeypatch.setattr(Moderation, "wait", watched)
    with full.connect() as connection:
        connection.sendall(_OTHER)
        read_answer(connection)
        assert waited == []
        connection.sendall(request(full, bytes(MIB)))
        problem(parsed(read_answer(connection)), 429, "rate_limit_exceeded")
        assert eventually(lambda: len(waited) == 1)
        connection.sendall(_OTHER)
        assert parsed(read_answer(connection)).status_code == 200
        assert len(waited) == 1


def test_whoever_is_put_off_may_leave(full: Running) -> None:
    for _ in range(_CONNECTIONS + 10):  # more than an address may have
        with full.connect("127.0.0.9") as connection:
            connection.sendall(request(full, bytes(MIB)))
            problem(parsed(read_answer(connection)), 429, "rate_limit_exceeded", reason="queue_full")


def test_whoever_comes_after_some_that_were_put_off_for_too_long_is_heard(full: Running) -> None:
    asked = request(full, form(FILE, TARGET))
    for _ in range(2):  # the second time with the descriptors of the first
        with ExitStack() as opened:
            connections = [opened.enter_context(full.connect()) for _ in range(5)]
            for connection in connections:
                for sent, status in ((asked, 429), (_OTHER, 200), (asked, 429)):
                    connection.sendall(sent)
                    assert parsed(read_answer(connection)).status_code == status
            for connection in connections:
                assert connection.recv(100) == b""


def test_whoever_waits_for_a_go_gets_none(full: Running) -> None:
    with full.connect() as connection:
        connection.sendall(f"{full.posting}Expect: 100-continue\r\nContent-Length: 10\r\n\r\n".encode())
        problem(parsed(read_answer(connection)), 429, "rate_limit_exceeded")
        assert connection.recv(100) == b""


def test_whoever_never_stops_sending_is_cut_off(full: Running) -> None:
    with full.connect() as connection:
        connection.sendall(f"{full.posting}Content-Length: {1 << 40}\r\n\r\n".encode())
        problem(parsed(read_answer(connection)), 429, "rate_limit_exceeded")
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(200 * MIB))


def test_whoever_goes_away_leaves_nothing_behind(full: Running) -> None:
    before = len(full.jobs())
    for _ in range(20):
        with full.connect() as connection:
            connection.sendall(request(full, bytes(MIB))[: MIB // 2])
    problem(_convert(full, full.key), 429, "rate_limit_exceeded")
    assert eventually(lambda: len(full.jobs()) <= before)


def test_those_on_their_way_count_like_those_who_wait(full: Running) -> None:
    key = full.account(purchased=1)
    asked = request(full, form(FILE, TARGET)).replace(full.key.encode(), key.encode())
    held = _held(full)
    with ExitStack() as coming:
        connections = [coming.enter_context(full.connect(f"127.0.0.{2 + number % 8}")) for number in range(100)]
        for connection in connections[:15]:
            connection.sendall(asked)
        assert eventually(lambda: _held(full) == held + 15)  # a moment later they stand in line
        with _locked(full):
            for connection in connections[15:]:
                connection.sendall(asked)
            refused, _, _ = select(connections, [], [], 4)  # the others stand at the database for longer
        assert refused
        problem(parsed(read_answer(refused[0])), 429, "rate_limit_exceeded", reason="queue_full")


@contextmanager
def _locked(server: Running) -> Iterator[None]:
    """The database, by somebody else."""
    with closing(sqlite3.connect(server.data_dir / "convertd.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


def _held(server: Running) -> int:
    """The conversions that have come as far as to be paid for."""
    with closing(sqlite3.connect(server.data_dir / "convertd.db")) as database:
        count: int = database.execute("SELECT count(*) FROM hold").fetchone()[0]
        return count


def _one_more_is_refused(server: Running, waiting: ExitStack) -> bool:
    """Whoever is not stays in line, in place of one that the server had no time for."""
    connection = waiting.enter_context(server.connect())
    connection.sendall(request(server, form(FILE, TARGET)))
    connection.settimeout(_MOMENT)
    try:
        return connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
    except TimeoutError:
        return False


def _convert(server: Running, key: str, timeout: float = 20) -> httpx.Response:
    sent = {**FORM, "Authorization": f"Bearer {key}"}
    return plain.post(f"{server.api}/convert", content=form(FILE, TARGET), headers=sent, timeout=timeout)
