"""The worker process of a `convertd convert` command with one file."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from socket import create_server

import pytest
from PIL import Image

from engine.executor.tasks import TaskLimits
from tests.support.command_line import COMMAND, invoke, run_command
from tests.support.executors.isolated import MISBEHAVING
from tests.support.samples.generated import sample

_ROOT = Path(__file__).parents[3]
_SECRET = "secret-of-the-command"

_WITH_DEADLINE = """
import asyncio, sys
from engine import sandbox
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.executor.local import SingleWorker

async def run():
    executor = LocalExecutor(1, pool=SingleWorker(sandbox.LAYERS, ()))
    with open(sys.argv[1], "rb") as source, open(sys.argv[2], "wb") as output:
        limits = TaskLimits(seconds=3, files=10)
        await executor.run(Task(("trouble",), "bmp"), "account", [source.fileno()], output.fileno(), limits)

asyncio.run(run())
"""


@pytest.fixture
def temporary() -> Iterator[Path]:
    """The folder of temporary files. It is not below that of the test, which other users cannot pass."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


@pytest.fixture
def folder(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of the command, which loads the misbehaving plugin."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (MISBEHAVING, _ROOT))))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
    return tmp_path


def test_a_library_that_few_files_need_is_imported_in_the_sandbox(folder: Path) -> None:
    _convert_with_a_rare_library(folder)


@pytest.mark.long
def test_an_installation_in_a_private_folder(folder: Path) -> None:
    """Jobs of root are of other users, who cannot reach it."""
    for package in ("config", "engine", "plugins", "storage", "web"):
        shutil.copytree(_ROOT / package, folder / package)
    folder.chmod(0o700)

    _convert_with_a_rare_library(folder, PYTHONPATH=str(folder))


def _convert_with_a_rare_library(folder: Path, **environment: str) -> None:
    Image.new("CMYK", (8, 8), (255, 0, 0, 0)).save(folder / "in.jpg")

    done = run_command(folder, "convert", "in.jpg", "out.png", **environment)

    assert done.returncode == 0, done.stderr
    red, green, blue = Image.open(folder / "out.png").convert("RGB").tobytes()[:3]
    assert red < 80 < green < blue


def _write(folder: Path, deed: str) -> Path:
    source = folder / "in.trouble"
    source.write_text(f"TROUBLE {deed}")
    return source


def _convert(folder: Path, deed: str) -> subprocess.CompletedProcess[str]:
    _write(folder, deed)
    return run_command(folder, "convert", "in.trouble", "out.bmp")


def _wait_for(condition: Callable[[], bool]) -> bool:
    for _ in range(200):
        if condition():
            return True
        time.sleep(0.05)
    return False


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def _sandboxed(pid: int) -> list[int]:
    """The children of a process that have applied the sandbox."""
    found = []
    for child in _children(pid):
        with suppress(OSError):  # it has ended
            found += [child] if "Seccomp:\t2" in Path(f"/proc/{child}/status").read_text() else []
    return found


def _has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def hanging(folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A command whose conversion does not end, and its worker process, which has applied the sandbox."""
    _write(folder, "hang")
    command = [COMMAND, "convert", "in.trouble", "out.bmp"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert _wait_for(lambda: _sandboxed(process.pid) != [])  # the plugin was tried in a child before
        yield process, _sandboxed(process.pid)[0]
        process.kill()


def test_one_file_needs_one_process_which_ends_with_the_command(hanging: tuple[subprocess.Popen[str], int]) -> None:
    command, worker = hanging

    assert _children(command.pid) == [worker]
    assert _children(worker) == []
    # Forked, not started: a fork server would be another program.
    assert Path(f"/proc/{command.pid}/cmdline").read_text() == Path(f"/proc/{worker}/cmdline").read_text()

    command.kill()

    assert _wait_for(lambda: _has_ended(worker))


def test_the_sandbox_stops_attacks(folder: Path) -> None:
    private = folder / "private"
    private.mkdir(mode=0o700)
    (private / "in.png").write_bytes(b"private")
    with create_server(("127.0.0.1", 0)) as server:
        attacks = (
            f"connect {server.getsockname()[1]}",
            "run /bin/true",
            "fork",
            f"read {private / 'in.png'}",
            f"write {private / 'in.png'}",
            f"remember {_SECRET}",
            "find_open_folder",
        )
        done = _convert(folder, "try_all " + "\n".join(attacks))

    assert done.returncode == 0, done.stderr
    with Image.open(folder / "out.bmp") as image:
        assert image.getpixel((0, 0)) == (0, 128, 0)  # all are refused
    assert (private / "in.png").read_bytes() == b"private"


@pytest.mark.parametrize(
    ("deed", "message"),
    [
        (f"claim 8 {TaskLimits().memory}", "out_of_memory"),
        ("crash", "crashed"),
        pytest.param("exit", "crashed", marks=pytest.mark.long),
        ("raise", "corrupt_input"),
        ("overwork", "timeout"),
    ],
)
def test_a_failure_is_reported_and_leaves_nothing(folder: Path, temporary: Path, deed: str, message: str) -> None:
    done = _convert(folder, deed)

    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert {path.name for path in folder.iterdir()} == {"in.trouble"}
    assert not any(temporary.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing(
    folder: Path, temporary: Path, hanging: tuple[subprocess.Popen[str], int], number: signal.Signals
) -> None:
    command, worker = hanging

    command.send_signal(number)

    assert command.wait(20) != 0
    assert _has_ended(worker)
    assert {path.name for path in folder.iterdir()} == {"in.trouble"}
    assert not any(temporary.iterdir())


@pytest.mark.parametrize(("deed", "error"), [("hang", "TimedOut"), ("litter 20 1", "disk quota")])
def test_the_limits_of_jobs_apply(folder: Path, temporary: Path, deed: str, error: str) -> None:
    program = [sys.executable, "-c", _WITH_DEADLINE, str(_write(folder, deed)), str(folder / "out")]

    done = subprocess.run(program, capture_output=True, text=True, check=False)

    assert done.returncode == 1
    assert error in done.stderr.splitlines()[-1]
    assert not any(temporary.iterdir())


@pytest.mark.parametrize(("actual", "name"), [("svg", "in.png"), ("dng", "in.tiff")])
def test_the_content_decides_what_is_loaded(folder: Path, actual: str, name: str) -> None:
    (folder / name).write_bytes(sample(actual))

    explained = invoke(folder, "convert", "--explain", name, "out.jpg")
    done = run_command(folder, "convert", name, "out.jpg")

    assert (explained.exit_code, done.returncode) == (0, 0), done.stderr
    assert f"steps: {actual} -> raster, " in explained.stderr
    with Image.open(folder / "out.jpg") as image:
        assert image.format == "JPEG"
