"""Slow uploads and endless jobs of some accounts do not affect the conversions of others."""

import select
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.errors import ConversionError
from engine.executor import Executor, Task, TaskLimits, TaskResult
from tests.support.executors.fake import EndlessExecutor, SwitchedExecutor
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import FILE, FORM, TARGET, conversion_request, form, image, part
from tests.support.samples.hostile import eps
from tests.support.servers.in_process import Running, Servers, eventually
from web.services.admission import tenant_records
from web.services.admission.admission import SHORT_DEADLINE
from web.services.admission.task_costs import START_OF_PROGRAM
from web.services.admission.tenant_records import PROVING_JOBS

MIB = 1 << 20
_UPLOADS = 16
_DEADLINE = 0.5  # seconds of CPU time
_ATTACKERS = 3


class ShortDeadlines:
    """Runs jobs with a short deadline, once `accounts` are known only theirs, and counts them by account."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self.running: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.overruns: Counter[str] = Counter()
        self.accounts: set[str] = set()  # accounts that share one slot
        self.most_together = 0  # running jobs of these accounts at the same time
        self.limits: dict[str, float] = {}  # the latest limit on CPU seconds by account

    async def run(
        self, task: Task, account: str, inputs: Sequence[int], output: int, limits: TaskLimits = TaskLimits()
    ) -> TaskResult:
        self.running[account] += 1
        self.limits[account] = limits.cpu
        self.most_together = max(self.most_together, sum(self.running[name] for name in self.accounts))
        try:
            if not self.accounts or account in self.accounts:  # others have time on a busy machine
                limits = replace(limits, cpu=_DEADLINE)
            return await self._executor.run(task, account, inputs, output, limits)
        except ConversionError as error:
            self.overruns[account] += (error.seconds or 0) > tenant_records.SHORT_JOB
            raise
        finally:
            self.running[account] -= 1
            self.ended[account] += 1

    async def ready(self) -> bool:
        return True


@pytest.mark.parametrize(("purchased", "size"), [(1, 100 * MIB), (0, 10 * MIB)], ids=["paid", "free"])
@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
def test_slow_uploads_take_no_place(server: Running, purchased: int, size: int, *, chunked: bool) -> None:
    slow, other = server.account(purchased=purchased), server.account()
    with ExitStack() as stack:
        uploads = [stack.enter_context(_upload(server, slow, size, chunked=chunked)) for _ in range(_UPLOADS)]
        assert eventually(lambda: len(server.work_files()) >= _UPLOADS)
        for _ in range(5):
            for upload in uploads:
                upload.sendall(_chunk(bytes(100)) if chunked else bytes(100))
            for key in (other, slow):
                response = _convert(server, key, image("PNG", (8, 8)))
                assert response.status_code == 200, response.text
        refused, _, _ = select.select(uploads, [], [], 0)
        assert not refused


@pytest.mark.long
def test_endless_jobs_share_one_slot(servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenant_records, "SHORT_JOB", _DEADLINE / 2)
    executor = ShortDeadlines(servers.executor)
    settings: dict[str, Any] = {"workers": 2, "rate_limit_free": 10_000}
    with servers.running(tmp_path, executor=executor, short_deadline=SHORT_DEADLINE, **settings) as server:
        attackers = [server.account() for _ in range(_ATTACKERS)]
        with _endless_jobs(server, attackers):
            assert eventually(lambda: sum(count >= 4 for count in executor.overruns.values()) == _ATTACKERS, 60)
            executor.accounts, executor.most_together = set(executor.overruns), 0
            before = executor.ended.total()
            responses = [_convert(server, server.key, image("PNG", (8, 8))) for _ in range(10)]
            assert [response.status_code for response in responses] == [200] * 10
            assert eventually(lambda: executor.ended.total() >= before + len(responses) + _ATTACKERS, 60)
    assert executor.most_together == 1
    limits = [executor.limits[account] for account in executor.accounts]
    assert limits == pytest.approx([SHORT_DEADLINE + START_OF_PROGRAM] * _ATTACKERS, abs=0.1)
    assert max(executor.limits.values()) == TaskLimits().cpu


@pytest.mark.parametrize(("dry_run", "slots"), [("false", 2), ("true", 1)], ids=["charged", "free"])
def test_charged_conversions_open_the_kept_slot(servers: Servers, tmp_path: Path, dry_run: str, slots: int) -> None:
    """The slot is kept because of another account with a record of short conversions."""
    executor, endless = SwitchedExecutor(servers.executor), EndlessExecutor()
    settings: dict[str, Any] = {"workers": 2, "rate_limit_free": 10_000}
    with servers.running(tmp_path, executor=executor, **settings) as server:
        account = server.account()
        for _ in range(PROVING_JOBS):
            assert server.convert(image("PNG", (8, 8)), "jpeg").status_code == 200
            auth = {"Authorization": f"Bearer {account}"}
            assert server.convert(image("PNG", (8, 8)), "jpeg", headers=auth, dry_run=dry_run).status_code == 200
        executor.executor = endless
        with ExitStack() as stack:
            head = server.posting.replace(server.key, account)
            for _ in range(2):
                connection = stack.enter_context(server.connect())
                connection.sendall(conversion_request(head, form(FILE, TARGET)))
            assert eventually(lambda: endless.running == slots)
            for _ in range(5):
                assert server.request("GET", "/account").status_code == 200
            assert endless.most_running == slots


@contextmanager
def _endless_jobs(server: Running, keys: Sequence[str]) -> Iterator[None]:
    """Each key sends two endless jobs at a time during the block."""
    ended = threading.Event()
    endless = eps("{} loop")

    def send(key: str) -> None:
        while not ended.is_set():
            problem(_convert(server, key, endless), 500, "processing_failed", reason="timeout")

    with ThreadPoolExecutor(2 * len(keys)) as pool:
        threads = [pool.submit(send, key) for key in (*keys, *keys)]
        try:
            yield
        finally:
            ended.set()
    for thread in threads:
        thread.result()


def _convert(server: Running, key: str, content: bytes) -> httpx.Response:
    body = form(part(content, 'name="file"; filename="a"'), TARGET.replace(b"png", b"jpeg"))
    return http.post(f"{server.api}/convert", content=body, headers={**FORM, "Authorization": f"Bearer {key}"})


def _upload(server: Running, key: str, size: int, *, chunked: bool) -> socket.socket:
    """A request whose body has begun to arrive: enough of it that its file is on the disk."""
    begin = form(part(bytes(2 * MIB), 'name="file"; filename="a"'), TARGET)[: 2 * MIB]
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    head = f"{server.posting.replace(server.key, key)}Content-Type: {FORM['Content-Type']}\r\n{length}\r\n\r\n"
    connection = server.connect()
    connection.sendall(head.encode() + (_chunk(begin) if chunked else begin))
    return connection


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
