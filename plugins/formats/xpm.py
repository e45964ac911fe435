"""XPM (X PixMap): images as C source code, with any number of colors. A color can be transparent."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image, ImageColor

from engine import (
    RASTER,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    any_of,
    conversion,
    lazy_imports,
)
from plugins._pixels import sample_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

    from engine.mupdf import pymupdf

MODULES = ("numpy",)
XPM = FileFormat(
    "xpm",
    media_type="image/x-xpixmap",
    extensions=("xpm",),
    sniff=any_of(Signature((0, b"/* XPM */")), Signature((0, b"! XPM2"))),
    bytes_per_pixel=1,
)

# Comments, and strings of C. Both may be open at the end, so that a search never goes back.
_TOKEN = re.compile(rb'/\*.*?(?:\*/|\Z)|"([^"\\]*(?:\\.?[^"\\]*)*)("|\Z)', re.DOTALL)
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)
_HEADER = re.compile(rb"\s*(\d{1,9})\s+(\d{1,9})\s+(\d{1,9})\s+(\d)\b")
_KINDS = (b"c", b"g", b"g4", b"m")  # kinds of displays that have a color each, best first; s is a symbolic name
_MAX_CHARACTERS = 8  # per pixel; as many fit into one number
_PLAIN_COLOR = re.compile(rb"\s+c\s+#([0-9A-Fa-f]{6})\s*")
# Colors that X11 defines differently than CSS.
_X11 = {"gray": "#bebebe", "green": "#00ff00", "maroon": "#b03060", "purple": "#a020f0"}
_TRANSPARENT = (0, 0, 0, 0)  # a color
_OPAQUE = 128  # the least alpha of an opaque pixel
_CHARACTERS = bytes(code for code in range(32, 127) if code not in b'"\\')
_STRIP = 64  # rows written at a time


class _Xpm(NamedTuple):
    """The strings of a file: one for each color, and one for each row, with `characters` for each pixel."""

    size: Size
    characters: int
    colors: Sequence[bytes]
    rows: Sequence[bytes]


def _read_strings(data: bytes) -> _Xpm:
    """Raises CorruptInput."""
    if data.startswith(b"!"):  # XPM2, in which each line is a string
        lines = data.splitlines()[1:]
    else:
        found = (one[1] for one in _TOKEN.finditer(data) if one[2])
        lines = [_ESCAPED.sub(rb"\1", one) if b"\\" in one else one for one in found]
    header = _HEADER.match(lines[0]) if lines else None
    if header is None:
        raise CorruptInput("The header of the XPM is invalid.")
    width, height, count, characters = map(int, header.groups())
    if not 1 <= characters <= _MAX_CHARACTERS or len(lines) < 1 + count + height:
        raise CorruptInput("The file is truncated, or has too many characters for each pixel.")
    return _Xpm((width, height), characters, lines[1 : 1 + count], lines[1 + count : 1 + count + height])


@conversion(XPM, RASTER, memory=40)
def decode(data: bytes) -> Raster:
    xpm = _read_strings(data)
    palette = [_color(one[xpm.characters :]) for one in xpm.colors]
    alpha = "A" if _TRANSPARENT in palette else ""
    mode = "P" if len(palette) <= 256 and not alpha else f"RGB{alpha}"
    return sample_arrays.to_raster(lambda: _read(xpm, palette), xpm.size, mode)


def _read(xpm: _Xpm, palette: Sequence[tuple[int, ...]]) -> Image.Image:
    (width, height) = xpm.size
    characters = xpm.characters
    if any(len(row) < width * characters for row in xpm.rows) or not palette:
        raise CorruptInput("A row is too short, or there are no colors.")
    keys = _numbers(b"".join(color[:characters] for color in xpm.colors), characters)
    order = len(keys) - 1 - np.argsort(keys[::-1], kind="stable")  # of a key that occurs twice, the last one applies
    ordered = keys[order]
    indexes = np.empty((height, width), np.uint32)
    for y, row in enumerate(xpm.rows):
        pixels = _numbers(row[: width * characters], characters)
        indexes[y] = order[np.searchsorted(ordered, pixels).clip(max=len(keys) - 1)]
        if (keys[indexes[y]] != pixels).any():
            raise CorruptInput("A pixel has no color.")
    colors = np.array(palette, np.uint8)
    if colors[:, 3].all():
        colors = colors[:, :3]
    if len(colors) > 256:
        return Image.fromarray(colors[indexes])
    image = Image.fromarray(indexes.astype(np.uint8))
    image.putpalette(colors[:, :3].tobytes())
    if colors.shape[1] == 4:
        image.info["transparency"] = colors[:, 3].tobytes()
    return image


def _numbers(text: bytes, characters: int) -> NDArray[Any]:
    """Each group of characters as a number."""
    groups = np.frombuffer(text, np.uint8).reshape(-1, characters).astype(np.uint64)
    numbers: NDArray[Any] = (groups << np.arange(8 * characters - 8, -1, -8, dtype=np.uint64)).sum(axis=1)
    return numbers


def _color(definition: bytes) -> tuple[int, ...]:
    """Red, green, blue and alpha of a color as the best display shows it. Raises CorruptInput."""
    if found := _PLAIN_COLOR.fullmatch(definition):
        return (*bytes.fromhex(found[1].decode()), 255)
    values: dict[bytes, list[bytes]] = {}
    kind = b""
    for word in definition.split():
        if word in (*_KINDS, b"s") and values.get(kind, [b""]):
            kind = word
            values[kind] = []
        else:
            values.setdefault(kind, []).append(word)
    given = next((values[one] for one in _KINDS if values.get(one)), [])
    return _parse_color(b"".join(given).decode("latin-1").lower())


@lru_cache(1024)
def _parse_color(name: str) -> tuple[int, ...]:
    """Red, green, blue and alpha of a color by its name without spaces, or in hexadecimal. Raises CorruptInput."""
    if name == "none":
        return _TRANSPARENT
    if name.startswith("#") and len(name) in (10, 13):  # 12 or 16 bits per sample
        digits = (len(name) - 1) // 3
        name = "#" + "".join(name[start : start + 2] for start in range(1, len(name), digits))
    name = name.replace("grey", "gray")
    try:
        return (*ImageColor.getrgb(_X11.get(name, name))[:3], 255)
    except ValueError:  # a color that CSS lacks, such as brown4
        rgb = next((rgb for known, *rgb in pymupdf.colors_wx_list() if known.lower() == name), None)
    if rgb is None:
        raise CorruptInput("A color of the XPM is unknown.")
    return (*rgb, 255)


@conversion(
    RASTER, XPM, cost=2, memory=24, capabilities=TargetCapabilities(("L", "P", "PA", "RGB", "RGBA")), in_dry_run=True
)
def encode(raster: Raster) -> bytes:
    """All colors as they are. Pixels are transparent or opaque."""
    image = raster.first_frame().image
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    used = np.zeros((1 << 24) + 1, bool)  # by color; the last one is transparency
    for strip in _strips(image):
        used[strip] = True
    colors = np.flatnonzero(used)
    characters = next(one for one in range(1, 5) if len(_CHARACTERS) ** one >= len(colors))
    codes = [bytes(code) for code in islice(product(_CHARACTERS, repeat=characters), len(colors))]
    names = ("None" if color >> 24 else f"#{color:06X}" for color in colors.tolist())
    table = [b'"%b c %b",' % (code, name.encode()) for code, name in zip(codes, names, strict=True)]
    places = np.zeros(len(used), np.uint32)
    places[colors] = np.arange(len(colors))
    characters_of = np.frombuffer(b"".join(codes), np.uint8).reshape(-1, characters)
    rows = [b'"%b"' % row.tobytes() for strip in _strips(image) for row in characters_of[places[strip]]]
    header = b'"%d %d %d %d",' % (*image.size, len(colors), characters)
    start = (b"/* XPM */", b"static char *image[] = {", header, *table)
    return b"\n".join((*start, b",\n".join(rows), b"};", b""))


def _strips(image: Image.Image) -> Iterator[NDArray[np.uint32]]:
    """The colors of some rows at a time as numbers: 0xRRGGBB, or 0x1000000 for transparent ones."""
    samples = np.asarray(image)
    for top in range(0, image.height, _STRIP):
        strip = samples[top : top + _STRIP].astype(np.uint32)
        numbers = strip[..., 0] << 16 | strip[..., 1] << 8 | strip[..., 2]
        if strip.shape[2] == 4:
            alpha = strip[..., 3]
            if ((alpha > 0) & (alpha < 255)).any():
                FidelityWarning.issue("alpha_thresholded", "Pixels of XPM are either transparent or opaque.")
            numbers[alpha < _OPAQUE] = 1 << 24
        yield numbers.astype(np.uint32, copy=False)
