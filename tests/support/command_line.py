"""Runs the `convertd` command in tests."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from typer.testing import CliRunner, Result

from tests.support.samples import sample
from web.cli import cli

COMMAND = str(Path(sys.executable).with_name("convertd"))


def run_command(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process, with `folder` as working directory."""
    return subprocess.run(
        [COMMAND, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )


def invoke(folder: Path, *arguments: str, **environment: str) -> Result:
    """Runs the command in this process, which is faster. For commands that end early."""
    with chdir(folder):
        return CliRunner().invoke(cli, arguments, env=environment)


def write_samples(folder: Path) -> Path:
    """Writes photo.heic, photo.png, the truncated bad.png and the empty folder out. Returns the folder."""
    (folder / "photo.heic").write_bytes(sample("heic"))
    (folder / "photo.png").write_bytes(sample("png"))
    (folder / "bad.png").write_bytes(sample("png")[:100])
    (folder / "out").mkdir()
    return folder
