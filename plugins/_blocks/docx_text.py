"""DOCX as Pandoc reads all of it, the words that its tree must have, and what the document says of itself."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from posixpath import join, normpath
from zipfile import BadZipFile, ZipFile

from lxml import etree

from engine import Blocks, CorruptInput, blocks
from plugins._blocks.docx_markup import W, element, normalize, run
from plugins._blocks.pandoc_reading import Markup
from plugins._office import limits
from plugins._text.markup import warn_not_loaded

_MAIN = re.compile(r"word/document\d*\.xml")
_NOTES = ("word/footnotes.xml", "word/endnotes.xml")
_REFERENCES = (f"{W}footnoteReference", f"{W}endnoteReference")
_COMMENTS = "word/comments.xml"
_CONTAINERS = tuple(f"{W}{name}" for name in ("body", "tc", "footnote", "endnote", "comment", "p"))
_PROPERTIES = "docProps/core.xml"
_STYLES = "word/styles.xml"
_CHARTS = re.compile(r"word/charts/chart\d*\.xml")
_MARKUP = (".xml", ".rels")
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/(\w+)")  # namespaces of the strict variant of the format
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/\2"
_LANGUAGE = re.compile(rb'<w:lang [^>]*?w:val="([\w-]+)"')
_TEXTS = (f"{W}t", f"{W}delText", f"{W}tab", f"{W}br", f"{W}cr")
_CLICKED = ("hyperlink", "attachedTemplate")  # types of relations to what the text does not show
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_AUTHORS = re.compile(r"\s*;\s*")
_KEYWORDS = re.compile(r"\s*[,;]\s*")
# What takes Pandoc 20 s to read: its time grows with the words, and with the square of the elements in one.
_MAX_WORDS = 1_500_000
_MAX_CHILDREN = 40_000  # of a paragraph, or of what holds paragraphs


@dataclass(frozen=True)
class Prepared:
    """A file for Pandoc, the words in it, and its title, authors, subject, keywords and language as attributes."""

    data: bytes
    words: Counter[str]
    properties: Blocks


def prepare(archive: ZipFile, markup: Markup, *, comments: bool) -> Prepared:
    """Raises CorruptInput, and TooLarge for what takes long to read. Issues a warning for pictures elsewhere."""
    parts = _Parts(archive)
    main = next(filter(_MAIN.fullmatch, parts.contents), None)
    if main is None:
        raise CorruptInput("The document has no text.")
    warn_not_loaded([*dict.fromkeys(parts.outside())])
    words: Counter[str] = Counter()
    marks: Counter[tuple[str, str]] = Counter()
    repeated = 0  # words of notes, for each mark after the first
    for name in (main, *_NOTES, _COMMENTS):
        if name not in parts.contents:
            continue
        root = parts.parse(name)
        marks += Counter((one.tag, one.get(f"{W}id", "")) for one in root.iter(*_REFERENCES))
        if name in _NOTES:  # a note has no notes, which could be itself
            etree.strip_elements(root, *_REFERENCES, with_tail=False)
            counts = ((one, marks[f"{one.tag}Reference", one.get(f"{W}id", "")]) for one in root)
            repeated += sum((count - 1) * blocks.words(_texts(one)).total() for one, count in counts if count > 1)
        normalize(root, markup)
        limits.check("elements in one", max(map(len, root.iter(*_CONTAINERS)), default=0), _MAX_CHILDREN)
        words.update(_lift_drawn_text(root, parts, name))
        if name != _COMMENTS or comments:
            words.update(blocks.words(_texts(root)))
        limits.check("words", words.total() + repeated, _MAX_WORDS)
        parts.contents[name] = etree.tostring(root, encoding="UTF-8", xml_declaration=True)
    return Prepared(parts.archive(), words, _properties(parts))


def _texts(root: etree._Element) -> Iterator[str]:
    for paragraph in root.iter(f"{W}p"):
        yield "".join(one.text or " " for one in paragraph.iter(*_TEXTS))


class _Parts:
    """The markup in a package: `contents` by name, of the transitional variant."""

    def __init__(self, archive: ZipFile) -> None:
        self._names = archive.namelist()
        try:
            found = {name: archive.read(name) for name in self._names if name.endswith(_MARKUP)}
        except (BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
            raise CorruptInput("The document is damaged.") from error
        self.contents = {name: _STRICT.sub(_TRANSITIONAL, content) for name, content in found.items()}
        if any(b"<!DOCTYPE" in content for content in self.contents.values()):
            raise CorruptInput("The document declares a type or entities.")
        limits.check("tags", sum(content.count(b"<") for content in found.values()), limits.MAX_TAGS)

    def parse(self, name: str) -> etree._Element:
        try:
            return etree.fromstring(self.contents[name], etree.XMLParser(resolve_entities=False, no_network=True))
        except etree.XMLSyntaxError as error:
            raise CorruptInput("The document is damaged.") from error

    def relations(self, name: str) -> Mapping[str, str]:
        """The names of the parts to which a part refers, by the identifiers of the references."""
        folder, _, file = name.rpartition("/")
        relations = f"{folder}/_rels/{file}.rels"
        found = self.parse(relations) if relations in self.contents else ()
        return {one.get("Id", ""): normpath(join("/", folder, one.get("Target", "")))[1:] for one in found}

    def outside(self) -> Iterator[str]:
        """The targets of references to what a document shows, but has not in its file."""
        for name, content in self.contents.items():
            if name.endswith(".rels") and b"External" in content:
                for relation in self.parse(name).iterchildren("{*}Relationship"):
                    kind = relation.get("Type", "").rpartition("/")[2]
                    if relation.get("TargetMode") == "External" and kind not in _CLICKED:
                        yield relation.get("Target", "")

    def archive(self) -> bytes:
        """A package with these contents. Its other files, which Pandoc only has to find, are empty."""
        file = BytesIO()
        with ZipFile(file, "w") as made:
            for name in dict.fromkeys(self._names):
                made.writestr(name, self.contents.get(name, b""))
        return file.getvalue()


def _lift_drawn_text(root: etree._Element, parts: _Parts, name: str) -> Counter[str]:
    """Puts the text of diagrams after their paragraphs, and removes charts. Returns the words of the charts."""
    drawn = [*root.iter("{*}relIds", "{*}chart")]
    relations = parts.relations(name) if drawn else {}
    words: Counter[str] = Counter()
    for reference in drawn:
        part = relations.get(reference.get(f"{_R}dm") or reference.get(f"{_R}id") or "", "")
        texts = _drawn_texts(parts.parse(part)) if part in parts.contents else []
        drawing = next(reference.iterancestors(f"{W}drawing"), reference)
        paragraph = next(reference.iterancestors(f"{W}p"), None)
        if reference.get(f"{_R}dm") is None or paragraph is None:
            words += blocks.words(texts)
        else:
            for text in reversed(texts):
                paragraph.addnext(made := element("p"))
                made.append(run(element("t", text)))
        drawing.getparent().remove(drawing)
    return words


def _drawn_texts(root: etree._Element) -> list[str]:
    paragraphs = ("".join(text.text or "" for text in one.iter("{*}t")) for one in root.iter(f"{_A}p"))
    cached = (value.text or "" for cache in root.iter("{*}strCache") for value in cache.iter("{*}v"))
    return [text for text in (*paragraphs, *cached) if text]


def _properties(parts: _Parts) -> Blocks:
    root = parts.parse(_PROPERTIES) if _PROPERTIES in parts.contents else ()
    found = {etree.QName(one).localname: (one.text or "").strip() for one in root if isinstance(one.tag, str)}
    language = _LANGUAGE.search(parts.contents.get(_STYLES, b""))
    return Blocks(
        (),
        title=found.get("title", ""),
        authors=tuple(filter(None, _AUTHORS.split(found.get("creator", "")))),
        subject=found.get("subject", ""),
        keywords=tuple(filter(None, _KEYWORDS.split(found.get("keywords", "")))),
        language=found.get("language") or (language[1].decode() if language else ""),
    )
