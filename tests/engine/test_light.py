"""Jobs without lazy modules start in light processes, and run again in full ones if they use a lazy module."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from io import BytesIO
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from engine import ConversionError, sandbox
from engine.executor import Job, JobInput, JobLimits, LocalExecutor
from engine.executor.forkserver import ForkServer
from engine.executor.local import Pool
from engine.registry import load_registry
from tests.support.executors import misbehaving
from tests.support.samples import SIZE

_asynchronous = pytest.mark.asyncio(loop_scope="module")
_REGISTRY = load_registry()  # before the misbehaving plugin is on the path
_GREEN, _RED = (0, 128, 0), (255, 0, 0)
_CMYK = (0, 255, 255, 0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    """One worker, with the misbehaving plugin."""
    async with misbehaving(1) as made:
        yield made


def _job(folder: Path, *deeds: str, lazy: bool = False) -> Job:
    inputs = []
    for number, deed in enumerate(deeds):
        inputs.append(JobInput(folder / f"{number}.trouble", "trouble"))
        inputs[-1].path.write_bytes(b"TROUBLE " + deed.encode())
    return Job(tuple(inputs), folder / "out.png", "png", tool="trouble-row" if len(inputs) > 1 else None, lazy=lazy)


async def _colours(executor: LocalExecutor, job: Job) -> list[object]:
    """The colours of the result, one per input."""
    done = await executor.run(job)
    assert done.size == job.output.stat().st_size
    with Image.open(BytesIO(job.output.read_bytes())) as image:
        return [image.convert("RGB").getpixel((8 * number, 0)) for number in range(len(job.inputs))]


@_asynchronous
@pytest.mark.parametrize("deed", ["borrow", "borrow_unnoticed", "import", "scribble 1000000"])
@pytest.mark.parametrize("lazy", [False, True])
async def test_an_undeclared_use_of_a_lazy_module_runs_again(
    executor: LocalExecutor, tmp_path: Path, deed: str, lazy: bool
) -> None:
    """The module is available then, and nothing is left of the first attempt."""
    assert await _colours(executor, _job(tmp_path, deed, lazy=lazy)) == [_GREEN]


@_asynchronous
async def test_the_last_of_several_inputs_can_cause_a_second_attempt(executor: LocalExecutor, tmp_path: Path) -> None:
    assert await _colours(executor, _job(tmp_path, "behave", "behave", "borrow")) == [_RED, _RED, _GREEN]


@_asynchronous
async def test_both_attempts_share_a_deadline(executor: LocalExecutor, tmp_path: Path) -> None:
    started = time.monotonic()

    await executor.run(_job(tmp_path, "borrow_slowly 0.4"), JobLimits(seconds=10))
    took = time.monotonic() - started
    with pytest.raises(ConversionError) as raised:
        await executor.run(_job(tmp_path, "borrow_slowly 0.4"), JobLimits(seconds=1))

    assert took > 1.2  # 0.4 s in the light process, 0.8 s in the full one
    assert (raised.value.reason, raised.value.details) == ("timeout", {"max_seconds": 1})
    assert not (tmp_path / "out.png").exists()


@_asynchronous
async def test_a_missing_module_in_a_full_process_is_a_crash(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile process can send any reply."""
    monkeypatch.setattr(executor, "_full", executor._light)

    with pytest.raises(ConversionError) as raised:
        await executor.run(_job(tmp_path, "borrow"))

    assert (raised.value.code, raised.value.reason) == ("processing_failed", "worker_crashed")
    assert not (tmp_path / "out.png").exists()


def _cmyk_jpeg() -> bytes:
    file = BytesIO()
    Image.new("CMYK", SIZE, _CMYK).save(file, "JPEG")
    return file.getvalue()


@_asynchronous
async def test_cmyk_without_a_profile_becomes_rgb(executor: LocalExecutor, tmp_path: Path) -> None:
    source = tmp_path / "in.jpg"
    source.write_bytes(_cmyk_jpeg())
    plan = _REGISTRY.plan([_REGISTRY.formats["jpeg"]], "png")
    light = Job.of(plan, [source], tmp_path / "light.png")
    full = Job((JobInput(source, "jpeg"),), tmp_path / "full.png", "png")

    await executor.run(light)
    await executor.run(full)

    assert (light.lazy, full.lazy) == (False, True)
    assert light.output.read_bytes() == full.output.read_bytes()
    with Image.open(light.output) as image:
        red, green, blue = image.convert("RGB").getpixel((60, 80))  # type: ignore[misc]
    assert red > 200
    assert max(green, blue) < 80


_SEALED = """
import sys
from pathlib import Path
from engine import Options, pipeline, sandbox
from engine.executor import preload
from engine.lazy_import import NotLoaded, seal
from engine.registry import load_registry

registry = load_registry()
preload.preload(full=False)
sandbox.allowed_path_rules(registry.programs)
seal()
"""


def _printed(program: str, *arguments: Path) -> str:
    """The output of the program in a sealed process."""
    command = [sys.executable, "-c", _SEALED + program, *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def test_cmyk_is_detected_before_decoding(tmp_path: Path) -> None:
    """Decoding the truncated picture would fail with another error."""
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(_cmyk_jpeg()[:-200])
    program = """
try:
    pipeline.run(registry.plan([registry.formats["jpeg"]], "png"), [Path(sys.argv[1]).read_bytes()], Options())
except NotLoaded as error:
    print(error)
"""

    assert _printed(program, cut) == "engine.mupdf\n"


def test_sealed_modules_can_be_inspected() -> None:
    """Parts of the standard library iterate over all modules."""
    program = """
import copyreg, inspect, linecache, pickle, traceback, warnings
from types import ModuleType

module = sys.modules["rawpy"]
for found in [found for found in sys.modules.values() if issubclass(type(found), ModuleType)]:
    found.__name__, found.__spec__, found.__dict__, found.__class__, vars(found), repr(found), dir(found)
    hasattr(found, "__file__") and found.__file__
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    warnings.warn("recorded", stacklevel=1)
assert len(caught) == 1
assert inspect.getmodule(Options.__init__) and inspect.getmodule(inspect.currentframe()) is None and inspect.stack()
linecache.checkcache()
assert pickle.loads(pickle.dumps(Options())) == Options()
assert copyreg.dispatch_table and traceback.format_stack()
unknown = lambda: __import__("tabnanny")
for use in (lambda: module.imread, lambda: module.__version__, lambda: hasattr(module, "no_such"), unknown):
    try:
        use()
    except NotLoaded as error:
        print(error)
"""

    assert _printed(program) == "rawpy\n" * 3 + "tabnanny\n"


def test_light_processes_have_not_loaded_lazy_modules() -> None:
    late = {"cairosvg", "imageio", "pikepdf._core", "psd_tools", "pymupdf", "rawpy._rawpy", "tifffile"}

    assert _printed(f"print(sorted({late} & {{*sys.modules}}))") == "[]\n"


@pytest.mark.parametrize(("full", "expected"), [(False, set()), (True, {"pikepdf", "pymupdf", "rawpy"})])
def test_only_full_processes_have_the_libraries(full: bool, expected: set[str]) -> None:
    forkserver = ForkServer(sandbox.ALWAYS, full=full)
    try:
        job = forkserver.fork()
        maps = Path(f"/proc/{job.pid}/maps").read_text()
        job.close(5)
    finally:
        forkserver.close()

    assert "/PIL/" in maps
    assert set(re.findall(r"/(pikepdf|pymupdf|rawpy)\b", maps)) == expected


@pytest.mark.parametrize("weaker", ["_light", "_full"])
async def test_processes_of_both_fork_servers_are_examined(weaker: str) -> None:
    executor = LocalExecutor(1)
    setattr(executor, weaker, Pool(ForkServer(sandbox.ALWAYS, full=weaker == "_full"), 1))
    try:
        report = await executor.examine()
    finally:
        await executor.close()

    assert not report.layers["seccomp"]
    assert not report.checks["no sockets"]


async def test_a_fork_server_that_never_started_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)

    await LocalExecutor(1).close()

    assert (tmp_path / "file").exists()
