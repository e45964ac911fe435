"""The XML of DOCX in the forms that Pandoc reads: what it would skip, with the text in it, is expressed otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType

from lxml import etree

from engine import FidelityWarning
from plugins._blocks.pandoc_reading import Markup
from plugins._blocks.symbol_fonts import WINGDINGS

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_V = "{urn:schemas-microsoft-com:vml}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_PIC = "{http://schemas.openxmlformats.org/drawingml/2006/picture}"
_RUN, _PARAGRAPH, _PROPERTIES = f"{W}r", f"{W}p", f"{W}rPr"
_INSERTED = (f"{W}ins", f"{W}moveTo")
_DELETED = (f"{W}del", f"{W}moveFrom")
_WRAPPERS = tuple(f"{W}{name}" for name in ("sdt", "sdtContent", "smartTag", "customXml", "fldSimple", "dir", "bdo"))
_WRAPPER_PROPERTIES = tuple(f"{W}{name}" for name in ("sdtPr", "sdtEndPr", "smartTagPr", "customXmlPr"))
_OWN_RUN = frozenset(
    f"{W}{name}"
    for name in ("drawing", "pict", "object", "footnoteReference", "endnoteReference", "fldChar", "instrText", "ruby")
)
_UNREAD = tuple(
    f"{W}{name}"
    for name in (
        "sz", "szCs", "lang", "color", "kern", "spacing", "proofErr", "lastRenderedPageBreak", "jc", "tabs", "shd",
        "noProof", "bCs", "iCs", "keepNext", "keepLines", "widowControl", "contextualSpacing", "bookmarkEnd",
        "tblBorders", "tcBorders", "tblCellMar", "tcMar", "tblW", "tcW",
    )
)  # fmt: skip
_REVISIONS = tuple(f"{W}rsid{name}" for name in ("R", "RPr", "P", "RDefault", "Tr", "Del", "Sect"))
_SYMBOL = "Symbol"  # a font whose characters Pandoc knows
_HYPHENS = MappingProxyType({f"{W}noBreakHyphen": "\u2011", f"{W}softHyphen": "\xad"})
_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
_SHOWN = (f"{W}txbxContent", f"{_PIC}pic", f"{W}t", "{*}relIds", "{*}chart")  # what Pandoc or this module reads
_LEFT_OUT: Mapping[Markup, tuple[str, ...]] = MappingProxyType({"final": _DELETED, "original": _INSERTED, "all": ()})
_KEPT: Mapping[Markup, tuple[str, ...]] = MappingProxyType({"final": _INSERTED, "original": _DELETED, "all": ()})
_ARGUMENT = re.compile(r'"((?:[^"\\]|\\.)*)"|(\S+)')
_SIZE = re.compile(r"(?<![\w-])(width|height):\s*([\d.]+)(pt|in)")
_EMU = MappingProxyType({"pt": 12_700, "in": 914_400})
_MARKS = (f"{W}bookmarkStart", f"{W}commentRangeStart")
_BOXES = "☐☒"
_CODE = re.compile(r"[0-9A-Fa-f]{2,4}")


def normalize(part: etree._Element, markup: Markup) -> None:
    """Changes the root of a document, of notes or of comments."""
    _spell(part)
    _reduce(part)
    _resolve_changes(part, markup)
    _choose_alternatives(part)
    _unwrap(part)
    _lift_boxes(part)
    _draw(part)
    _split_runs(part)
    _replace_fields(part)
    _join_runs(part)
    _place_marks(part)


def element(tag: str, text: str = "", **attributes: str) -> etree._Element:
    """An element of WordprocessingML."""
    made = etree.Element(f"{W}{tag}", {f"{W}{name}": value for name, value in attributes.items()})
    made.text = text or None
    return made


def run(child: etree._Element) -> etree._Element:
    """A run with one element."""
    made = etree.Element(_RUN)
    made.append(child)
    return made


def _spell(part: etree._Element) -> None:
    """Makes text of symbols and hyphens, and removes runs that are hidden. Issues a warning for unknown symbols."""
    for hidden in [one for one in part.iter(f"{W}vanish") if _is_on(one)]:
        if (whole := hidden.getparent().getparent()).tag == _RUN:
            _remove(whole)
    for fonts in part.iter(f"{W}rFonts"):
        if fonts.get(f"{W}ascii") == "Wingdings":
            for text in fonts.getparent().itersiblings(f"{W}t"):
                text.text = (text.text or "").translate(WINGDINGS)
    unknown = 0
    for symbol in [*part.iter(f"{W}sym", *_HYPHENS)]:
        character = _HYPHENS.get(symbol.tag) or _symbol(symbol.get(f"{W}font", ""), symbol.get(f"{W}char", ""))
        if character is not None:
            unknown += not character
            symbol.getparent().replace(symbol, element("t", character))
    if unknown:
        FidelityWarning.issue("text_dropped", f"Symbols of fonts without Unicode are not in the result: {unknown}.")


def _symbol(font: str, code: str) -> str | None:
    """The character of a symbol; None if Pandoc knows it, empty if nothing does."""
    if font.startswith(_SYMBOL):
        return None
    number = int(code, 16) if _CODE.fullmatch(code) else 0
    if font == "Wingdings":
        return WINGDINGS.get(number, "")
    return "" if number < ord(" ") or not chr(number).isprintable() else chr(number)


def _is_on(switch: etree._Element) -> bool:
    return switch.get(f"{W}val", "1") not in ("0", "false", "off")


def _reduce(part: etree._Element) -> None:
    """Removes what Pandoc does not read. It takes half of its time."""
    etree.strip_elements(part, *_UNREAD, with_tail=False)
    etree.strip_attributes(part, *_REVISIONS)
    for fonts in [*part.iter(f"{W}rFonts")]:
        if not any(font.startswith(_SYMBOL) for font in fonts.attrib.values()):
            _remove(fonts)
    for properties in [*part.iter(_PROPERTIES)]:
        if not len(properties):
            _remove(properties)


def _join_runs(part: etree._Element) -> None:
    """Makes one run of neighbors that have only text in the same style."""
    groups: list[list[etree._Element]] = [[]]
    last: tuple[str, ...] = ()
    for one in [*part.iter(_RUN)]:
        style = _style(one)
        if style and style == last and one.getprevious() is groups[-1][-1]:
            groups[-1].append(one)
        else:
            groups.append([one])
        last = style
    for first, *others in filter(None, groups):
        if others:
            first[-1].text = "".join(one[-1].text or "" for one in (first, *others))
            first[-1].set(_SPACE, "preserve")
        for one in others:
            _remove(one)


def _style(one: etree._Element) -> tuple[str, ...]:
    """The style of a run that has one text only; empty for others."""
    properties = one[0] if len(one) == 2 and one[0].tag == _PROPERTIES else ()
    if len(one) - bool(len(properties)) != 1 or one[-1].tag != f"{W}t":
        return ()
    return (_RUN, *chain.from_iterable((str(each.tag), *map(str, each.attrib.values())) for each in properties))


def _resolve_changes(part: etree._Element, markup: Markup) -> None:
    """Applies tracked changes, or rejects them. With `all`, each run has its own mark."""
    left_out = _LEFT_OUT[markup]
    for mark in [*part.iter(*left_out)][::-1] if left_out else ():
        owner = mark.getparent()
        if owner.tag == f"{W}trPr":
            _remove(owner.getparent())
        elif owner.tag == _PROPERTIES:
            _join_next(next(owner.iterancestors(_PARAGRAPH), owner))
    if left_out:
        etree.strip_elements(part, *left_out, with_tail=False)
        etree.strip_tags(part, *_KEPT[markup])
    if markup == "original":
        for deleted in part.iter(f"{W}delText", f"{W}delInstrText"):
            deleted.tag = f"{W}t" if deleted.tag == f"{W}delText" else f"{W}instrText"
    for number, change in enumerate([*part.iter(*_INSERTED, *_DELETED)] if markup == "all" else ()):
        known = {f"{W}id": str(number), f"{W}author": "", **change.attrib}
        for inner in [*change.iter(_RUN)]:
            if next(inner.iterancestors(*_INSERTED, *_DELETED)) is change:
                wrapper = etree.Element(change.tag, known)
                inner.addprevious(wrapper)
                wrapper.append(inner)
        if len(change):
            change.tag = f"{W}smartTag"


def _join_next(paragraph: etree._Element) -> None:
    """Moves the content of the paragraph to the beginning of the next one: the mark between them is deleted."""
    following = paragraph.getnext()
    if paragraph.tag != _PARAGRAPH or following is None or following.tag != _PARAGRAPH:
        return
    properties = following.find(f"{W}pPr")
    content = [child for child in paragraph if child.tag != f"{W}pPr"]
    start = 0 if properties is None else 1
    following[start:start] = content
    _remove(paragraph)


def _choose_alternatives(part: etree._Element) -> None:
    for alternatives in [*part.iter(f"{_MC}AlternateContent")]:
        choices = [*alternatives.iterchildren(f"{_MC}Choice", f"{_MC}Fallback")]
        shown = (choice for choice in choices if next(choice.iter(*_SHOWN), None) is not None)
        for child in [*next(shown, choices[-1] if choices else ())]:
            alternatives.addprevious(child)
        _remove(alternatives)


def _unwrap(part: etree._Element) -> None:
    """Removes elements around runs and blocks, but not their content."""
    for simple in part.iter(f"{W}fldSimple"):
        command = run(element("instrText", simple.get(f"{W}instr", "")))
        simple[:0] = [
            run(element("fldChar", fldCharType="begin")),
            command,
            run(element("fldChar", fldCharType="separate")),
        ]
        simple.append(run(element("fldChar", fldCharType="end")))
    etree.strip_elements(part, *_WRAPPER_PROPERTIES, with_tail=False)
    etree.strip_tags(part, *_WRAPPERS)
    for paragraph in {formula.getparent() for formula in part.iter(f"{_M}oMathPara")}:
        others = sum(1 for _ in paragraph.iterchildren(_RUN, f"{W}hyperlink", f"{_M}oMath", f"{_M}oMathPara"))
        if paragraph.tag != _PARAGRAPH or others > 1:  # Pandoc reads one formula, and nothing beside it
            etree.strip_tags(paragraph, f"{_M}oMathPara")


def _lift_boxes(part: etree._Element) -> None:
    """Moves the text of boxes after the paragraphs in which they stand."""
    for box in reversed([*part.iter(f"{W}txbxContent")]):
        paragraph = next(box.iterancestors(_PARAGRAPH), None)
        for child in reversed(box):
            if paragraph is not None:
                paragraph.addnext(child)
        _remove(box)


def _draw(part: etree._Element) -> None:
    """Pictures as DrawingML in the line of text, where Pandoc finds what they show and their sizes."""
    for anchor in part.iter(f"{_WP}anchor"):
        anchor.tag = f"{_WP}inline"
    for linked in [one for one in part.iter(f"{_PIC}pic") if one.find(f".//{_A}blip[@{_R}embed]") is None]:
        _remove(linked)
    for old in [*part.iter(f"{W}pict", f"{W}object")]:
        for data in old.iter(f"{_V}imagedata"):
            if name := data.get(f"{_R}id"):
                old.addprevious(_picture(name, data.getparent()))
        _remove(old)


def _picture(name: str, shape: etree._Element) -> etree._Element:
    drawing = etree.Element(f"{W}drawing")
    inline = etree.SubElement(drawing, f"{_WP}inline")
    sizes = {side: str(int(float(size) * _EMU[unit])) for side, size, unit in _SIZE.findall(shape.get("style", ""))}
    if len(sizes) > 1:
        etree.SubElement(inline, f"{_WP}extent", cx=sizes["width"], cy=sizes["height"])
    etree.SubElement(inline, f"{_WP}docPr", descr=shape.get("alt", ""))
    etree.SubElement(etree.SubElement(inline, f"{_PIC}pic"), f"{_A}blip", {f"{_R}embed": name})
    return drawing


def _split_runs(part: etree._Element) -> None:
    """Gives pictures, notes and parts of fields runs of their own, and writes phonetic guides after their text."""
    for whole in [*part.iter(_RUN)]:
        for guide in [*whole.iterchildren(f"{W}ruby")]:
            base = [*guide.iterfind(f"{W}rubyBase//{W}t")]
            reading = "".join(text.text or "" for text in guide.iterfind(f"{W}rt//{W}t"))
            for text in [*base, element("t", f"({reading})")]:
                guide.addprevious(text)
            _remove(guide)
        content = [child for child in whole if child.tag != _PROPERTIES]
        if len(content) < 2 or _OWN_RUN.isdisjoint(child.tag for child in content):
            continue
        properties = whole.find(_PROPERTIES)
        last = whole
        for before, child in zip([None, *content], content, strict=False):
            if before is not None and (child.tag in _OWN_RUN or before.tag in _OWN_RUN):
                following = etree.Element(_RUN)
                if properties is not None:
                    following.append(deepcopy(properties))
                last.addnext(following)
                last = following
            if last is not whole:
                last.append(child)


@dataclass
class _Field:
    """A field: its command, and where it leads once its result has begun. `hidden` are runs that are not its result.

    `outer` is the outermost field in whose command it is.
    """

    outer: _Field | None
    hidden: list[etree._Element] = field(default_factory=list)
    command: str = ""
    has_result: bool = False
    link: tuple[str, str] = ("", "")


def _replace_fields(part: etree._Element) -> None:
    """Makes links of fields that lead somewhere, and text of what fields of forms show."""
    fields: list[_Field] = []
    for one in [*part.iter(_RUN)]:
        mark = one.find(f"{W}fldChar")
        kind = "" if mark is None else mark.get(f"{W}fldCharType", "")
        command = one.find(f"{W}instrText")
        last = fields[-1] if fields else _Field(None, has_result=True)
        waiting = last.outer or (None if last.has_result else last)
        if kind == "begin":
            fields.append(_Field(waiting, link=last.link))
            one[:] = [element("t", text) for text in _form_texts(one)]
        elif kind == "separate" and fields:
            last.has_result = True
            found = _target(last.command)
            last.link = found if any(found) else last.link
            _remove(one)
        elif kind == "end" and fields:
            for hidden in fields.pop().hidden:
                _remove(hidden)
            _remove(one)
        elif waiting is not None:  # the result of a field in the command of another is a part of that
            texts = one.iter(f"{W}instrText") if command is not None else one.iter(f"{W}t")
            waiting.command += "".join(text.text or "" for text in texts)
            waiting.hidden.append(one)
        elif any(last.link):
            _link(one, *last.link)


def _form_texts(begin: etree._Element) -> Iterator[str]:
    for box in begin.iter(f"{W}checkBox"):
        state = next(box.iterchildren(f"{W}checked"), None)
        state = next(box.iterchildren(f"{W}default"), None) if state is None else state
        yield _BOXES[state is not None and _is_on(state)]
    for choice in begin.iter(f"{W}ddList"):
        entries = [entry.get(f"{W}val", "") for entry in choice.iterchildren(f"{W}listEntry")]
        chosen = choice.find(f"{W}result")
        number = "0" if chosen is None else chosen.get(f"{W}val", "0")
        yield entries[int(number)] if number.isdecimal() and int(number) < len(entries) else ""


def _target(command: str) -> tuple[str, str]:
    """The URL and the bookmark to which a field leads; empty if it leads nowhere."""
    kind, *words = [quoted or plain for quoted, plain in _ARGUMENT.findall(command)] or [""]
    kind = kind.upper()
    if kind in ("REF", "PAGEREF", "NOTEREF"):
        return ("", words[0]) if words and r"\h" in words[1:] else ("", "")
    url, bookmark = "", ""
    arguments = iter(words if kind == "HYPERLINK" else ())
    for word in arguments:
        if word in (r"\l", r"\o", r"\t"):
            value = next(arguments, "")
            bookmark = value if word == r"\l" else bookmark
        elif not word.startswith("\\") or word.startswith("\\\\"):
            url = url or word.replace("\\\\", "\\")
    return url, bookmark


def _link(one: etree._Element, url: str, bookmark: str) -> None:
    """Puts a run, with the mark of its change, into a link."""
    parent = one.getparent()
    inner = parent if parent.tag in (*_INSERTED, *_DELETED) else one
    if inner.getparent().tag == f"{W}hyperlink":
        return
    if url:
        address = f"{url}#{bookmark}" if bookmark else url
        command = element("instrText", ' HYPERLINK "{}" '.format(address.replace('"', "%22")))
        for before in (element("fldChar", fldCharType="begin"), command, element("fldChar", fldCharType="separate")):
            inner.addprevious(run(before))
        inner.addnext(run(element("fldChar", fldCharType="end")))
    else:
        link = element("hyperlink", anchor=bookmark)
        inner.addprevious(link)
        link.append(inner)


def _place_marks(part: etree._Element) -> None:
    """Moves bookmarks between paragraphs into the next one, and begins comments where only their marks are."""
    for place in part.iter(f"{W}body", f"{W}tc"):
        following = None
        for child in [*place][::-1]:
            if child.tag == _PARAGRAPH:
                following = child
            elif child.tag in _MARKS and following is not None:
                following.insert(int(following.find(f"{W}pPr") is not None), child)
    begun = {start.get(f"{W}id") for start in part.iter(f"{W}commentRangeStart")}
    for reference in part.iter(f"{W}commentReference"):
        if (name := reference.get(f"{W}id")) not in begun and name is not None:
            reference.getparent().addprevious(element("commentRangeStart", id=name))
    for comment in part.iter(f"{W}comment"):
        comment.set(f"{W}author", comment.get(f"{W}author", ""))


def _remove(one: etree._Element) -> None:
    parent = one.getparent()
    if parent is not None:
        parent.remove(one)
