"""Hostile files: each has an allowed outcome, affects no other job, and leaves no processes or files."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ConversionError
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.registry import load_registry
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.corpus import UNSOUND, Entry, load_corpus
from tests.support.samples.hostile import hostile_files
from tests.support.samples.hostile_documents import SLOW_PAGES
from tests.support.samples.hostile_outcomes import ELEMENTS, TIMEOUT, Canary, Hostile, Outcome
from tests.support.servers.receiver import Receiver

pytestmark = pytest.mark.asyncio(loop_scope="session")

_REGISTRY = load_registry()
_LIMITS = TaskLimits(seconds=20)
_SHORT = TaskLimits(seconds=1)
_FILES = {hostile.name: hostile for hostile in hostile_files()}


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """A canary URL and a canary file. Asserts afterwards that neither was accessed."""
    file = tmp_path_factory.mktemp("canary") / "secret.svg"
    text = '<svg xmlns="http://www.w3.org/2000/svg"><rect id="a" width="9" height="9" fill="#c0ffee"/></svg>'
    file.write_text(text)
    with Receiver() as server:
        yield Canary(f"{server.url}/a.svg", file)
        assert not server.connections
    assert file.read_text() == text


async def _outcome(
    executor: LocalExecutor, folder: Path, data: bytes, target: str, limits: TaskLimits = _LIMITS
) -> tuple[Outcome, bytes]:
    """The outcome and the result of a conversion. Asserts that the job's folder has no other file."""
    source, result = folder / "input", folder / "job" / "result"
    result.parent.mkdir(parents=True)
    source.write_bytes(data)
    failure = None
    try:
        found = _REGISTRY.identify(source)
        await run_files(executor, FileJob(Task.of(_REGISTRY.plan([found], target)), [source], result), limits)
    except ConversionError as error:
        failure = error
    outcome = (failure.code, failure.reason or "") if failure else ("done", "")
    if failure:
        assert failure.code != "file_too_large" or any(name.startswith("max_") for name in failure.details)
        assert str(folder) not in f"{failure} {failure.details}"
    left = set(result.parent.iterdir())
    # A job killed at its deadline cannot delete its files: they are deleted with its folder.
    assert left <= {result} or outcome[1] in ("timeout", "out_of_memory", "worker_crashed")
    return outcome, result.read_bytes() if outcome[0] == "done" else b""


@pytest.mark.parametrize("name", [name for name, hostile in _FILES.items() if not hostile.long])
async def test_made_file(executor: LocalExecutor, canary: Canary, tmp_path: Path, name: str) -> None:
    hostile = _FILES[name]

    outcome, result = await _outcome(executor, tmp_path, hostile.make(canary), hostile.target)

    assert outcome in hostile.allowed
    assert b"alert(1)" not in result
    assert b"PK\x05\x06" not in result


@pytest.mark.long
@pytest.mark.parametrize("name", [*SLOW_PAGES])
async def test_a_page_that_takes_too_long_is_refused_before_the_deadline(
    executor: LocalExecutor, canary: Canary, tmp_path: Path, name: str
) -> None:
    outcome, _ = await _outcome(executor, tmp_path, SLOW_PAGES[name], "pdf", TaskLimits())

    assert outcome == ELEMENTS


async def test_files_that_run_to_their_deadline(executor: LocalExecutor, canary: Canary, tmp_path: Path) -> None:
    """Four at a time: a job that hangs does not delay the others."""

    async def one(hostile: Hostile) -> None:
        data = await asyncio.to_thread(hostile.make, canary)
        limits = _SHORT if TIMEOUT in hostile.allowed else _LIMITS
        outcome, _ = await _outcome(executor, tmp_path / hostile.name, data, hostile.target, limits)
        assert outcome in hostile.allowed, hostile.name

    await asyncio.gather(*(one(hostile) for hostile in _FILES.values() if hostile.long))


async def test_nothing_is_left(executor: LocalExecutor, canary: Canary, tmp_path: Path) -> None:
    """Neither refused nor killed jobs leave processes or open files."""
    names = ("png_claim", "eps_loop", "svg_uses", "eps_loop")
    await asyncio.sleep(1)  # workers that other tests killed are replaced
    before = _descriptors()
    for turn, name in enumerate(names):
        await _outcome(executor, tmp_path / str(turn), _FILES[name].make(canary), "jpeg", _SHORT)
    await asyncio.sleep(1)

    assert _descriptors() <= before
    assert not _running(tmp_path)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _running(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "unsound" not in metafunc.fixturenames:
        return
    cases = []
    for turn, entry in enumerate(entry for entry in load_corpus() if entry.category in UNSOUND):
        try:
            targets = [fmt.name for fmt in _REGISTRY.targets(_REGISTRY.identify(entry.path))]
        except ConversionError:
            continue  # refused before the job starts; see test_bad_input
        whole = metafunc.config.getoption("long")
        cases += [(entry, target) for target in (targets if whole else [targets[turn % len(targets)]])]
    metafunc.parametrize("unsound", cases, ids=[f"{entry.name}-{target}" for entry, target in cases])


_EXPECTED = {"file_too_large", "processing_failed", "invalid_file_type", "done"}
_FAULTS = {"engine_error", "worker_crashed"}


async def test_real_file(executor: LocalExecutor, tmp_path: Path, unsound: tuple[Entry, str]) -> None:
    entry, target = unsound

    outcome, _ = await _outcome(executor, tmp_path, entry.path.read_bytes(), target)

    assert outcome[0] in _EXPECTED
    assert outcome[1] not in _FAULTS


async def test_real_files_in_parallel(executor: LocalExecutor, tmp_path: Path) -> None:
    """The outcome of a file does not depend on concurrent jobs."""
    entries = [entry for entry in load_corpus() if entry.category in UNSOUND][::3]

    async def one(turn: str, data: bytes) -> Outcome:
        return (await _outcome(executor, tmp_path / turn, data, "png"))[0]

    alone = [await one(f"alone-{n}", entry.path.read_bytes()) for n, entry in enumerate(entries)]
    together = await asyncio.gather(*(one(f"with-{n}", entry.path.read_bytes()) for n, entry in enumerate(entries)))

    assert alone == together
