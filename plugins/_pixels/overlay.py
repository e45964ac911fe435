"""Marks that are drawn on images: an image, or a text by FreeType; where they are, and in which colors."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from math import cos, radians, sin
from typing import TYPE_CHECKING, Any, Protocol

from PIL import Image, ImageDraw, ImageFont

from engine import DeepPixels, Frame, InvalidOption, Size, color, lazy_imports
from plugins._pixels import resampling
from plugins._pixels.sizes import focus_of, offset

with lazy_imports():
    import numpy as np

    from plugins._fonts import choice, installed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from plugins._fonts.choice import Font

MODULES = ("PIL.ImageFont", "PIL.ImageDraw", *resampling.MODULES)
_STRIP = 64  # rows drawn on at a time


class Mark(Protocol):
    """An image or a text in sRGB. `is_gray`: it has no colors but shades of gray. `ratio` is height to width."""

    @property
    def is_gray(self) -> bool: ...

    @property
    def ratio(self) -> float: ...

    def drawn(self, width: float) -> Image.Image:
        """The mark in RGBA with about this width in pixels."""
        ...


@dataclass(frozen=True)
class ImageMark:
    """A mark that is an image in RGBA."""

    image: Image.Image

    @property
    def is_gray(self) -> bool:
        red, green, blue, _ = (band.tobytes() for band in self.image.split())
        return red == green == blue

    @property
    def ratio(self) -> float:
        return self.image.height / self.image.width

    def drawn(self, width: float) -> Image.Image:
        """The image, resized to this width in pixels."""
        size = max(round(width), 1), max(round(width * self.ratio), 1)
        image = resampling.resample(self.image, size, (0, 0, *self.image.size))
        assert isinstance(image, Image.Image)  # as `image` is
        return image


@dataclass(frozen=True)
class Layout:
    """Where a mark is: its `position`, width and margin as shares of the width of the image, and angle in degrees."""

    position: str
    width: float
    margin: float
    angle: float

    def place(self, mark: Mark, size: Size) -> tuple[Image.Image, tuple[int, int]]:
        """The image to draw on an image of this size, and its left and top edge."""
        margin = round(size[0] * self.margin)
        if self.position == "tile":
            return _tiled(self._fitted(mark, size[0] * self.width, size), margin, size), (0, 0)
        inside = max(size[0] - 2 * margin, 1), max(size[1] - 2 * margin, 1)
        drawn = self._fitted(mark, size[0] * self.width, inside)
        left, top = offset(focus_of(self.position), inside, drawn.size)
        return drawn, ((size[0] - inside[0]) // 2 + left, (size[1] - inside[1]) // 2 + top)

    def _fitted(self, mark: Mark, width: float, inside: Size) -> Image.Image:
        """The turned mark with this width, or with a smaller one if it would not fit inside."""
        across, down = abs(cos(radians(self.angle))), abs(sin(radians(self.angle)))
        most = inside[0] / (across + mark.ratio * down), inside[1] / (down + mark.ratio * across)
        drawn = _turned(mark.drawn(min(width, *most)), self.angle)
        return drawn.crop((0, 0, min(drawn.width, inside[0]), min(drawn.height, inside[1])))  # rounded sizes


def _tiled(drawn: Image.Image, margin: int, size: Size) -> Image.Image:
    """An image of this size, filled with copies at a distance."""
    canvas = Image.new("RGBA", size)
    for top in range(0, size[1], drawn.height + margin):
        for left in range(0, size[0], drawn.width + margin):
            canvas.paste(drawn, (left, top))
    return canvas


def _turned(image: Image.Image, angle: float) -> Image.Image:
    """The image turned to the left by degrees, on a larger transparent one."""
    if angle % 360 == 0:
        return image
    # Multiplied with alpha, because transparent pixels have any color.
    return image.convert("RGBa").rotate(angle, Image.Resampling.BICUBIC, expand=True).convert("RGBA")


def draw_on(frame: Frame, mark: Image.Image, place: tuple[int, int], opacity: float) -> Frame:
    """The frame, of L, RGB or CMYK with or without alpha, with an image in RGBA drawn on it."""
    pixels = frame.pixels
    is_image = isinstance(pixels, Image.Image)
    array: NDArray[Any] = np.array(pixels) if isinstance(pixels, Image.Image) else pixels.array.copy()
    mode = pixels.mode
    maximum = np.iinfo(array.dtype).max
    profile = color.matching_profile(mode, frame.icc_profile)
    colors = np.asarray(color.in_profile(mark.convert("RGB"), mode.removesuffix("A"), profile))
    colors = colors if colors.ndim == 3 else colors[..., None]
    share = np.asarray(mark.getchannel("A"))
    left, top = place
    bands = array if array.ndim == 3 else array[..., None]
    part = bands[top : top + mark.height, left : left + mark.width]
    for row in range(0, mark.height, _STRIP):
        strip = part[row : row + _STRIP]
        above = share[row : row + _STRIP, :, None].astype(np.float32) * np.float32(opacity / 255)
        new = colors[row : row + _STRIP] * np.float32(maximum / 255)
        if mode.endswith("A"):
            below = strip[..., -1:] / np.float32(maximum) * (1 - above)
            total = above + below
            mixed = (new * above + strip[..., :-1] * below) / np.maximum(total, np.float32(1e-6))
            strip[...] = np.concatenate((mixed, total * maximum), axis=-1) + np.float32(0.5)
        else:
            strip[...] = strip + (new - strip) * above + np.float32(0.5)
    return replace(frame, pixels=Image.fromarray(array, mode) if is_image else DeepPixels(array, mode))


_FAMILY = "dejavu sans"  # Latin, Greek, Cyrillic, Armenian, Georgian, Hebrew, Arabic and symbols
_MEASURED = 100.0  # pixels per em at which a text is measured
_OUTLINE = 0.03  # em
_LIGHT = 128  # Colors with this brightness, of 255, have a black outline.


@dataclass(frozen=True)
class TextMark:
    """A mark that is a text. `runs` are its parts and their fonts, `fill` is red, green, blue and alpha."""

    runs: tuple[tuple[str, Font], ...]
    fill: tuple[int, int, int, int]
    direction: str

    @classmethod
    def of(cls, text: str, fill: tuple[int, int, int, int]) -> TextMark:
        """The mark with this text. Raises InvalidOption if no font has a character of it."""
        letters = (unicodedata.bidirectional(char) for char in text)
        first = next((kind for kind in letters if kind in ("L", "R", "AL")), "L")
        chooser = choice.FontChooser(in_color=False)
        preferred = installed.BY_FAMILY.get(_FAMILY)
        chosen = chooser.runs(unicodedata.normalize("NFC", text.strip()), preferred)
        for char in chooser.missing:
            message = f"No font has the character {char} of watermark_text."
            raise InvalidOption(message, reason="unknown", param="watermark_text", details={"value": char})
        runs = tuple((part, font) for part, font in chosen if font is not None)
        return cls(runs if first == "L" else runs[::-1], fill, "ltr" if first == "L" else "rtl")

    @property
    def is_gray(self) -> bool:
        return len({*self.fill[:3]}) == 1

    @cached_property
    def _measured(self) -> tuple[int, int]:
        return self._drawn(_MEASURED).size

    @property
    def ratio(self) -> float:
        return self._measured[1] / self._measured[0]

    def drawn(self, width: float) -> Image.Image:
        """The text, with this width in pixels but for rounding."""
        return self._drawn(max(_MEASURED * width / self._measured[0], 1.0))

    def _drawn(self, size: float) -> Image.Image:
        """The text at this size in pixels per em, without space around it."""
        fonts = [_at_size(font, size) for _, font in self.runs]
        lengths = [font.getlength(text, self.direction) for font, (text, _) in zip(fonts, self.runs, strict=True)]
        margin = round(size)  # glyphs exceed their box
        heights = [sum(font.getmetrics()) for font in fonts]
        image = Image.new("RGBA", (round(sum(lengths)) + 2 * margin, max(heights) + 2 * margin), (*self.fill[:3], 0))
        draw = ImageDraw.Draw(image)
        red, green, blue, _ = self.fill
        shade = 0 if 0.299 * red + 0.587 * green + 0.114 * blue >= _LIGHT else 255
        outline = (shade, shade, shade, self.fill[3])
        x, y = float(margin), margin + max(font.getmetrics()[0] for font in fonts)
        for font, length, (text, _) in zip(fonts, lengths, self.runs, strict=True):
            draw.text(
                (x, y),
                text,
                self.fill,
                font,
                "ls",
                direction=self.direction,
                stroke_width=size * _OUTLINE,
                stroke_fill=outline,
            )
            x += length
        return image.crop(image.getchannel("A").getbbox() or (0, 0, 1, 1))


def _at_size(font: Font, size: float) -> ImageFont.FreeTypeFont:
    return ImageFont.truetype(BytesIO(font.data), size, font.index, layout_engine=ImageFont.Layout.RAQM)
