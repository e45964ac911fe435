"""Mails as pages: what their head says, their text with its pictures, and the names of attached files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from email import errors, message_from_bytes, policy
from email.message import EmailMessage
from html import escape
from io import BytesIO
from mimetypes import guess_extension
from typing import Any, NamedTuple
from zipfile import ZipFile

from lxml import etree

from engine import CorruptInput, FidelityWarning, decode_text
from plugins._blocks import html_source
from plugins._blocks.writing import safe_link
from plugins._text.markup import check_elements, warn_not_loaded

FIELDS = ("From", "To", "Cc", "Date")
"""What the head of a mail shows below its subject."""
_MAX_ELEMENTS = 400_000
_MAX_NAMED = 5  # attached files in a warning
_CUT_OFF = (errors.CloseBoundaryNotFoundDefect, errors.InvalidBase64LengthDefect)
_WITHOUT_PARTS = (errors.StartBoundaryNotFoundDefect, errors.NoBoundaryInMultipartDefect)
_LINES = re.compile(r"\r\n?")
_EMPTY_LINES = re.compile(r"\n(?:[ \t]*+\n)++")
_BLANK = re.compile(rb"\s+|&nbsp;|<(?!img\b)[^<>]*>", re.IGNORECASE)  # what shows nothing, in HTML
_FLOWED = re.compile(r"(?<!\n--) \n(?![>\n])")  # but after what begins a signature
_STYLE = (
    "body { font-family: sans-serif } p.text { white-space: pre-wrap }"
    " table.mail { margin-bottom: 1em; border-bottom: 1px solid #bbb; width: 100% }"
    " table.mail th { text-align: left; vertical-align: top; width: 5em }"
)


class Attachment(NamedTuple):
    """An attached file: its name, its media type, its data, and the identifier by which the text shows it."""

    name: str
    media_type: str
    data: bytes
    content_id: str = ""


@dataclass
class Mail:
    """A mail: the fields of its head by their names, its texts as HTML, and what is attached."""

    fields: Mapping[str, str]
    texts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)


def parse(data: bytes) -> Mail:
    """Reads a mail as it was sent (RFC 5322, MIME). Raises CorruptInput."""
    try:
        message = message_from_bytes(data, policy=policy.default)
        mail = Mail({name: value for name in ("Subject", *FIELDS) if (value := _field(message, name))})
        if not mail.fields:
            raise CorruptInput("The file has no head of a mail.")
        for part in _leaves(message):
            _add(mail, part)
    except RecursionError as error:
        raise CorruptInput("The parts of the mail are nested too deeply.") from error
    except (LookupError, ValueError) as error:  # of parsers of fields
        raise CorruptInput("The mail is damaged.") from error
    return mail


def _field(message: EmailMessage, name: str) -> str:
    """The text of a field. It is decoded again as UTF-8 if it has bytes that are not encoded."""
    raw = [str(value) for key, value in message.raw_items() if key.lower() == name.lower()]
    text = ", ".join(raw)
    if text.isascii():
        with suppress(Exception):  # what the parsers of fields happen to raise for damaged ones
            text = ", ".join(map(str, message.get_all(name, [])))
    return one_line(text.encode("utf-8", "surrogateescape").decode("utf-8", "replace"))


def _leaves(part: EmailMessage) -> Iterator[EmailMessage]:
    """Yields the parts that are texts or attached; of alternatives, only the last one that shows something."""
    if part.get_content_maintype() != "multipart":
        yield part
        return
    _check(part)
    parts: list[EmailMessage] = [*part.iter_parts()]  # type: ignore[list-item]  # parts have the type of the mail
    if part.get_content_subtype() == "alternative":
        shown = [one for one in parts if _shows_something(one)]
        parts = [one for one in parts if one not in shown[:-1]]
    for one in parts:
        yield from _leaves(one)


def _shows_something(part: EmailMessage) -> bool:
    body = part.get_body(("html", "plain"))
    data = body.get_payload(decode=True) if body else None
    return isinstance(data, bytes) and bool(_BLANK.sub(b"", data))


def _check(part: EmailMessage) -> None:
    if any(isinstance(defect, _CUT_OFF) for defect in part.defects):
        raise CorruptInput("The mail is truncated.")
    if any(isinstance(defect, _WITHOUT_PARTS) for defect in part.defects):
        raise CorruptInput("The mail lacks its parts.")


def _add(mail: Mail, part: EmailMessage) -> None:
    kind = part.get_content_type()
    name = part.get_filename("")
    data = part.get_payload(decode=True)
    _check(part)
    if kind in ("text/html", "text/plain") and isinstance(data, bytes) and not name and not part.is_attachment():
        text = _decode(data, part.get_content_charset())
        mail.texts.append(text if kind == "text/html" else plain(text, flowed=part.get_param("format") == "flowed"))
        return
    if not isinstance(data, bytes):  # mails, and reports on them
        inner = part.get_payload(0)
        name = name or (isinstance(inner, EmailMessage) and _field(inner, "Subject")) or kind
        data = part.as_bytes()
    content_id = str(part.get("Content-ID", "")).strip(" <>")
    mail.attachments.append(Attachment(name or kind, kind, data, content_id))


def _decode(data: bytes, charset: str | None) -> str:
    try:
        return data.decode(charset or "utf-8")
    except (LookupError, ValueError):
        return decode_text(data)


def one_line(text: str) -> str:
    """The text with single blanks, and without characters that are not printed."""
    return " ".join("".join(char for char in text if char.isprintable() or char.isspace()).split())


def plain(text: str, *, flowed: bool = False) -> str:
    """HTML of a plain text: a paragraph for each group of lines. In a flowed one, a blank continues a line."""
    lines = _LINES.sub("\n", text).strip("\n")
    lines = _FLOWED.sub(" ", lines) if flowed else lines
    return "".join(
        f'<p class="text">{escape(group).replace(chr(10), "<br>")}</p>' for group in _EMPTY_LINES.split(lines)
    )


def to_page(mail: Mail) -> bytes:
    """An archive with the HTML of a mail, and its pictures that the text shows. What is elsewhere is removed.

    Raises TooLarge. Issues warnings for that, and for attached files, which are only named.
    """
    subject = escape(mail.fields.get("Subject", ""))
    fields = (f"<tr><th>{name}<td>{escape(mail.fields[name])}" for name in FIELDS if name in mail.fields)
    head = f"<meta charset='utf-8'><title>{subject}</title><style>{_STYLE}</style>"
    page = etree.HTML(f"<html><head>{head}<body><h1>{subject}</h1><table class='mail'>{''.join(fields)}</table>")
    shown: dict[str, str] = {}
    for text in filter(str.strip, mail.texts):
        markup = text.encode("utf-8", "replace")
        check_elements(markup, _MAX_ELEMENTS)
        tree = html_source.parse(markup)
        _clean(tree, {file.content_id: file for file in mail.attachments if file.content_id}, shown)
        page[0].extend([*tree.iter("style")])
        body = next(tree.iter("body"), tree)
        body.tag = "div"
        page[1].append(body)
    _list(page[1], [file for file in mail.attachments if file.content_id not in shown])
    made = BytesIO()
    with ZipFile(made, "w") as archive:
        archive.writestr("index.html", etree.tostring(page, encoding="utf-8", method="html", doctype="<!DOCTYPE html>"))
        for file in mail.attachments:
            if name := shown.pop(file.content_id, ""):
                archive.writestr(name, file.data)
    return made.getvalue()


def _clean(tree: Any, files: Mapping[str, Attachment], shown: dict[str, str]) -> None:
    """Lets pictures show `files`, whose names are then in `shown`. Removes references to others, and unsafe links."""
    missing: dict[str, None] = {}
    for image in tree.iter("img"):
        source = (image.get("src") or "").strip()
        image.attrib.pop("srcset", None)
        scheme, _, name = source.partition(":")
        if scheme.lower() == "cid" and name in files:
            extension = guess_extension(files[name].media_type) or ""
            image.set("src", shown.setdefault(name, f"{len(shown)}{extension}"))
        elif scheme.lower() != "data":
            image.attrib.pop("src", None)
            missing |= {source: None} if source else {}
    warn_not_loaded([*missing])
    for link in tree.iter("a", "area"):
        if link.get("href"):
            link.set("href", safe_link(link.get("href")))


def _list(body: Any, files: Sequence[Attachment]) -> None:
    """Adds the names and sizes of attached files, with a warning, if there are any."""
    if not files:
        return
    names = ", ".join(one_line(file.name) for file in files[:_MAX_NAMED])
    more = f" and {len(files) - _MAX_NAMED} more" if len(files) > _MAX_NAMED else ""
    message = f"Files that are attached to the mail are listed, but not in the result: {names}{more}."
    FidelityWarning.issue("attachments_dropped", message)
    etree.SubElement(body, "h2").text = "Attachments"
    entries = etree.SubElement(body, "ul")
    for file in files:
        size = f" ({len(file.data):,} bytes)" if file.data else ""
        etree.SubElement(entries, "li").text = f"{one_line(file.name)}{size}"
