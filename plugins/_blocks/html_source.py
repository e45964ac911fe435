"""Trees of HTML: what is not shown is removed, and formulas and notes are marked for the reader."""

from __future__ import annotations

import re
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterable, Iterator
from html.entities import name2codepoint
from types import MappingProxyType
from typing import Any

from lxml import etree

from engine import Blocks, CorruptInput, FidelityWarning
from engine.blocks import Code
from plugins._blocks import mathml
from plugins._text.markup import encoding

NOTE = "note"
"""The tag of the mark of a note, whose `href` names the note."""
FORMULA = "math"
"""The tag of a formula, whose TeX is the attribute `tex`."""
ALERTS = frozenset({"markdown-alert", "admonition"})
"""Classes of alerts."""
KINDS = frozenset({"note", "tip", "important", "warning", "caution"})
"""Kinds of alerts."""
HEADINGS = MappingProxyType({f"h{level}": level for level in range(1, 7)})
"""Levels of headings by their elements."""
BLOCKS = frozenset(
    (
        "html", "body", "p", "div", "section", "article", "aside", "header", "footer", "main", "nav", "hgroup",
        "center", "form", "fieldset", "legend", "details", "summary", "figure", "figcaption", "address", "search",
        "dialog", "optgroup", "option", "noscript", "ul", "ol", "menu", "dir", "li", "dl", "dt", "dd", "blockquote",
        "table", "thead", "tbody", "tfoot", "tr", "td", "th", "caption", "h1", "h2", "h3", "h4", "h5", "h6", "pre",
        "listing", "xmp", "br", "hr",
    )
)  # fmt: skip
"""Elements that stand on lines of their own."""
_NOT_SHOWN = (
    "head", "script", "style", "template", "datalist", "noframes", "audio", "video", "canvas", "iframe", "param",
    "area", "col", "colgroup", "rp",
)  # fmt: skip
# lxml's parser of HTML takes what follows these elements for their content, of which they have none.
_VOID = ("source", "track")
_OF_HEAD = frozenset(
    {"title", "meta", "link", "base", "basefont", "style", "script", "noscript", "template", "isindex"}
)
_HIDDEN = frozenset({"display:none", "visibility:hidden"})
_OF_FORMULAS = frozenset({"katex", "katex-display", "mwe-math-element", "mathjax", "mathjax_display", "mjpage"})
_TEX = re.compile(r"\s*(?:\\\((.*)\\\)|\\\[(.*)\\\]|\$\$(.*)\$\$|\$(.*)\$)\s*", re.DOTALL)
_ENTITY = re.compile(rb"&(\w+);")
_XML = re.compile(rb"\s*(?:\xef\xbb\xbf)?<\?xml|<html[^>]*xmlns=[\"']http://www.w3.org/1999/xhtml")
_HEAD = 1024
_CONTROLS = bytes({*range(0x20)} - {*b"\t\n\f\r"})
_LANGUAGE = re.compile(r"\b(?:language-|lang-|highlight-source-|highlight-|brush:\s*)(?!default|none|text)([\w+#.-]+)")
_OF_SVG = MappingProxyType(
    {
        name.lower(): name
        for name in (
            "viewBox", "preserveAspectRatio", "linearGradient", "radialGradient", "gradientUnits", "gradientTransform",
            "clipPath", "clipPathUnits", "patternUnits", "patternTransform", "maskUnits", "markerWidth", "markerHeight",
            "refX", "refY", "textPath", "startOffset", "textLength", "foreignObject", "stdDeviation", "spreadMethod",
        )
    }
)  # fmt: skip
_OF_XML = frozenset({b"amp", b"lt", b"gt", b"quot", b"apos"})


def parse(markup: bytes) -> Any:
    """The tree of a page, without comments and namespaces. Raises CorruptInput if there is none."""
    if markup[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
        markup = markup.decode("utf-16", "replace").encode()
    markup = markup.translate(None, _CONTROLS)  # lxml would not let their text be changed
    root = _parse_xml(markup) if _XML.search(markup[:_HEAD]) else None
    if root is None:
        parser = etree.HTMLParser(encoding=encoding(markup), huge_tree=True, remove_comments=True, remove_pis=True)
        root = etree.fromstring(markup, parser) if markup.strip() else None
        _fill_body(root)
    if root is None:
        raise CorruptInput("The page has no elements.")
    return root


def _fill_body(root: Any) -> None:
    """Moves what the head cannot have into the body: the parser knows no elements of HTML 5, which begin a body."""
    head = None if root is None else root.find("head")
    shown = [one for one in head if one.tag not in _OF_HEAD] if head is not None else []
    if shown:
        body = root.find("body")
        body = etree.SubElement(root, "body") if body is None else body
        shown[-1].tail = (shown[-1].tail or "") + (body.text or "")
        body.text = None
        body[:0] = shown


def _parse_xml(markup: bytes) -> Any:
    """The tree of XHTML with the names of HTML; None if it is not well-formed."""
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, huge_tree=True, remove_comments=True, remove_pis=True
    )
    try:
        root = etree.fromstring(_ENTITY.sub(_character, markup), parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    for element in root.iter(etree.Element):
        element.tag = etree.QName(element).localname
    return root


def _character(found: re.Match[bytes]) -> bytes:
    code = name2codepoint.get(found[1].decode("ascii", "replace"))
    return found[0] if code is None or found[1] in _OF_XML else b"&#%d;" % code


def classes(element: Any) -> set[str]:
    """The names of the classes of an element, in lower case."""
    return set((element.get("class") or "").lower().split())


def css(element: Any) -> set[str]:
    """The declarations of the style of an element, without blanks."""
    return set("".join((element.get("style") or "").lower().split()).replace("!important", "").split(";"))


def prepare(root: Any) -> dict[str, Any]:
    """Removes what is not shown, and what only repeats a formula. Marks formulas and notes, and returns the notes."""
    for formula in [*root.iter("math", "script", "span", "div")]:
        _mark_formula(formula)
    for element in root.iter():
        if classes(element) & ALERTS and len(element) and _text(element[0]).strip(" :").lower() in KINDS:
            element[0].tag = "template"  # a title that says the kind
        if element.get("hidden") is not None or (element.get("style") and css(element) & _HIDDEN):
            element.tag = "template"
    etree.strip_tags(root, *_VOID)
    etree.strip_elements(root, *_NOT_SHOWN, with_tail=False)
    for drawing in [*root.iter("svg")]:
        if next(drawing.iter("p", "div", "table", "ul", *HEADINGS), None) is not None:
            drawing.tag = "span"  # without an end tag
    for quotation in root.iter("q"):
        quotation.text = f"\u201c{quotation.text or ''}"
        quotation.tail = f"\u201d{quotation.tail or ''}"
    return _take_notes(root)


def _mark_formula(element: Any) -> None:
    """Makes a formula of MathML or of an element that holds TeX, or of the one around it that also shows it."""
    tex: str | None = None
    is_display = element.get("display") == "block"
    match element.tag:
        case "math":
            notes = [one for one in element.iter("annotation") if "tex" in (one.get("encoding") or "").lower()]
            tex = notes[0].text if notes else element.get("alttext") or mathml.to_tex(element)
            outer = [one for one in element.iterancestors() if classes(one) & _OF_FORMULAS]
            element = outer[-1] if outer else element
            is_display |= any("display" in name for one in outer for name in classes(one))
        case "script" if (element.get("type") or "").startswith("math/tex"):
            tex = element.text
            is_display = "display" in element.get("type")
        case "span" | "div" if "math" in classes(element) and len(element) == 0:
            found = _TEX.fullmatch(element.text or "")
            if found:
                inline, display, dollars, dollar = found.groups()
                tex = inline or display or dollars or dollar
                is_display = bool(display or dollars)
    if tex:
        _clear(element, FORMULA, tex=tex.strip(), display="block" if is_display else "inline")


def _text(element: Any) -> str:
    return " ".join("".join(element.itertext()).split())


def _clear(element: Any, tag: str, **attributes: str) -> None:
    element.clear(keep_tail=True)
    element.tag = tag
    element.attrib.update(attributes)


def _take_notes(root: Any) -> dict[str, Any]:
    """Takes the notes out of the tree, by the names with which their marks refer to them."""
    by_name = {name: element for element in root.iter() if (name := element.get("id") or element.get("name"))}
    marks = [(link, (link.get("href") or "")[1:]) for link in root.iter("a") if _is_mark(link)]
    found = {name: _note_around(by_name[name]) for _, name in marks if name in by_name}
    inside = {inner for note in found.values() for inner in note.iter()}
    notes: dict[str, Any] = {}
    for link, name in marks:
        if name not in found or link in inside:
            continue
        if name not in notes:
            notes[name] = _detached(found[name], {f"#{one}" for one in (link.get("id"), link.get("name")) if one})
        _clear(link, NOTE, href=name)
    for rule in [*root.iter("hr")] if notes else ():
        above = rule.getparent()
        if "footnotes-sep" in classes(rule) or above.get("role") == "doc-endnotes" or "footnotes" in classes(above):
            rule.tag = "template"  # it only separates the notes
    return notes


def _is_mark(link: Any) -> bool:
    kinds = {link.get("role"), link.get("type"), link.get("{http://www.idpf.org/2007/ops}type"), link.get("epub:type")}
    around = classes(link) | classes(link.getparent()) if link.getparent() is not None else classes(link)
    return bool(kinds & {"doc-noteref", "noteref"} or around & {"footnote-ref", "footnote-reference", "sdfootnoteanc"})


def _note_around(target: Any) -> Any:
    """The block that a mark of a note leads to, or into."""
    if target.tag in BLOCKS:
        return target
    return next((one for one in target.iterancestors() if one.tag in ("li", "p", "div", "aside", "dd")), target)


def _detached(note: Any, back: set[str]) -> Any:
    for link in note.iter("a"):
        kinds = classes(link) & {"footnote-backref", "footnote-back", "fn-backref", "sdfootnotesym"}
        if kinds or link.get("role") == "doc-backlink" or link.get("href") in back:
            link.tag = "template"
    etree.strip_elements(note, "template", with_tail=False)
    parent = note.getparent()
    if parent is not None:
        place = etree.SubElement(parent, "template")
        place.tail = note.tail
        note.tail = None
        parent.replace(note, place)
    return note


def svg_file(element: Any) -> bytes:
    """A file of SVG with a drawing, whose names the parser of HTML has made lower case."""
    for one in element.iter(etree.Element):
        if one.tag in _OF_SVG:
            one.tag = _OF_SVG[one.tag]
        for name in _OF_SVG.keys() & one.attrib.keys():
            one.set(_OF_SVG[name], one.attrib.pop(name))
    if None not in element.nsmap:
        element.set("xmlns", "http://www.w3.org/2000/svg")
    file: bytes = etree.tostring(element, with_tail=False)
    return file


def texts(roots: Iterable[Any]) -> Iterator[str]:
    """The text of each line of the trees."""
    for root in roots:
        parts: list[str] = []
        walk = etree.iterwalk(root, events=("start", "end"))
        for event, element in walk:
            if event == "start" and element.tag == "svg":
                walk.skip_subtree()
                parts.append(element.tail or "")
                continue
            parts.append("\n" if element.tag in BLOCKS else "")
            parts.append((element.text if event == "start" else element.tail) or "")
        yield from "".join(parts).split("\n")


def code(element: Any) -> Code:
    """Lines of code, in the language that the element, or one in or around it, names."""
    for line_end in element.iter("br", "div"):
        line_end.tail = "\n" + (line_end.tail or "")
    if next(element.iter("a"), None) is not None:
        FidelityWarning.issue("links_dropped", "Links in lines of code are not in the result.")
    around = [element, *element.iter("code"), *list(element.iterancestors())[:2]]
    found = next(filter(None, (_LANGUAGE.search(one.get("class") or "") for one in around)), None)
    return Code("".join(element.itertext()).removeprefix("\n").rstrip("\n"), found[1] if found else "")


def describe(root: Any) -> Blocks:
    """What a page says of itself, without content."""
    named: dict[str, list[str]] = {}
    for meta in root.iter("meta"):
        if content := (meta.get("content") or "").strip():
            named.setdefault((meta.get("name") or "").lower(), []).append(content)
    title = next((one for one in root.iter("title") if one.getparent().tag == "head"), None)
    return Blocks(
        (),
        title=" ".join("".join(title.itertext()).split()) if title is not None else "",
        authors=tuple(named.get("author", ())),
        subject=" ".join(named.get("description", [])[:1]),
        keywords=tuple(
            word.strip() for words in named.get("keywords", ()) for word in words.split(",") if word.strip()
        ),
        language=root.get("lang") or root.get("{http://www.w3.org/XML/1998/namespace}lang") or "",
        date=next(iter(named.get("date", named.get("dcterms.date", []))), ""),
    )
