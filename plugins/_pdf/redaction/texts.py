"""Removes texts from what is not drawn: fields, annotations, the outline, metadata, attachments, descriptions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lxml import etree
from pikepdf import (
    Array,
    Dictionary,
    Name,
    Object,
    Operator,
    Pdf,
    Stream,
    String,
    parse_content_stream,
    unparse_content_stream,
)

from engine import FidelityWarning
from plugins._pdf.attachments import embedded_files
from plugins._pdf.name_trees import as_list, make_name_tree, read_name_tree
from plugins._pdf.objects import entries, remove_entries, walk
from plugins._pdf.redaction.matching import Matcher

# Strings by these keys are no text: identifiers, and names of fonts and character collections.
_CODES = frozenset(("/ID", "/DA", "/Registry", "/Ordering", "/CheckSum", "/Panose", "/Encrypt", "/CharSet"))
_DATES = frozenset(("/CreationDate", "/ModDate", "/M"))
_MARKUP = frozenset(("/RC", "/RV", "/JS", "/URLS"))  # texts and scripts, as strings or streams
_DESCRIPTIONS = (b"/ActualText", b"/Alt", b"/E")


def redact(document: Pdf, matcher: Matcher) -> None:
    """Replaces what the matcher finds in texts that are not drawn. Removes attachments that have it."""
    _remove_attachments(document, matcher)
    for holder, key, value in list(walk(document)):
        if isinstance(value, Stream):
            if key == "/Metadata":
                _redact_packet(holder, value, matcher)
            elif key in _MARKUP and matcher.matches(_text(value.read_bytes())):
                del holder[key]
            elif value.get("/Subtype") == Name.Form or value.get("/PatternType") == 1:
                _redact_descriptions(value, matcher)
    for page in document.pages:
        for stream in as_list(page.obj.get("/Contents")):
            if isinstance(stream, Stream):
                _redact_descriptions(stream, matcher)
    for holder, key, text in _strings(document):
        _redact_string(holder, key, text, matcher)
    _sort_names(document)


def _strings(document: Pdf) -> Iterator[tuple[Any, Any, str]]:
    """The texts of a document, each with its holder and its key or index."""
    for _, kind, holder in [(None, None, document.trailer), *walk(document)]:
        # The colors of a palette are a string, too.
        is_palette = isinstance(holder, Array) and len(holder) and holder[0] == Name.Indexed
        for key, value in [] if is_palette or kind in _CODES else entries(holder):
            if isinstance(value, String) and key not in _CODES:
                yield holder, key, str(value)


def _redact_string(holder: Any, key: Any, text: str, matcher: Matcher) -> None:
    if key in _DATES or key in _MARKUP:
        if matcher.matches(text):
            del holder[key]
    elif (replaced := matcher.replaced(text)) != text:
        holder[key] = String(replaced)


def _redact_packet(holder: Object, stream: Stream, matcher: Matcher) -> None:
    """Replaces what is found in a packet of XMP. Removes one that is not XML and has it."""
    data = stream.read_bytes()
    if not matcher.matches(_text(data)):
        return
    try:
        root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        del holder["/Metadata"]
        return
    for element in root.iter():
        element.text = matcher.replaced(element.text) if element.text else element.text
        element.tail = matcher.replaced(element.tail) if element.tail else element.tail
        for name, value in element.attrib.items() if isinstance(element.tag, str) else ():
            element.set(name, matcher.replaced(value))
    stream.write(etree.tostring(root.getroottree(), encoding="utf-8"))


def _redact_descriptions(stream: Stream, matcher: Matcher) -> None:
    """Replaces what is found in texts that replace or describe parts of a content stream."""
    if not any(key in stream.read_bytes() for key in _DESCRIPTIONS):
        return
    instructions = parse_content_stream(stream)
    for instruction in instructions:
        if instruction.operator in (Operator("BDC"), Operator("DP")):
            for properties in instruction.operands:
                for key, value in properties.items() if isinstance(properties, Dictionary) else ():
                    if isinstance(value, String):
                        _redact_string(properties, key, str(value), matcher)
    stream.write(unparse_content_stream(instructions))


def _remove_attachments(document: Pdf, matcher: Matcher) -> None:
    """Removes attached files that have what is found, and those that are no text, which cannot be searched."""
    found = [(holder, key) for holder, key, value in walk(document) if _is_removed(value, matcher)]
    remove_entries(found)
    if found:
        message = "Attached files that have the text, or cannot be searched, are not in the result."
        FidelityWarning.issue("attachments_dropped", message)


def _is_removed(value: Any, matcher: Matcher) -> bool:
    """Whether a value specifies an embedded file that has what is found or is no text, or is an annotation of one."""
    texts = (_text(stream.read_bytes()) for _, stream in embedded_files(value))
    return any("\0" in text or matcher.matches(text) for text in texts)


def _text(data: bytes) -> str:
    """The text of a file."""
    if data.startswith((b"\xfe\xff", b"\xff\xfe")):
        return data.decode("utf-16", "replace")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _sort_names(document: Pdf) -> None:
    """Orders the entries of name trees, whose names may have been replaced."""
    names: Any = document.Root.get("/Names")
    for key, tree in entries(names):
        found = read_name_tree(tree)
        if sorted(found, key=lambda entry: entry[0]) != found:
            names[key] = make_name_tree(found)
