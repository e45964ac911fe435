"""What documents keep of their structure and their words in Markdown, next to Pandoc."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import nan
from pathlib import Path
from types import MappingProxyType
from zipfile import ZipFile

import lxml.html
from lxml import etree
from markdown_it import MarkdownIt
from mdit_py_plugins.footnote import footnote_plugin

from benchmarks.report import COLUMNS, Report, Row, at_least
from engine import ConversionError, pipeline
from engine.blocks import words
from engine.registry import Registry, load_registry

_KNOWN = (
    "contains(' http https mailto ftp ', concat(' ', substring-before(@href, ':'), ' ')) or starts-with(@href, '#')"
)
_FILLED = "normalize-space() or .//img"
PARTS: Mapping[str, str] = MappingProxyType(
    {
        "headings": f"//*[self::h1 or self::h2 or self::h3 or self::h4 or self::h5 or self::h6][{_FILLED}]",
        "links": f"//a[{_KNOWN}][not(starts-with(@class, 'footnote') or parent::sup[@class='footnote-ref'])]",
        "pictures": "//img",
        "notes": "//*[@class='footnote-ref']",
        "items": f"//li[not(starts-with(@id, 'fn'))][{_FILLED}]",
        "cells": "//td | //th",
    }
)
"""What is counted in Markdown as HTML, by XPath."""
WORDS = "words %"
"""The share of the words of the source that are in the result."""

_COUNTED = (*PARTS, WORDS)
_COLUMNS = ("file", *(column for name in _COUNTED for column in (name, f"{name}: Pandoc")))
_SUFFIXES = frozenset({".docx", ".odt", ".epub", ".html"})
_MIN_WORDS = 99  # percent
_TIMEOUT = 120  # seconds
_TEXTS = re.compile(r"word/(document\d*|footnotes|endnotes)\.xml|content\.xml|(?!.*(nav|toc)).*\.x?html?")
_LEFT_OUT = (
    "Fallback", "del", "moveFrom", "instrText", "oMath", "posOffset", "align", "pctWidth", "pctHeight",
    "tracked-changes", "annotation", "note-citation", "title", "desc", "head", "script", "style",
)  # fmt: skip
_APART = frozenset(
    {
        "p", "h", "h1", "h2", "h3", "h4", "h5", "h6", "li", "td", "th", "tc", "tab", "br", "cr", "line-break", "div",
        "dt", "dd", "pre", "blockquote", "figcaption", "section", "caption", "option",
    }
)  # fmt: skip


def measure(paths: Sequence[Path], pandoc: str | None) -> list[Report]:
    """Returns a row per file, and the requirements. Paths may be folders; `pandoc` is the program, if there is one."""
    found = sorted(file for path in paths for file in (path.iterdir() if path.is_dir() else [path]))
    files = [file for file in found if file.suffix in _SUFFIXES]
    registry = load_registry()
    rows: list[Row] = []
    required: Counter[str] = Counter()
    for file in files:
        source = words([source_text(file)])
        own = counts(_convert(registry, file), source)
        other = counts(_run(pandoc, file), source) if pandoc else dict.fromkeys(_COUNTED, nan)
        rows.append((file.name, *(one[name] for name in _COUNTED for one in (own, other))))
        required += Counter(name for name in PARTS if not own[name] < other[name])
        required[WORDS] += own[WORDS] >= _MIN_WORDS
    titles = {name: f"files of {len(files)} with at least Pandoc's {name}" for name in PARTS}
    titles[WORDS] = f"files of {len(files)} with {_MIN_WORDS} % of the words"
    requirements = tuple(at_least(title, required[name], len(files)) for name, title in titles.items())
    return [Report("Documents as Markdown", _COLUMNS, tuple(rows)), Report("Requirements", COLUMNS, requirements)]


def counts(markdown: str, source: Counter[str]) -> dict[str, float]:
    """How many there are of each of PARTS, and the share of the words of the source, in percent."""
    reader = MarkdownIt("gfm-like", {"html": True, "linkify": False}).use(footnote_plugin)
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    root = lxml.html.document_fromstring(f"<body>{reader.render(_without_front_matter(markdown))}</body>")
    found = {name: float(len(root.xpath(path))) for name, path in PARTS.items()}
    kept = source & words(["".join(_texts(root))])
    return {**found, WORDS: 100 * kept.total() / source.total() if source else 100.0}


def source_text(file: Path) -> str:
    """The text of a document with its notes, as its last change leaves it, without headers, footers and formulas."""
    if file.suffix == ".html":
        return "".join(_texts(lxml.html.document_fromstring(file.read_bytes())))
    with ZipFile(file) as archive:
        parts = [archive.read(name) for name in archive.namelist() if _TEXTS.fullmatch(name)]
    parse = lxml.html.document_fromstring if file.suffix == ".epub" else etree.fromstring
    parser = lxml.html.HTMLParser(encoding="utf-8") if file.suffix == ".epub" else etree.XMLParser(huge_tree=True)
    return "\n".join("".join(_texts(parse(part, parser))) for part in parts)


def _texts(root: etree._Element) -> Iterator[str]:
    """The text of the elements, with spaces around those that are not parts of a line."""
    walked = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
    for event, element in walked:
        name = element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""
        if name in _LEFT_OUT and event == "start":
            walked.skip_subtree()
        elif event == "start" and name != "":
            yield from (" " if name in _APART else "", element.text or "")
        if event != "start":
            yield from (" " if name in _APART else "", element.tail or "")


def _without_front_matter(markdown: str) -> str:
    return re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)


def _convert(registry: Registry, file: Path) -> str:
    """The Markdown of convertd; empty if the conversion fails."""
    content = file.read_bytes()
    try:
        plan = registry.plan([registry.identify_content(content, file.name)], "md")
        return bytes(pipeline.run(plan, [content], {}).data).decode()
    except ConversionError:
        return ""


def _run(pandoc: str, file: Path) -> str:
    """The Markdown of Pandoc; empty if it fails."""
    command = [pandoc, "--to", "gfm", "--wrap", "none", str(file)]
    try:
        return subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT).stdout.decode()
    except subprocess.SubprocessError:
        return ""
