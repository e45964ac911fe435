"""Real files of further formats, in a folder for each format. They are optional."""

import os
from pathlib import Path

from tests.support.samples.corpus import CORPUS

_FORMATS = Path(os.environ.get("CONVERTD_TEST_FORMATS", CORPUS.parent / "formats"))


def format_files(*formats: str) -> list[Path]:
    """The files of these formats, sorted; empty without the folder."""
    return sorted(path for name in formats for path in (_FORMATS / name).glob("*") if path.is_file())
