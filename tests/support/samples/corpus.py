"""The corpus: real files with known properties, and files of further formats in a folder for each. It is optional."""

import csv
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CORPUS = Path(os.environ.get("CONVERTD_TEST_CORPUS", Path(__file__).parents[3].parent / "shared" / "corpus"))

_FORMATS = Path(os.environ.get("CONVERTD_TEST_FORMATS", CORPUS.parent / "formats"))
UNSOUND = ("bad", "bomb", "hostile")


@dataclass(frozen=True)
class Entry:
    """A file and its entry in the manifest."""

    name: str
    format: str
    category: str
    dimensions: str
    measured: str

    @property
    def path(self) -> Path:
        return CORPUS / self.name

    @property
    def sound(self) -> bool:
        return self.category not in UNSOUND

    @property
    def size(self) -> tuple[int, int] | None:
        """Width and height as stored (points for a page); None if the manifest has none."""
        told = re.search(r"p1=(\d+)x(\d+)pt", self.measured) or re.match(r"(\d+)x(\d+)", self.dimensions)
        told = told or re.fullmatch(r"viewBox=0 0 (\d+) (\d+)", self.measured)
        return (int(told[1]), int(told[2])) if told else None

    @property
    def orientation(self) -> int:
        told = re.search(r"exif-ori=(\d)", self.measured)
        return int(told[1]) if told else 1

    @property
    def count(self) -> int:
        """Frames or pages."""
        told = re.search(r"n=(\d+)|(\d+) pages", self.dimensions)
        return max(1, int(told[1] or told[2])) if told else 1


@cache
def load_corpus() -> tuple[Entry, ...]:
    """The files by name; empty without a corpus."""
    manifest = CORPUS / "MANIFEST.tsv"
    if not manifest.is_file():
        return ()
    with manifest.open(newline="") as rows:
        entries = [
            Entry(row["filename"], row["format"], row["category"], row["dimensions_or_pages"], row["measured"])
            for row in csv.DictReader(rows, delimiter="\t")
        ]
    return tuple(sorted(entries, key=lambda entry: entry.name))


def format_files(*formats: str) -> list[Path]:
    """The files of these formats, sorted; empty without the folder."""
    return sorted(path for name in formats for path in (_FORMATS / name).glob("*") if path.is_file())
