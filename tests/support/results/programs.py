"""Code samples, run as programs in the languages that are installed here."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from web.docs.code_samples import VARIABLE

_COMMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "curl": ("sh", "-e", "program.sh"),
        "Python": (sys.executable, "program.py"),
        "JavaScript": ("node", "program.mjs"),
        "PHP": ("php", "program.php"),
        "Go": ("go", "run", "program.go"),
    }
)


def languages_here() -> list[str]:
    """The languages of samples of which there is an interpreter or compiler."""
    return [language for language, command in _COMMANDS.items() if shutil.which(command[0])]


def run_sample(language: str, text: str, key: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a sample in the folder with this API key. Its program file is gone afterwards.

    As the command of an error response has the exit status 0, curl gets an option that changes this.
    """
    command = _COMMANDS[language]
    program = folder / command[-1]
    program.write_text(text.replace("curl ", "curl --fail-with-body -sS ") if language == "curl" else text)
    environment = {**os.environ, VARIABLE: key}
    try:
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    finally:
        program.unlink()
