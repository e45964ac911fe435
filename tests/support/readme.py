"""Reads the Markdown documents of the project, so that tests can execute and check them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_HEADING = re.compile(r"^(#+) (.+)$", re.MULTILINE)
_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Document:
    """A Markdown document, or a section of one."""

    path: Path
    text: str

    def section(self, heading: str) -> Document:
        """The text below a heading, up to the next one of the same or a higher level. Raises StopIteration."""
        headings = list(_HEADING.finditer(_without_fences(self.text)))
        start = next(one for one in headings if one[2] == heading)
        later = (one.start() for one in headings if one.start() > start.start() and len(one[1]) <= len(start[1]))
        return Document(self.path, self.text[start.end() : next(later, len(self.text))])

    def without(self, heading: str) -> Document:
        """The document without the text below that heading."""
        return Document(self.path, self.text.replace(self.section(heading).text, "\n"))

    def blocks(self, language: str) -> list[str]:
        """The fenced blocks in that language."""
        return [block for name, block in _FENCE.findall(self.text) if name == language]

    def commands(self) -> list[str]:
        """The lines of all shell blocks."""
        return [line for block in self.blocks("sh") for line in block.splitlines()]

    def table(self, column: str) -> list[list[str]]:
        """The rows of the tables whose first column has that name; cells without backquotes around them."""
        tables = re.findall(rf"^\| {column} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", self.text, re.MULTILINE)
        rows = [line for table in tables for line in table.splitlines()]
        return [[cell.strip().strip("`") for cell in line.strip("|").split("|")] for line in rows]

    def links(self) -> list[str]:
        """The targets of all links."""
        return _LINK.findall(_without_fences(self.text))

    def anchors(self) -> set[str]:
        """The anchors of all headings, as repository hosts make them."""
        titles = [title for _, title in _HEADING.findall(_without_fences(self.text))]
        return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def read(name: str) -> Document:
    """The document at that path below the root."""
    return Document(ROOT / name, (ROOT / name).read_text())


def documents() -> list[Document]:
    """All Markdown documents of the project, the root's first."""
    folders = sorted(path for path in ROOT.iterdir() if path.is_dir() and path.name.isidentifier())
    found = [*sorted(ROOT.glob("*.md")), *(path for folder in folders for path in sorted(folder.rglob("*.md")))]
    return [read(str(path.relative_to(ROOT))) for path in found]


def _without_fences(text: str) -> str:
    """The text with fenced blocks blanked, every character at its place."""
    return _FENCE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)
