"""The command `convertd`, run as a process or in the process of the tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner, Result

from tests.support.samples import sample
from web.cli import cli

COMMAND = Path(sys.executable).with_name("convertd")


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a process, as a person or a script runs it."""
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def invoke(folder: Path, *arguments: str, **environment: str) -> Result:
    """The command in this process, which takes a second less."""
    with chdir(folder):
        return CliRunner().invoke(cli, arguments, env=environment)


def put_pictures(folder: Path) -> None:
    """Two good files, a damaged one, and an empty folder."""
    (folder / "photo.heic").write_bytes(sample("heic"))
    (folder / "photo.png").write_bytes(sample("png"))
    (folder / "bad.png").write_bytes(sample("png")[:100])
    (folder / "out").mkdir()
