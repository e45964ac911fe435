"""Identification by a process: what takes long, fails or ends the process affects no other file."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

import pytest
import pytest_asyncio

from engine import FileFormat, UnknownFormat
from engine.errors import ExecutorUnavailable
from engine.executor import detector
from engine.executor.detector import Detector
from engine.registry import Registry, load_registry
from tests.support.executors.isolated import ObservedExecutor, idle_workers
from tests.support.growth import limited_to
from tests.support.samples.generated import sample

pytestmark = pytest.mark.asyncio(loop_scope="module")

_PLUGIN = """
import ctypes, time
from engine import RASTER, FileFormat, Raster, Signature, conversion

def loop(content):
    while True: pass

def wait(content): time.sleep(60)
def fail(content): raise ValueError("no")
def deceive(content): return "high"
def crash(content): ctypes.string_at(0)

def declare(sniff):
    name = sniff.__name__
    fmt = FileFormat(name, media_type="x/x", extensions=(name,), sniff=Signature((0, name.encode()), then=sniff))

    @conversion(fmt, RASTER)
    def decode(data: bytes) -> Raster: ...
    return decode

a, b, c, d, e = map(declare, (loop, wait, fail, deceive, crash))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ObservedExecutor]:
    """Its processes have a plugin of another package, whose detection misbehaves."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "hinderance.py").write_text(_PLUGIN)
    package = folder / "hinderance-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: hinderance\nVersion: 1.0\n")
    (package / "entry_points.txt").write_text("[convertd.plugins]\nhinderance = hinderance\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        load_registry.cache_clear()  # the fork server loads the plugins that this process has tried
        made = ObservedExecutor(1)
        await made.start()
        try:
            yield made
        finally:
            await made.close()
    load_registry.cache_clear()
    load_registry()  # A later test whose own plugins are on the path would otherwise fill the cache with them.


@pytest.fixture
def tested(executor: ObservedExecutor) -> Detector:
    return Detector(Registry(load_registry().plugins), executor.pool)


@contextmanager
def _opened(content: bytes) -> Iterator[int]:
    file = os.memfd_create("test")
    try:
        os.write(file, content)
        yield file
    finally:
        os.close(file)


async def _identified(tested: Detector, content: bytes, filename: str = "") -> FileFormat:
    with _opened(content) as file:
        with limited_to(20):
            compared = tested.compare(file, filename)
        return compared or await tested.read(file, filename)


@pytest.mark.parametrize("deed", ["loop", "wait", "fail", "deceive", "crash"])
async def test_a_detection_that_fails_three_times_is_switched_off(
    tested: Detector, deed: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(detector, "SECONDS", 0.3 if deed == "wait" else 10.0)
    registry, failure = tested.registry, f"plugin hinderance: the detection of {deed} "
    for count in range(1, 4):
        assert registry.switched_off == frozenset()
        with pytest.raises(ExecutorUnavailable if deed == "wait" else UnknownFormat):
            await _identified(tested, deed.encode(), "a.bin")
        assert caplog.text.count(failure) == count
        assert (await _identified(tested, sample("tiff"))).name == "tiff"

    assert registry.switched_off == {deed}
    assert [plugin.name for plugin in registry.plugins if plugin.error] == ["hinderance"]
    assert ("more than 0.1 s of CPU time" in caplog.text) == (deed == "loop")
    with _opened(deed.encode()) as file, pytest.raises(UnknownFormat):
        tested.compare(file, "a.bin")
    assert (await _identified(tested, deed.encode(), "a.csv")).name == "csv"
    assert caplog.text.count(failure) == 3


async def test_a_process_reads_many_files_and_is_of_no_account(tested: Detector, executor: ObservedExecutor) -> None:
    await _identified(tested, sample("tiff"))
    used = idle_workers(executor, "")

    assert len(used) == 1
    for _ in range(3):
        assert (await _identified(tested, b"a,b", "a.csv")).name == "csv"
        assert idle_workers(executor, "") == used


async def test_files_at_once_are_read_by_few_processes(tested: Detector, executor: ObservedExecutor) -> None:
    found = await asyncio.gather(*(_identified(tested, sample("tiff")) for _ in range(9)))

    assert {one.name for one in found} == {"tiff"}
    assert len(idle_workers(executor, "")) <= 2


@pytest.mark.parametrize("name", ["png", "jpeg", "webp", "gif", "pdf", "bmp", "psd", "avif", "heic"])
async def test_common_files_need_no_process(tested: Detector, name: str) -> None:
    with _opened(sample(name)) as file:
        found = tested.compare(file, "photo")

    assert found is not None
    assert found.name == name


async def test_an_empty_file_needs_no_process(tested: Detector) -> None:
    with pytest.raises(UnknownFormat) as raised:
        await _identified(tested, b"", "a.txt")

    assert raised.value.reason == "empty_file"
