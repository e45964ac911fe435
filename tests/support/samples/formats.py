"""Real files of formats beyond those of the corpus, in a folder per format next to it. They are optional."""

from pathlib import Path

import pytest

from tests.support.samples.corpus import CORPUS


def real_files(*names: str) -> list[Path]:
    """The files of these formats; a skipped one if there are none."""
    found = sorted(path for name in names for path in (CORPUS.parent / "formats" / name).glob("*"))
    return found or [pytest.param(Path(), marks=pytest.mark.skip("no real files"))]  # type: ignore[list-item]
