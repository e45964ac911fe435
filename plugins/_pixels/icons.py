"""Icons: the sizes of the images in a file, which are squares, and the images themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

from PIL import Image
from pydantic import Field

from engine import FidelityWarning, Size
from plugins._pixels import resampling

MODULES = resampling.MODULES
_SIZE = r"(25[0-6]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]?)"


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes in ascending order."""
    return tuple(sorted({int(number) for number in text.split(",")}))


Sizes: TypeAlias = Annotated[
    str,
    Field(
        pattern=rf"^{_SIZE}(, ?{_SIZE}){{0,31}}$",
        examples=["16,32,48,256"],
        description="1 to 256, with commas between: sides in pixels of the squares in an icon. Images do not grow; "
        "drawings are drawn at the largest.",
    ),
]


def reached(sizes: Sequence[int], size: Size) -> list[int]:
    """The sizes that an image of this size reaches with its longer side; if it reaches none, that side."""
    return [one for one in sizes if one <= max(size)] or [max(size)]


def square(image: Image.Image, side: int) -> Image.Image:
    """The image within a transparent square of this side, in the middle. It is reduced, but not enlarged."""
    placed = within(image, side)
    if placed.size == (side, side):
        return placed
    canvas = Image.new("RGBA", (side, side))
    canvas.paste(placed, ((side - placed.width) // 2, (side - placed.height) // 2))
    return canvas


def within(image: Image.Image, side: int) -> Image.Image:
    """The image, reduced if a side is longer than `side`."""
    resampled = resampling.resample(image, size_within(image.size, side), (0, 0, *image.size))
    assert isinstance(resampled, Image.Image)
    return resampled


def size_within(size: Size, side: int) -> Size:
    """The size of an image of this size after it is reduced so that no side is longer than `side`."""
    longest = max(size)
    if longest <= side:
        return size
    return max(1, round(size[0] * side / longest)), max(1, round(size[1] * side / longest))


def warn_of_sizes(sizes: Sequence[int], size: Size) -> None:
    """Issues the FidelityWarning that the image is smaller than some of the requested sizes."""
    missing = [one for one in sizes if one > max(size)]
    if missing:
        names = ", ".join(map(str, missing))
        FidelityWarning.issue("not_enlarged", f"The image has {size[0]} x {size[1]} pixels; not included: {names}.")
