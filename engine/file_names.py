"""Names of files: what makes those of clients harmless, and the option `filename`, such as `{name}-{width}.{ext}`."""

from __future__ import annotations

import re
import unicodedata
from pathlib import PurePath
from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field

from engine.decode_limits import Size
from engine.formats import FileFormat
from engine.options import Option, OptionValues
from engine.outcome import Outcome

_FIELDS = ("name", "ext", "format", "width", "height")
_FIELD = re.compile(r"\{([^{}]*)\}")
_MAX_LENGTH = 200  # characters of a template
_MAX_BYTES = 255  # the limit of a name in UTF-8
# What Windows forbids, and escapes that a program may decode to a path, a control character or another escape.
_FORBIDDEN = re.compile(r'[<>:"/\\|?*]|%(?=2[5ef]|5c|7f|[01][0-9a-f])', re.IGNORECASE)
# Options of commands, and devices of Windows, which have any extension.
_SPECIAL = re.compile(r"-|(?:con|prn|aux|nul|(?:com|lpt)\d|clock\$|conin\$|conout\$) *(?:\.|$)", re.IGNORECASE)


def _check_template(text: str) -> str:
    unknown = [name for name in _FIELD.findall(text) if name not in _FIELDS]
    if unknown or set("{}") & set(_FIELD.sub("", text)):
        raise ValueError(f"must have no other fields than {', '.join(f'{{{name}}}' for name in _FIELDS)}.")
    if set("/\\") & set(text) or any(unicodedata.category(character) in ("Cc", "Cs") for character in text):
        raise ValueError("must be the name of a file, without folders and control characters.")
    return text


FileName: TypeAlias = Annotated[
    str,
    AfterValidator(_check_template),
    Field(
        min_length=1,
        max_length=_MAX_LENGTH,
        examples=["{name}-{width}.{ext}"],
        description="The name of the result: text with the fields {name}, of the upload without its extension, {ext}, "
        "{format}, {width} and {height}, which are empty where the result has no size. An extension is added if it "
        "has none of its format.",
    ),
]

FILENAME: Final = Option("filename", FileName)
"""The option of all conversions and tools that names the result. No step has it."""


def file_name(template: str, name: str, target: FileFormat, size: Size | None, *, container: str | None = None) -> str:
    """Returns the name that a template gives a result, which a container makes an archive. `name` is the upload's.

    The name is untrusted: the caller makes it harmless.
    """
    width, height = size or ("", "")
    extensions = (container,) if container else target.extensions
    values = {"name": name, "ext": extensions[0], "format": target.name, "width": width, "height": height}
    text = _FIELD.sub(lambda field: str(values[field[1]]), template)
    return text if text.lower().endswith(tuple(f".{one}" for one in extensions)) else f"{text}.{extensions[0]}"


def extension(fmt: FileFormat, filename: str) -> str:
    """The extension of the client's file name if it belongs to the format, else the format's default."""
    client_extension = extension_of(filename)
    return client_extension if client_extension in fmt.extensions else fmt.extensions[0]


def extension_of(client_name: str) -> str:
    """The extension in lower case without a dot; empty unless it is 1 to 10 ASCII alphanumerics."""
    match = re.search(r"\.([A-Za-z0-9]{1,10})\Z", client_name)
    return match[1].lower() if match else ""


def safe_name(client_name: str) -> str:
    """The client's file name without its path and without invisible characters; `file` if nothing is left."""
    name = visible(re.split(r"[/\\]", client_name)[-1]).strip()
    return name.encode()[:_MAX_BYTES].decode(errors="ignore") or "file"


def stem(client_name: str) -> str:
    """The client's file name without its extension, as the names of results begin."""
    name = safe_name(client_name).strip(" .")
    return safe_stem(name.rpartition(".")[0] or name) or "file"


def result_name(client_name: str, options: OptionValues, target: FileFormat, outcome: Outcome) -> str:
    """The name of a result: as of the client's file, unless the option `filename` is a template for it."""
    template = str(options.get(FILENAME.name, "{name}.{ext}"))
    size = None if outcome.width is None or outcome.height is None else (outcome.width, outcome.height)
    name = file_name(template, stem(client_name), target, size, container=outcome.container)
    return f"{stem(name)}.{extension_of(name)}"


def safe_stem(text: str, max_bytes: int = 150) -> str:
    """Returns untrusted text as a file name before its extension, which is harmless on all systems; "" if none is left.

    It has at most `max_bytes` of UTF-8, of 255 for the whole name, and an underscore before what would be no name.
    """
    name = _FORBIDDEN.sub("_", visible(text)).strip(" .").encode()[:max_bytes].decode(errors="ignore").rstrip(" .")
    return f"_{name}" if _SPECIAL.match(unicodedata.normalize("NFKC", name)) else name


def visible(text: str) -> str:
    """Removes control and format characters, line separators, lone surrogates and bidirectional marks."""
    if text.isprintable():  # nearly all names are
        return text
    return "".join(one for one in text if one.isprintable() or unicodedata.category(one) == "Zs")


class UniqueNames:
    """Names of one archive, with a number in those that an earlier one equals: `photo (2).webp`.

    Names are equal if they differ only in case or in how accents are encoded, as for most file systems.
    """

    def __init__(self) -> None:
        self._latest: dict[str, int] = {}  # the last number of each name that is used

    def add(self, name: str) -> str:
        """Returns the name, or another one if it is used already."""
        unique = name
        path = PurePath(name)
        key = _normalized(name)
        while _normalized(unique) in self._latest:
            self._latest[key] += 1
            unique = f"{path.stem} ({self._latest[key]}){path.suffix}"
        self._latest[_normalized(unique)] = 1
        return unique


def _normalized(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
