"""The fonts of the system that jobs may read, as fontconfig lists them."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from plugins._fonts import EXTENSIONS, FOLDERS

_SYSTEM = 0  # FcSetSystem
_INDEX = 0xFFFF  # Bits above are of instances of variable fonts.
_STYLES = re.compile("Bold|Italic|Oblique|Condensed|Narrow|Light|Mono")


class _FontSet(ctypes.Structure):
    _fields_ = (("count", ctypes.c_int), ("size", ctypes.c_int), ("fonts", ctypes.POINTER(ctypes.c_void_p)))


class InstalledFont:
    """A font of the system: the names of its family, and the file and index at which it is."""

    def __init__(self, library: ctypes.CDLL, pattern: ctypes.c_void_p) -> None:
        index = ctypes.c_int()
        in_color = ctypes.c_int()
        self._library = library
        self._characters = ctypes.c_void_p()
        library.FcPatternGetCharSet(pattern, b"charset", 0, ctypes.byref(self._characters))
        library.FcPatternGetInteger(pattern, b"index", 0, ctypes.byref(index))
        library.FcPatternGetBool(pattern, b"color", 0, ctypes.byref(in_color))
        self.index = index.value & _INDEX
        self.in_color = bool(in_color.value)
        self.names = [*_texts(library, pattern, b"family")]
        self.path = Path(*_texts(library, pattern, b"file"))

    def has(self, char: str) -> bool:
        """Whether the font has a glyph for the character."""
        return bool(self._library.FcCharSetHasChar(self._characters, ord(char)))

    @property
    def family(self) -> str:
        """The first name of the family."""
        return self.names[0]

    @property
    def is_usable(self) -> bool:
        """Whether jobs may read the file, and all renderers can."""
        is_readable = any(folder in self.path.parents for folder in FOLDERS)
        return bool(is_readable and self.names and self._characters) and self.path.suffix.lower() in EXTENSIONS

    @cached_property
    def data(self) -> bytes:
        """The content of the file."""
        return self.path.read_bytes()


def _texts(library: ctypes.CDLL, pattern: ctypes.c_void_p, name: bytes) -> Iterator[str]:
    """The values of a property, such as the names of the family in several languages."""
    value = ctypes.c_char_p()
    number = 0
    while not library.FcPatternGetString(pattern, name, number, ctypes.byref(value)):
        yield (value.value or b"").decode(errors="replace")
        number += 1


def _listed() -> Iterator[InstalledFont]:
    try:
        library = ctypes.CDLL("libfontconfig.so.1")
    except OSError:
        return
    library.FcInitLoadConfigAndFonts.restype = ctypes.c_void_p
    library.FcConfigGetFonts.restype = ctypes.POINTER(_FontSet)
    found = library.FcConfigGetFonts(ctypes.c_void_p(library.FcInitLoadConfigAndFonts()), _SYSTEM)
    for pattern in found.contents.fonts[: found.contents.count] if found else ():
        yield InstalledFont(library, ctypes.c_void_p(pattern))


def _preference(font: InstalledFont) -> tuple[object, ...]:
    stem = font.path.stem
    return font.in_color, stem != "DejaVuSans", bool(_STYLES.search(stem)), font.path, font.index


# At import, because a fork server imports once what jobs share.
INSTALLED = sorted((font for font in _listed() if font.is_usable), key=_preference)
"""The fonts of the system in the order in which they are tried: regular ones first, those for emoji last."""
BY_FAMILY = {name.lower(): font for font in reversed(INSTALLED) for name in font.names}
"""The first font of each family, by its names in lower case."""
