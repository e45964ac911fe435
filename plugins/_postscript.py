"""PostScript programs that draw one picture: EPS of language level 3 with 7-bit characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from engine import Size

_SPACES: Mapping[str, tuple[str, int]] = MappingProxyType(
    {"1": ("DeviceGray", 1), "L": ("DeviceGray", 1), "RGB": ("DeviceRGB", 3), "CMYK": ("DeviceCMYK", 4)}
)
_LINE = 60  # bytes of data in a line of 75 characters
_BLOCK = _LINE * 10_000

_PROGRAM = """%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 {page_width} {page_height}
%%LanguageLevel: 3
%%DocumentData: Clean7Bit
%%Pages: 1
%%EndComments
%%Page: 1 1
save
/{space} setcolorspace
[{matrix}] concat
{{
/Encoded currentfile /ASCII85Decode filter def
<<
/ImageType 1 /Width {width} /Height {height} /ImageMatrix [{width} 0 0 -{height} 0 {height}]
/BitsPerComponent {bits} /Decode [{decode}]
/DataSource Encoded {filter} filter
>> image
Encoded flushfile
}} exec
"""
_END = b"~>\nrestore\nshowpage\n%%EOF\n"


def picture_program(
    data: bytes,
    *,
    filter_: str,
    size: Size,
    mode: str,
    page: Size,
    matrix: Sequence[float],
    inverted: bool = False,
) -> bytes:
    """The program of an EPS with one picture of the mode 1, L, RGB or CMYK, on a page in points.

    `filter_` decodes `data`, with its parameters in PostScript. `matrix` places the unit square of the picture.
    """
    space, samples = _SPACES[mode]
    head = _PROGRAM.format(
        page_width=page[0],
        page_height=page[1],
        space=space,
        matrix=" ".join(f"{value:g}" for value in matrix),
        width=size[0],
        height=size[1],
        bits=1 if mode == "1" else 8,
        decode=" ".join(["1 0" if inverted else "0 1"] * samples),
        filter=filter_,
    )
    blocks = (_ascii85(data[start : start + _BLOCK]) for start in range(0, len(data), _BLOCK))
    return b"".join([head.encode("ascii"), *blocks, _END])


def _ascii85(data: bytes) -> bytes:
    """The data in ASCII85, in lines that begin with a space: readers take %% at the start of a line for a comment.

    The encoder of the standard library takes eight times as long.
    """
    import numpy as np

    padding = -len(data) % 4
    words = np.frombuffer(data + bytes(padding), ">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), np.uint8)
    for column in range(4, -1, -1):
        words, digits[:, column] = np.divmod(words, 85)
    characters = (digits + 33).tobytes()[: digits.size - padding]
    width = _LINE * 5 // 4
    lines = (characters[start : start + width] for start in range(0, len(characters), width))
    return b"".join(b" " + line + b"\n" for line in lines)
