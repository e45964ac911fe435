"""Writes PDF pages that show one image each, at its printed size. Compressed images are embedded as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from PIL import Image

from engine import FidelityWarning, Frame, Size, color
from engine.mupdf import pymupdf
from plugins._jpeg.embedding import PLACEMENTS
from plugins._pixels import pillow, png_chunks

_DEFAULT_DPI = 96  # for images without a resolution
_BANDS = {"1": 1, "L": 1, "RGB": 3, "CMYK": 4}
_DEVICES = {1: "/DeviceGray", 3: "/DeviceRGB", 4: "/DeviceCMYK"}


@dataclass(frozen=True)
class Stream:
    """An image as PDF stores it: samples that the filter decodes, such as `DCTDecode` with its `parameters`.

    `mode` is 1, L, RGB or CMYK, by Pillow's names. `inverted`: a sample of 0 is white, or full ink. `alpha` is the
    transparency, of mode L. `bits` is the depth of samples. If there is a `palette` of colors, they number them.
    """

    data: bytes
    size: Size
    mode: str
    filter: str
    parameters: str = "<<>>"
    inverted: bool = False
    icc_profile: bytes | None = None
    alpha: Stream | None = None
    bits: int = 8
    palette: bytes = b""


Tiles: TypeAlias = Sequence[tuple[Stream, tuple[int, int]]]
"""The parts of an image, each with the position of its upper left corner in pixels."""


def jpeg_stream(data: bytes, size: Size, mode: str, icc_profile: bytes | None) -> Stream:
    """The stream of a JPEG file of mode L, RGB or CMYK."""
    return Stream(data, size, mode, "DCTDecode", inverted=mode == "CMYK", icc_profile=icc_profile)


def encode_frame(frame: Frame, quality: int | None) -> Stream:
    """The image as JPEG of this quality. Without loss if it is None, and if the image has 1 bit."""
    image, profile = frame.image, frame.icc_profile
    if image.mode == "1":
        if quality is not None:
            FidelityWarning.issue("quality_ignored", "Images of 1 bit are stored without loss.")
        return _bilevel_stream(image)
    alpha = image.getchannel("A") if image.mode == "RGBA" else None
    colors = image.convert("RGB") if alpha else image
    if quality is None:
        stream = _lossless_stream(colors, profile)
    else:
        stream = jpeg_stream(pillow.encode_jpeg(colors, quality=quality), image.size, colors.mode, profile)
    return stream if alpha is None else replace(stream, alpha=_lossless_stream(alpha, None))


def _lossless_stream(image: Image.Image, icc_profile: bytes | None) -> Stream:
    """The stream of an image of mode L, RGB or CMYK."""
    parameters = f"<</Predictor 15/Colors {_BANDS[image.mode]}/Columns {image.width}>>"  # the rows of a PNG
    data = png_chunks.compress_pixels(image)
    return Stream(data, image.size, image.mode, "FlateDecode", parameters, icc_profile=icc_profile)


def _bilevel_stream(image: Image.Image) -> Stream:
    group4, data = pillow.compress_bilevel(image)
    if group4:
        return group4_stream(data, image.size, black=1)
    return Stream(data, image.size, "1", "FlateDecode", inverted=True)


def group4_stream(data: bytes, size: Size, *, black: int) -> Stream:
    """The stream of an image of 1 bit by Group 4, in which samples of the value `black` are black."""
    parameters = f"<</K -1/Columns {size[0]}/Rows {size[1]}/BlackIs1 {str(black == 0).lower()}>>"
    return Stream(data, size, "1", "CCITTFaxDecode", parameters)


class ImageWriter:
    """Makes a document with a page per image."""

    def __init__(self) -> None:
        self.document = pymupdf.open()
        self._profiles: dict[bytes, int] = {}

    def add_page(
        self, image: Stream | Tiles, size: Size, dpi: tuple[float, float] | None, orientation: int = 1
    ) -> None:
        """Adds a page of the printed size of an image, which shows it upright. `size` is in pixels as stored."""
        across, down = dpi or (_DEFAULT_DPI, _DEFAULT_DPI)
        width, height = size[0] * 72 / across, size[1] * 72 / down
        if orientation >= 5:
            width, height = height, width
        page = self.document.new_page(width=width, height=height)
        tiles: Tiles = [(image, (0, 0))] if isinstance(image, Stream) else image
        parts = [(self._add_image(tile), position, tile.size) for tile, position in tiles]
        matrix = " ".join(f"{value:.4f}" for value in PLACEMENTS[orientation](width, height))
        drawn = [
            f"q {_within(size, position, part)} cm /Picture{number} Do Q"
            for number, (_, position, part) in enumerate(parts)
        ]
        names = "".join(f"/Picture{number} {xref} 0 R" for number, (xref, _, _) in enumerate(parts))
        content = self._add_stream(f"q {matrix} cm {' '.join(drawn)} Q".encode())
        self.document.xref_set_key(page.xref, "Resources", f"<</XObject<<{names}>>>>")
        self.document.xref_set_key(page.xref, "Contents", f"{content} 0 R")

    def _add_image(self, image: Stream) -> int:
        """Adds the stream. Returns its object number."""
        bands = _BANDS[image.mode]
        entries = {
            "Type": "/XObject",
            "Subtype": "/Image",
            "Width": str(image.size[0]),
            "Height": str(image.size[1]),
            "BitsPerComponent": str(1 if image.mode == "1" else image.bits),
            "ColorSpace": self._color_space(image),
            "Filter": f"/{image.filter}",
            "DecodeParms": image.parameters,
        }
        if image.alpha:
            entries["SMask"] = f"{self._add_image(image.alpha)} 0 R"
        if image.inverted:
            entries["Decode"] = f"[{' '.join(['1 0'] * bands)}]"
        return self._add_stream(image.data, entries)

    def _color_space(self, image: Stream) -> str:
        bands = _BANDS[image.mode]
        profile = color.matching_profile(image.mode, image.icc_profile)
        space = _DEVICES[bands]
        if profile is not None:
            if profile not in self._profiles:
                self._profiles[profile] = self._add_stream(profile, {"N": str(bands)})
            space = f"[/ICCBased {self._profiles[profile]} 0 R]"
        if image.palette:
            space = f"[/Indexed {space} {len(image.palette) // bands - 1} <{image.palette.hex()}>]"
        return space

    def _add_stream(self, data: bytes, entries: dict[str, str] | None = None) -> int:
        xref: int = self.document.get_new_xref()
        self.document.update_object(xref, "<<>>")
        self.document.update_stream(xref, data, compress=False)
        for key, value in (entries or {}).items():  # afterwards: updating a stream removes the keys of its compression
            self.document.xref_set_key(xref, key, value)
        return xref


def _within(whole: Size, position: tuple[int, int], part: Size) -> str:
    """The matrix that places a part of an image in the unit square of the whole. PDF counts from the bottom."""
    across, down = part[0] / whole[0], part[1] / whole[1]
    left, bottom = position[0] / whole[0], 1 - position[1] / whole[1] - down
    return f"{across:.8f} 0 0 {down:.8f} {left:.8f} {bottom:.8f}"
