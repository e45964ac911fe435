"""Active content of a PDF: scripts, embedded programs, and actions that start programs or send data.

A link to a web page or to another file is active only if it runs by itself, and a destination in the document never is.
"""

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream, String

from engine import FidelityWarning
from plugins._pdf.attachments import embedded_files
from plugins._pdf.form_fields import remove_signatures
from plugins._pdf.name_trees import Ids, as_list, read_name_tree
from plugins._pdf.objects import entries, open_pdf, remove_entries, saved

_ACTIONS = {"/Launch": "Launch", "/SubmitForm": "SubmitForm", "/ImportData": "ImportData", "/RichMediaExecute": "Flash"}
_AUTOMATIC_ACTIONS = {**_ACTIONS, **dict.fromkeys(("/URI", "/GoToR", "/GoToE"), "OpenAction")}
_ACTIONS_WITH_SCRIPTS = ("/JavaScript", "/Rendition")
# Entries of annotations and of 3D models.
_ACTIVE_KEYS = {"/RichMediaContent": "Flash", "/OnInstantiate": "JavaScript"}
_AUTOMATIC = ("/OpenAction", "/AA")
# Without any of these names there is no active content.
_NAMES = (*_ACTIONS, *_ACTIONS_WITH_SCRIPTS, *_ACTIVE_KEYS, *_AUTOMATIC, "/XFA", "/EF")
_ANY_NAME = re.compile(rb"(?:%s)\b" % "|".join(_NAMES).encode())
_FILE_NAMES = ("/UF", "/F", "/DOS", "/Mac", "/Unix")
# Files that systems run when a user opens them.
_PROGRAM_SUFFIXES = (
    ".app", ".bat", ".cmd", ".cpl", ".dll", ".exe", ".hta", ".jar", ".js", ".jse", ".lnk", ".msi", ".pif", ".ps1",
    ".reg", ".scr", ".sh", ".swf", ".vb", ".vbe", ".vbs", ".wsf",
)  # fmt: skip
# Windows, Linux, scripts, and macOS.
_PROGRAM_STARTS = (b"MZ", b"\x7fELF", b"#!", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe", b"\xce\xfa\xed\xfe")
_HOLDERS = (Dictionary, Stream, Array)
_MAX_START = 4  # bytes
_MAX_FORM = 16 << 20  # bytes of a stream of an XFA form


class _Entry(NamedTuple):
    """An active entry of a dictionary, by its key, or of an array, by its index, and its kind for users."""

    holder: Any
    key: Any
    kind: str


def check_active_content(document: Pdf, *, sanitize: bool) -> bool:
    """Removes the active content if `sanitize`, and returns whether there is any; otherwise issues a warning of it."""
    found = list(_active_entries([document.trailer], within=False)) if _may_be_active(document) else []
    if sanitize:
        remove_entries((holder, key) for holder, key, _ in found)
    elif found:
        kinds = ", ".join(sorted({entry.kind for entry in found}))
        message = f"The PDF has active content, which sanitize removes: {kinds}."
        FidelityWarning.issue("active_content", message, of_original=True)
    return bool(found)


def check_file(data: bytes, password: str, *, sanitize: bool) -> bytes:
    """A file that was changed, without signatures, and without its active content if `sanitize`.

    Issues a warning for signatures, and for active content that stays.
    """
    with open_pdf(data, password) as document:
        is_signed = remove_signatures(document)
        is_active = check_active_content(document, sanitize=sanitize)
        return saved(document) if is_signed or (is_active and sanitize) else data


def _may_be_active(document: Pdf) -> bool:
    """Whether an object has a name without which there is no active content, or an active action that runs by itself.

    QPDF writes objects as text, with plain characters in names, in a fifth of the time of a walk through them.
    """
    holders: list[Any] = []
    for item in (document.trailer, *document.objects):
        if isinstance(item, Object):  # and no number
            described = item.stream_dict if isinstance(item, Stream) else item
            names = {name.decode() for name in _ANY_NAME.findall(described.unparse(resolved=True))}
            if names.difference(_AUTOMATIC):
                return True
            holders += [item] if names else []
    return any(_active_entries(holders, within=True))


def _active_entries(holders: list[Any], *, within: bool) -> Iterator[_Entry]:
    """The active entries of objects, and of all that they lead to; `within`: only of actions that run by themselves."""
    seen_objects: Ids = set()
    seen_automatic_actions: Ids = set()
    pending: list[tuple[Any, bool]] = [(holder, False) for holder in holders]
    while pending:
        holder, automatic = pending.pop()
        if holder.is_indirect:
            seen = seen_automatic_actions if automatic else seen_objects
            if holder.objgen in seen:
                continue
            seen.add(holder.objgen)
        for key, value in entries(holder):
            if isinstance(value, _HOLDERS):
                runs = _runs_by_itself(holder, key, value, automatic=automatic)
                if kind := _kind(holder, key, value, automatic=runs):
                    yield _Entry(holder, key, kind)
                if runs or not (within and value.is_indirect):
                    pending.append((value, runs))


def _runs_by_itself(holder: Any, key: Any, value: Any, *, automatic: bool) -> bool:
    """Whether a value is an action that runs by itself, or holds such actions, as its holder does if `automatic`."""
    if key in _AUTOMATIC:
        return isinstance(value, Dictionary)  # an array is a destination
    # An array holds successors, a dictionary without a type holds actions by event.
    is_group = isinstance(holder, Array) or "/S" not in holder
    return automatic and (is_group or key == "/Next")


def _kind(holder: Any, key: Any, value: Any, *, automatic: bool) -> str | None:
    """The name for users of the kind of an active entry. `automatic`: it runs by itself if it is an action."""
    # Looking up a key that is missing takes several times as long.
    if isinstance(value, Dictionary) and "/S" in value and isinstance(action := value["/S"], Name):
        if str(action) in _ACTIONS_WITH_SCRIPTS:
            return "JavaScript" if "/JS" in value else None
        return (_AUTOMATIC_ACTIONS if automatic else _ACTIONS).get(str(action))
    match key:
        case "/JavaScript" if read_name_tree(value):
            return "JavaScript"
        case "/XFA" if any(b"<script" in _content(packet, _MAX_FORM) for packet in as_list(value)):
            return "JavaScript"
        case "/EF" if _is_program(holder):
            return "embedded program"
    # What names the file goes, too: its entry in a name tree, or its annotation.
    return "embedded program" if _is_program(value) else _ACTIVE_KEYS.get(key)


def _is_program(value: Any) -> bool:
    """Whether a value specifies an embedded file that systems run, by its name or its start."""
    streams = embedded_files(value)
    if not streams:
        return False
    specification = value.get("/FS", value)
    names = [str(name) for key in _FILE_NAMES if isinstance(name := specification.get(key), String)]
    starts = [_content(stream, _MAX_START) for _, stream in streams]
    is_named = any(name.rstrip(" .").lower().endswith(_PROGRAM_SUFFIXES) for name in names)
    return is_named or any(start.startswith(_PROGRAM_STARTS) for start in starts)


def _content(stream: Any, limit: int) -> bytes:
    """At most `limit` bytes of what a stream holds; nothing for other objects and for rare filters."""
    if not isinstance(stream, Stream):
        return b""
    raw = stream.read_raw_bytes()
    match as_list(stream.get("/Filter")):
        case []:
            return raw[:limit]
        case [Name.FlateDecode]:
            with suppress(zlib.error):
                return zlib.decompressobj().decompress(raw, limit)
    return b""
