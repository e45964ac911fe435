"""Clients' file names, made safe to send back."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

_FORBIDDEN = re.compile(r'[<>:"|?*]')  # on some system
_MAX_NAME = 255  # bytes of UTF-8
_MAX_STEM = 150  # bytes of UTF-8; systems stop at 255 for the whole name
_ATTR_CHAR = "!#$&+-.^_`|~"  # what RFC 8187 leaves as it is, beside letters and digits


def plain(client_name: str) -> str:
    """The client's name for a file, without a path and what cannot be seen."""
    name = _visible(re.split(r"[/\\]", client_name)[-1]).strip()
    return name.encode("utf-8", "replace")[:_MAX_NAME].decode("utf-8", "ignore") or "file"


def renamed(client_name: str, extension: str) -> str:
    """The name of a result: the client's, without its path and extension, with the new extension."""
    name = _FORBIDDEN.sub("_", plain(client_name)).strip(" .")
    stem, dot, _ = name.rpartition(".")
    stem = (stem if dot else name).rstrip(" .")
    short = stem.encode("utf-8", "replace")[:_MAX_STEM].decode("utf-8", "ignore")
    return f"{short or 'file'}.{extension}"


def extension_of(client_name: str) -> str:
    """The name's extension in lower case, without a dot; empty unless it is a short plain word."""
    found = re.search(r"\.([A-Za-z0-9]{1,10})\Z", client_name)
    return found[1].lower() if found else ""


def content_disposition(name: str) -> str:
    """The header that makes browsers save the answer under that name (RFC 6266)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r'["\\%]', "_", plain)
    if plain.startswith("."):
        plain = f"file{plain}"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHAR)}"


def _visible(text: str) -> str:
    """Without control and format characters, lone surrogates, and the marks that turn text around."""
    return "".join(char for char in text if not unicodedata.category(char).startswith("C"))
