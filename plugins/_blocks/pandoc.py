"""Pandoc: reads files to its tree in JSON, and writes files from it. It runs in a process for each file."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine import CorruptInput, Requirement, StepFailed, TimedOut
from plugins import _programs

PROGRAMS = _programs.find("pandoc")
"""The path of Pandoc, if it is installed."""
PANDOC = Requirement(
    "Pandoc",
    "the structure of DOCX, ODT and EPUB",
    "apt-get install pandoc",
    present=bool(PROGRAMS),
)

_ENVIRONMENT = MappingProxyType({"LANG": "C.UTF-8", "HOME": "/"})  # it looks for settings of the user

_NO_MEMORY = (2, 251, 254)  # statuses of programs in Haskell: the stack or the heap is full, or cannot grow


def read(data: bytes, reader: str) -> dict[str, Any]:
    """The tree of a file in a format of Pandoc, with all tracked changes. Raises CorruptInput."""
    done = _run(["--from", reader, "--to", "json", "--track-changes=all", "--sandbox"], data)
    if done.returncode:
        raise CorruptInput("Pandoc cannot read the file.")
    try:
        tree: dict[str, Any] = json.loads(done.stdout)
    except RecursionError as error:
        raise CorruptInput("The document is nested too deeply.") from error
    return tree


def write(tree: dict[str, Any], writer: str, folder: Path) -> bytes:
    """A file in a format of Pandoc. The tree names files of pictures in the folder."""
    result = folder / "result"
    known = json.loads(_run(["--to", "json"], b"").stdout)  # the version of the tree
    done = _run(
        ["--from", "json", "--to", writer, "--output", str(result), "--resource-path", str(folder)],
        json.dumps({**known, **tree}).encode(),
    )
    if done.returncode:
        raise StepFailed("Pandoc cannot write the file.")
    return result.read_bytes()


def _run(arguments: Sequence[str], data: bytes) -> subprocess.CompletedProcess[bytes]:
    """Raises MemoryError and TimedOut if it reaches a limit of the task."""
    done = subprocess.run([*PROGRAMS, *arguments], input=data, capture_output=True, env=_ENVIRONMENT, check=False)
    if done.returncode == -signal.SIGXCPU:
        raise TimedOut("The conversion exceeded its CPU time limit.")
    if done.returncode < 0 or done.returncode in _NO_MEMORY or b"memory" in done.stderr:
        raise MemoryError
    return done
