"""Limits on pixels, frames and pages, checked against headers before decoding and against images while decoding."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from engine.errors import ConversionError, CorruptInput, OutOfMemory, TooLarge
from engine.library_errors import lacks_memory

MAX_PIXELS = 100_000_000
MAX_FRAMES = 500
MAX_TOTAL_PIXELS = 400_000_000

Size: TypeAlias = tuple[int, int]
"""Width and height in pixels."""


class _Sized(Protocol):
    @property
    def size(self) -> Size: ...


P = TypeVar("P", bound=_Sized)


def check_size(width: int, height: int) -> None:
    """Raises TooLarge if an image of `width` x `height` pixels exceeds MAX_PIXELS."""
    if width * height > MAX_PIXELS:
        raise TooLarge(
            f"{width} x {height} pixels exceed the limit of {MAX_PIXELS}.",
            reason="pixels",
            details={"max_pixels": MAX_PIXELS, "width": width, "height": height},
        )


def check_side(size: Size, max_side: int) -> None:
    """Raises TooLarge if a side is longer than `max_side` pixels, the limit of the target format."""
    width, height = size
    if max(size) > max_side:
        raise TooLarge(
            f"The target format allows {max_side} pixels per side; the image has {width} x {height}.",
            reason="pixels",
            details={"max_side": max_side, "width": width, "height": height},
        )


def check_count(count: int, sizes: Sequence[Size], kind: str) -> None:
    """Raises TooLarge if a file has too many images or too many pixels in total.

    `kind` is "frames" or "pages" and becomes the error's reason. `sizes` lists the known sizes, at most `count`.
    """
    for size in sizes:
        check_size(*size)
    pixels = sum(width * height for width, height in sizes)
    if count > MAX_FRAMES or pixels > MAX_TOTAL_PIXELS:
        raise TooLarge(
            f"The file has more than {MAX_FRAMES} {kind} or {MAX_TOTAL_PIXELS} pixels in total.",
            reason=kind,
            details={
                f"max_{kind}": MAX_FRAMES,
                kind: count,
                "max_total_pixels": MAX_TOTAL_PIXELS,
                "total_pixels": pixels,
            },
        )


def limit_images(images: Iterable[P], sizes: list[Size], kind: str) -> Iterator[P]:
    """Yields the images and appends their sizes to `sizes`.

    Raises TooLarge beyond the limits, CorruptInput if the decoder fails, and OutOfMemory.
    """
    try:
        for image in images:
            sizes.append(image.size)
            check_count(len(sizes), sizes, kind)
            yield image
            del image  # frees its memory before the next one is decoded
    except (ConversionError, GeneratorExit):
        raise
    except Exception as error:
        if lacks_memory(error):
            raise OutOfMemory("The image exceeds the memory limit of a task.") from error
        raise CorruptInput("The image data cannot be decoded.") from error
