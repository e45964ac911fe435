"""Programs of the system that steps and tools run."""

import shutil
from pathlib import Path


def find(name: str) -> tuple[str, ...]:
    """The path of an installed program, as a declaration of a step has it; empty if it is not installed."""
    path = shutil.which(name)
    return (str(Path(path).resolve()),) if path else ()
