"""Work files, limits on memory, disk space and open files, and full stores: no charge, and no files that are left."""

import asyncio
import hashlib
import logging
import os
import resource
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path

import httpx
import pytest

from config.logs import OutageFilter, TextFormatter
from engine.errors import StepFailed
from storage.tables import ledger_audit
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually, open_work_files
from web.api.errors import NoSpace, RateLimited, error_headers, public_error
from web.services.files.work_files import MEMORY_LIMIT, WorkFile, WorkFiles
from web.services.operation.processes import ProcessGroup, SharedUsage

MIB = 1 << 20
_JSON = {"Accept": "application/json"}


@pytest.fixture
def work_files(tmp_path: Path) -> Iterator[WorkFiles]:
    """The folder `jobs` has space for 20 MiB. Every test has to close its files."""
    made = WorkFiles(tmp_path / "jobs", space=20 * MIB)
    made.prepare()
    yield made
    assert (made.used_memory, dict(made.used_space), dict(made.open_files)) == (0, {}, {})
    assert list((tmp_path / "jobs").iterdir()) == []
    assert open_work_files(tmp_path) == []


async def written(
    work_files: WorkFiles, size: int, account: str = "account", give_up: Callable[[], bool] = lambda: False
) -> WorkFile:
    file = work_files.create(account, give_up)
    try:
        for start in range(0, size, 65_536):
            await file.write(os.urandom(min(65_536, size - start)))
        await file.flush()
    except BaseException:
        file.close()
        raise
    return file


@pytest.mark.parametrize("size", [0, 1, MEMORY_LIMIT, MEMORY_LIMIT + 1, 3 * MIB + 7])
async def test_content(work_files: WorkFiles, size: int) -> None:
    with await written(work_files, size) as file:
        content = file.read()
        assert (file.size, len(content), file.in_memory) == (size, size, size <= MEMORY_LIMIT)
        assert b"".join([block async for block in file.blocks()]) == content
        assert await file.digest() == hashlib.sha256(content).hexdigest()


def test_what_an_earlier_server_left_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "jobs" / "job-1").mkdir(parents=True)
    (tmp_path / "jobs" / "job-1" / "input.jpg").write_bytes(b"x")
    WorkFiles(tmp_path / "jobs").prepare()
    assert list((tmp_path / "jobs").iterdir()) == []
    assert (tmp_path / "jobs").stat().st_mode & 0o777 == 0o700


async def test_a_large_result_is_moved_to_the_disk(work_files: WorkFiles, tmp_path: Path) -> None:
    content = os.urandom(3 * MIB)
    with work_files.create("account") as file:
        os.write(file.descriptor, content)
        kept = os.dup(file.descriptor)
        await file.seal(len(content))
        assert (file.in_memory, file.read() == content) == (False, True)
        assert os.fstat(kept).st_size == 0
        os.pwrite(kept, b"x", 0)
        assert file.read() == content
        os.close(kept)
        assert all(name.startswith(f"{tmp_path}/jobs/") for name in open_work_files(tmp_path))


async def test_a_small_result_stays_in_memory_and_cannot_be_changed(work_files: WorkFiles) -> None:
    with work_files.create("account") as file:
        os.write(file.descriptor, bytes(MEMORY_LIMIT))
        kept = os.dup(file.descriptor)
        await file.seal(MEMORY_LIMIT)
        os.pwrite(kept, b"x", 0)
        os.close(kept)
        assert file.in_memory
        assert file.read() == bytes(MEMORY_LIMIT)


@pytest.mark.parametrize("size", [10, 3 * MIB])
async def test_what_is_written_after_a_result_is_ignored_and_a_shorter_one_refused(
    work_files: WorkFiles, size: int
) -> None:
    with work_files.create("account") as file:
        os.write(file.descriptor, bytes(size + 1))
        await file.seal(size)
        assert file.read() == bytes(size)
    with work_files.create("account") as file:
        os.write(file.descriptor, bytes(size))
        with pytest.raises(StepFailed):
            await file.seal(size + 1)


async def test_processes_of_a_server_share_memory_and_space(tmp_path: Path) -> None:
    """A process that replaces another one finds what that one used free."""
    group = ProcessGroup(2)
    one, other = (_of_process(tmp_path, group, number) for number in (0, 1))
    with await written(one, 2 * MIB, "a"), await written(one, 4 * MIB, "b"), await written(one, MIB // 2, "c"):
        with await written(other, MIB // 2) as large:
            assert not large.in_memory
        with pytest.raises(RateLimited):
            await written(other, 2 * MIB + 1)
        (await written(other, 2 * MIB)).close()
        _of_process(tmp_path, group, 0)
        (await written(other, 5 * MIB)).close()


def _of_process(folder: Path, group: ProcessGroup, number: int) -> WorkFiles:
    """The work files of a process of a server, whose processes have 10 MiB of space and 768 KiB of memory."""
    process = group.process(number, parent=-1, ready=None)
    made = WorkFiles(process.folder(folder) / "jobs", space=10 * MIB, memory=3 * MIB // 4, usage=process.files)
    made.prepare()
    return made


def test_processes_of_a_server_have_one_code_and_folders_of_their_own(tmp_path: Path) -> None:
    group = ProcessGroup(2)
    one, other = (group.process(number, parent=-1, ready=None) for number in (0, 1))
    assert one.checkout_code == other.checkout_code != ProcessGroup(2).process(0, parent=-1, ready=None).checkout_code
    assert (one.folder(tmp_path), other.folder(tmp_path)) == (tmp_path, tmp_path / "process-2")


def test_connections_are_left_to_processes_with_fewer() -> None:
    connections = SharedUsage(3)
    one, other = connections.of(0), connections.of(1)
    assert not one.is_above_mean
    one.publish(1)
    assert (one.is_above_mean, other.is_above_mean) == (True, False)
    other.publish(2)
    assert (one.is_above_mean, other.is_above_mean) == (False, True)


async def test_the_share_of_an_account_shrinks_as_the_space_does(work_files: WorkFiles) -> None:
    """An account may use as much as it leaves to all others."""
    with await written(work_files, 10 * MIB, "a"):
        with pytest.raises(RateLimited) as refused:
            await written(work_files, 2 * MIB, "a")
        assert refused.value.reason == "queue_full"
        with await written(work_files, 5 * MIB, "b"):
            with pytest.raises(RateLimited):
                await written(work_files, 3 * MIB, "c")
            with await written(work_files, 2 * MIB, "c"), await written(work_files, MEMORY_LIMIT, "c"):
                pass
    with await written(work_files, 10 * MIB, "c"):
        pass


class TestSlowClients:
    """Files that are given up while less than a quarter of the space is free."""

    @pytest.fixture
    def slow(self) -> list[str]:
        """The names of the clients that are slow."""
        return []

    @pytest.fixture
    def given_up(self) -> list[str]:
        """The names of the clients whose files were given up."""
        return []

    @pytest.fixture
    async def files(self, work_files: WorkFiles, slow: list[str], given_up: list[str]) -> AsyncIterator[list[WorkFile]]:
        """Files of 6 and 4 MiB of the account a, and of 3 and 1 MiB of b, of which 1 MiB is in memory."""

        def give_up(name: str) -> bool:
            if name in slow:
                given_up.append(name)
            return name in slow

        sizes = {"a6": 6, "a4": 4, "b3": 3, "b1": 1}
        made = [await written(work_files, size * MIB, name[0], partial(give_up, name)) for name, size in sizes.items()]
        yield made
        for file in made:
            file.close()

    @pytest.mark.parametrize(
        ("are_slow", "expected"),
        [
            ((), []),
            (("a6", "a4", "b3"), ["a6"]),  # the largest file of the account with most
            (("a4", "b3"), ["a4"]),
            (("b3",), []),  # the account uses less than an equal share
        ],
    )
    async def test_files_of_accounts_above_their_share(
        self,
        work_files: WorkFiles,
        files: list[WorkFile],
        slow: list[str],
        given_up: list[str],
        are_slow: tuple[str, ...],
        expected: list[str],
    ) -> None:
        slow += are_slow
        with await written(work_files, 2 * MIB, "c"):  # leaves a quarter
            assert given_up == []
            with await written(work_files, 2 * MIB, "d"):
                assert given_up == expected

    async def test_one_file_at_a_time(
        self, work_files: WorkFiles, files: list[WorkFile], slow: list[str], given_up: list[str]
    ) -> None:
        slow += ["a6", "a4"]
        with await written(work_files, 2 * MIB, "c"), await written(work_files, 2 * MIB, "d"):
            assert given_up == ["a6"]
            with pytest.raises(RateLimited):
                await written(work_files, 2 * MIB, "e")
            assert given_up == ["a6"]  # its space is not free yet
            files[0].close()
            with pytest.raises(RateLimited):
                await written(work_files, 5 * MIB, "e")
            assert given_up == ["a6", "a4"]


async def test_beyond_a_limit_of_memory_small_files_are_on_the_disk(tmp_path: Path) -> None:
    work_files = WorkFiles(tmp_path / "jobs", memory=MIB)
    work_files.prepare()
    with await written(work_files, MIB // 2) as first, await written(work_files, MIB // 2) as second:
        with await written(work_files, 1) as third:
            assert [file.in_memory for file in (first, second, third)] == [True, True, False]
        second.close()
        with await written(work_files, 1) as fourth:
            assert fourth.in_memory


def test_an_account_may_open_as_many_files_as_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _limit: (40, 40))
    work_files = WorkFiles(tmp_path / "jobs")
    opened = []
    for account, most in (("a", 10), ("b", 5), ("c", 2)):
        opened += [work_files.create(account) for _ in range(most)]
        with pytest.raises(RateLimited):
            work_files.create(account)
    for file in opened:
        file.close()
    work_files.create("c").close()


async def test_a_reserve_of_the_disk_stays_free(work_files: WorkFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("web.services.files.work_files.DISK_RESERVE", 1 << 60)
    monkeypatch.setattr("web.services.files.work_files.DISK_RESERVE_SHARE", 1)
    with pytest.raises(NoSpace):
        await written(work_files, 2 * MIB)


async def test_a_full_disk_is_for_the_client_to_wait_for(work_files: WorkFiles) -> None:
    with await written(work_files, 2 * MIB) as file:
        full = os.open("/dev/full", os.O_WRONLY)
        os.dup2(full, file.descriptor, inheritable=False)
        os.close(full)
        with pytest.raises(OSError, match="No space") as failed:
            await file.write(bytes(MIB))
    shown = public_error(failed.value)
    assert (shown.code, shown.reason, shown.retryable) == ("not_ready", "disk_full", True)
    assert int(error_headers(shown)["Retry-After"]) > 0


async def test_a_file_closed_while_it_is_written(work_files: WorkFiles) -> None:
    """The threads that write have descriptors of their own."""
    for pause in range(20):
        writing = asyncio.create_task(written(work_files, 8 * MIB))
        await asyncio.sleep(pause / 2000)
        writing.cancel()
        (outcome,) = await asyncio.gather(writing, return_exceptions=True)
        if isinstance(outcome, WorkFile):
            outcome.close()
    await asyncio.get_running_loop().shutdown_default_executor()


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def _refused(server: Running, response: httpx.Response) -> None:
    problem(response, 503, "not_ready", reason="disk_full", retryable=True)
    assert int(response.headers["Retry-After"]) > 0
    assert eventually(lambda: not server.work_files())


@pytest.fixture
def lines() -> Iterator[Callable[[], list[str]]]:
    """The lines of the log without those about payments: warnings and errors."""
    stream, root = StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    handler.addFilter(OutageFilter())
    handler.setFormatter(TextFormatter())
    root.addHandler(handler)
    yield lambda: [line for line in stream.getvalue().splitlines() if "convertd.payments" not in line]
    root.removeHandler(handler)


def _balance(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["meta"]["credits_remaining"])


def _sound(server: Running) -> bool:
    return not server.database.run_blocking(ledger_audit.check)


def test_unstorable_files(servers: Servers, small_disk: Path, data_dir: Path, lines: Callable[[], list[str]]) -> None:
    data_dir.mkdir()
    (data_dir / "blobs").symlink_to(small_disk)
    with servers.running(data_dir) as server:
        key, filler = server.account(5), _fill(small_disk)
        form = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}, "headers": _JSON}

        _refused(server, server.request("POST", "/convert", key, **form))
        for _ in range(3):
            _refused(server, server.request("POST", "/files/upload", key, files=form["files"]))

        assert [line.partition(" request_id=")[0][20:] for line in lines()] == [
            "ERROR convertd.web request failed: No space left on device"
        ]
        assert list(small_disk.iterdir()) == [filler]
        assert _balance(server, key) == 5
        filler.unlink()
        assert server.request("POST", "/convert", key, **form).status_code == 200
        assert _balance(server, key) == 4
        assert _sound(server)


def test_unwritable_charges(servers: Servers, small_disk: Path, data_dir: Path, lines: Callable[[], list[str]]) -> None:
    with servers.running(data_dir, database_url=f"sqlite:///{small_disk / 'convertd.db'}") as server:
        key, filler = server.account(5), _fill(small_disk)
        form = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}, "headers": _JSON}

        for _ in range(3):
            _refused(server, server.request("POST", "/convert", key, **form))

        assert len(lines()) == 1
        assert "The disk of the database is full." in lines()[0]
        filler.unlink()
        assert _balance(server, key) == 5
        assert not list((data_dir / "blobs").iterdir())
        assert server.request("POST", "/convert", key, **form).status_code == 200
        assert _balance(server, key) == 4
        assert _sound(server)


@pytest.mark.long
def test_a_database_that_another_keeps_locked(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        key = server.account(5)
        assert server.request("GET", "/account", key).status_code == 200
        other = sqlite3.connect(data_dir / "convertd.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")

        response = server.request(
            "POST", "/convert", key, files={"file": ("a.png", sample("png"))}, data={"output_format": "webp"}
        )

        other.execute("ROLLBACK")
        other.close()
        problem(response, 503, "not_ready", retryable=True)
        assert int(response.headers["Retry-After"]) > 0
        assert _balance(server, key) == 5
        assert _sound(server)
        assert eventually(lambda: not server.work_files())
