"""Runs the `convertd` command in tests."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path

from typer.testing import CliRunner, Result

from tests.support.samples.generated import sample
from web.cli.main import cli

COMMAND = str(Path(sys.executable).with_name("convertd"))


def run_command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process, with `folder` as working directory."""
    command = [COMMAND, *arguments]
    known = {**os.environ, **environment}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=known, check=False)


def run_at_terminal(folder: Path, *arguments: str, answer: str = "") -> tuple[int, str]:
    """Runs the command in a process whose standard streams are a terminal. Returns the exit code and the output.

    `answer` is what the user types.
    """
    terminal, command_side = os.openpty()
    os.write(terminal, answer.encode())
    command = [COMMAND, *arguments]
    with subprocess.Popen(command, cwd=folder, stdin=command_side, stdout=command_side, stderr=command_side) as process:
        os.close(command_side)
        output = b"".join(_read_terminal(terminal))
    os.close(terminal)
    return process.returncode, output.decode()


def _read_terminal(terminal: int) -> Iterator[bytes]:
    with suppress(OSError):  # the other side is closed
        while block := os.read(terminal, 4096):
            yield block


def invoke(folder: Path, *arguments: str, answer: str | bytes = "", **environment: str) -> Result:
    """Runs the command in this process, which is faster. For commands that end early. `answer` is its input."""
    with chdir(folder):
        return CliRunner().invoke(cli, arguments, input=answer, env=environment, prog_name="convertd")


def write_samples(folder: Path) -> Path:
    """Writes photo.heic, photo.png, the truncated bad.png and the empty folder out. Returns the folder."""
    (folder / "photo.heic").write_bytes(sample("heic"))
    (folder / "photo.png").write_bytes(sample("png"))
    (folder / "bad.png").write_bytes(sample("png")[:100])
    (folder / "out").mkdir()
    return folder
