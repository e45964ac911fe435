"""A server with a full queue: refused requests, and their bodies."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TypeAlias

import httpx
import pytest

from tests.support.executors.fake import EndlessExecutor
from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.requests.log_lines import captured_log, entry_of
from tests.support.samples.forms import FILE, FORM, TARGET, conversion_request, form
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from web.services.admission import task_costs, tenant_records
from web.services.admission.admission import MAX_EXPECTED_WAIT

MIB = 1 << 20
_MOST = 51  # conversions of one worker: one running, and 50 queued
_LIMIT = 10_000  # requests a minute
_MOMENT = 1.0  # seconds
_CONNECTIONS = 64  # one address may have no more
Crowded: TypeAlias = tuple[Running, ExitStack, EndlessExecutor]


@pytest.fixture(scope="module", autouse=True)
def small_queue() -> Iterator[None]:
    """Before a job has ended, servers expect each to take so long that they queue 50."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for module, name in ((task_costs, "START"), (tenant_records, "FIRST_MEAN")):
            monkeypatch.setattr(module, name, MAX_EXPECTED_WAIT / (_MOST - 1))
        yield


@pytest.fixture(scope="module")
def crowded(servers: Servers, tmp_path_factory: pytest.TempPathFactory, small_queue: None) -> Iterator[Crowded]:
    """A server, and the connections of its queued requests."""
    data, executor = tmp_path_factory.mktemp("data"), EndlessExecutor()
    with servers.running(data, executor=executor, workers=1, rate_limit_paid=_LIMIT) as server, ExitStack() as waiting:
        yield server, waiting, executor


@pytest.fixture
def full(crowded: Crowded) -> Running:
    """A server with a full queue. It is filled again when queued requests have waited for too long."""
    server, waiting, _ = crowded
    if not _one_more_is_refused(server, waiting):
        _empty(server, waiting)
        _fill(*crowded)
    return server


def test_a_conversion_is_refused(full: Running) -> None:
    response = _convert(full)
    problem(response, 429, "rate_limit_exceeded", reason="queue_full", retryable=True)
    assert response.headers["Retry-After"].isdigit()
    assert int(response.headers["X-RateLimit-Remaining"]) < int(response.headers["X-RateLimit-Limit"]) == _LIMIT


@pytest.mark.parametrize("path", ["/files/file_0000000000000000000000/convert", "/pdf/merge", "/pdf/delete-pages"])
def test_queued_operations_are_refused(full: Running, path: str) -> None:
    problem(full.request("POST", path), 429, "rate_limit_exceeded", reason="queue_full")


def test_other_requests_are_not_refused(full: Running) -> None:
    assert full.request("GET", "/account").status_code == 200
    assert full.request("OPTIONS", "/convert").status_code == 204
    problem(full.request("GET", "/convert"), 405, "method_not_allowed")


def test_a_refusal_is_logged_and_counted(full: Running) -> None:
    with captured_log() as lines:
        response = _convert(full)
        entry = entry_of(lines, response)
    assert (entry["message"], entry["status"]) == ("POST /api/v1/convert", 429)
    assert (entry["code"], entry["sent"]) == ("rate_limit_exceeded", len(response.content))
    assert entry["account"].startswith("acct_")


def test_the_body_is_discarded_and_the_next_request_is_processed(full: Running) -> None:
    with full.connect() as connection:
        ids = set()
        for _ in range(3):
            connection.sendall(conversion_request(full.posting, bytes(MIB)))
            response = parsed(read_response(connection))
            problem(response, 429, "rate_limit_exceeded")
            dressed(response)
            ids.add(response.headers["X-Request-Id"])
        assert len(ids) == 3


def test_refused_clients_may_close_their_connections(full: Running) -> None:
    for _ in range(_CONNECTIONS + 10):  # more than one address may open
        with full.connect("127.0.0.9") as connection:
            connection.sendall(conversion_request(full.posting, bytes(MIB)))
            problem(parsed(read_response(connection)), 429, "rate_limit_exceeded", reason="queue_full")


@pytest.mark.parametrize("head", ["Expect: 100-continue\r\nContent-Length: 10", f"Content-Length: {1 << 40}"])
def test_refused_clients_get_no_100_continue_and_endless_bodies_are_cut_off(full: Running, head: str) -> None:
    with full.connect() as connection:
        connection.sendall(f"{full.posting}{head}\r\n\r\n".encode())
        problem(parsed(read_response(connection)), 429, "rate_limit_exceeded")
        if "Expect" in head:
            assert connection.recv(100) == b""
        else:
            with pytest.raises(ConnectionError):
                connection.sendall(bytes(200 * MIB))


def test_a_disconnect_during_a_refusal_leaves_nothing_behind(full: Running) -> None:
    before = len(full.work_files())
    for _ in range(20):
        with full.connect("127.0.0.7") as connection:
            connection.sendall(conversion_request(full.posting, bytes(MIB))[: MIB // 2])
    problem(_convert(full), 429, "rate_limit_exceeded")
    assert eventually(lambda: len(full.work_files()) <= before)


def test_requests_count_once_their_bodies_have_arrived(crowded: Crowded) -> None:
    server, waiting, _ = crowded
    _empty(server, waiting)
    request_bytes = conversion_request(server.posting, form(FILE, TARGET))
    with ExitStack() as connections:
        arriving = [connections.enter_context(server.connect("127.0.0.8")) for _ in range(_MOST)]
        for connection in arriving:
            connection.sendall(request_bytes[:-10])
        assert eventually(lambda: len(server.work_files()) == _MOST)
        _fill(*crowded)
        arriving[0].sendall(request_bytes[-10:])
        problem(parsed(read_response(arriving[0])), 429, "rate_limit_exceeded", reason="queue_full")


def _empty(server: Running, waiting: ExitStack) -> None:
    waiting.close()
    assert eventually(lambda: not server.work_files())


def _fill(server: Running, waiting: ExitStack, executor: EndlessExecutor) -> None:
    """Sends as many conversions as the server accepts. They wait until the stack closes, once the first one runs."""
    for _ in range(_MOST):
        waiting.enter_context(server.connect()).sendall(conversion_request(server.posting, form(FILE, TARGET)))
        assert eventually(lambda: executor.running == 1)
    assert eventually(lambda: _one_more_is_refused(server, waiting), 60)


def _one_more_is_refused(server: Running, waiting: ExitStack) -> bool:
    """Requests that are not refused stay queued."""
    connection = waiting.enter_context(server.connect())
    connection.sendall(conversion_request(server.posting, form(FILE, TARGET)))
    connection.settimeout(_MOMENT)
    try:
        return connection.recv(65_536).startswith(b"HTTP/1.1 429 ")
    except TimeoutError:
        return False


def _convert(server: Running) -> httpx.Response:
    sent = {**FORM, "Authorization": f"Bearer {server.key}"}
    return http.post(f"{server.api}/convert", content=form(FILE, TARGET), headers=sent, timeout=20)
