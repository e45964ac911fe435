"""Reads the structure of EPUB: the chapters in their order, as one page of HTML."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import unquote
from zipfile import ZipFile

from lxml import etree

from engine import Blocks, CorruptInput
from plugins._blocks import html_source, pictures, style_sheets
from plugins._blocks.html_reader import Reader
from plugins._text import zip_archives
from plugins._text.markup import check_elements, warn_not_loaded

_CONTAINER = "META-INF/container.xml"
_PAGES = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml")
_NOT_IN_NAMES = re.compile(r"\W+")
_REFERENCES = ("href", "src", "{http://www.w3.org/1999/xlink}href")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def read(archive: ZipFile, most_elements: int) -> Blocks:
    """The chapters, each after the end of a page. Raises CorruptInput, and TooLarge for too many elements."""
    if "META-INF/rights.xml" in archive.namelist():
        raise CorruptInput("The book is protected by digital rights management.")
    container = _parse(archive, _CONTAINER)
    path = next((one.get("full-path") for one in container.iter("{*}rootfile")), None)
    package = _parse(archive, unquote(path or ""))
    chapters = {
        name: data for name in _chapters(package, path or "") if (data := zip_archives.read_file(archive, name))
    }
    if not chapters:
        raise CorruptInput("The book has no readable chapter.")
    check_elements(b"".join(chapters.values()), most_elements)
    root = etree.Element("html")
    for name, markup in chapters.items():
        page = html_source.parse(markup)
        style_sheets.apply(page, partial(_sheet, archive, name))
        root.append(_chapter(page, name, chapters))
    root[0].attrib.pop("style")

    def find(url: str) -> tuple[bytes, str] | None:
        data = zip_archives.read_file(archive, url)
        return None if data is None else (data, pictures.media_type(url))

    reader = Reader(find)
    document = reader.read(root)
    warn_not_loaded([*reader.not_loaded])
    return _described(document, package)


def _parse(archive: ZipFile, name: str) -> Any:
    data = zip_archives.read_file(archive, name)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, recover=True, remove_comments=True, remove_pis=True
    )
    root = etree.fromstring(data, parser) if data and data.strip() else None
    if root is None:
        raise CorruptInput(f"{name or 'The list of chapters'} of the book cannot be read.")
    return root


def _chapters(package: Any, path: str) -> Iterator[str]:
    """The names of the files of chapters in the order of reading, or of the file if it does not say."""
    files = {
        one.get("id"): posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(one.get("href") or "")))
        for one in package.iter("{*}item")
        if one.get("media-type") in _PAGES
    }
    order = [one.get("idref") for one in package.iter("{*}itemref")]
    yield from dict.fromkeys(files[one] for one in order or files if one in files)


def _sheet(archive: ZipFile, name: str, url: str) -> bytes | None:
    return zip_archives.read_file(archive, _inside(url, name))


def _chapter(page: Any, name: str, chapters: dict[str, bytes]) -> Any:
    """The content of a chapter, whose names are those in the book, with links between chapters as links in it."""
    chapter = next(page.iter("body"), page)
    for element in chapter.iter(etree.Element):
        for attribute in ("id", "name"):
            if element.get(attribute):
                element.set(attribute, _anchor(name, element.get(attribute)))
        for attribute in _REFERENCES:
            reference = element.get(attribute)
            if reference and not _SCHEME.match(reference):
                file, _, anchor = reference.partition("#")
                target = _inside(file, name) if file else name
                element.set(attribute, f"#{_anchor(target, anchor)}" if target in chapters else target)
    chapter.tag = "section"
    chapter.attrib.update({"id": _anchor(name, ""), "style": "break-before:page"})
    return chapter


def _inside(url: str, name: str) -> str:
    """The name of the file in the book to which a relative URL in another file leads."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(url)))


def _anchor(file: str, name: str) -> str:
    return _NOT_IN_NAMES.sub("-", f"{file}-{name}" if name else file)


def _described(document: Blocks, package: Any) -> Blocks:
    """The document with what the book says of itself."""
    named: dict[str, list[str]] = {}
    for element in package.iter("{http://purl.org/dc/elements/1.1/}*"):
        named.setdefault(etree.QName(element).localname, []).append(" ".join("".join(element.itertext()).split()))
    first = {name: next(iter(values), "") for name, values in named.items()}
    return replace(
        document,
        title=first.get("title", ""),
        authors=tuple(named.get("creator", ())),
        subject=first.get("description", ""),
        keywords=tuple(named.get("subject", ())),
        language=first.get("language", ""),
        date=first.get("date", ""),
    )
