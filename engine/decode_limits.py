"""What a job may decode or render, checked by headers before it is done and by pixels while it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol, TypeAlias, TypeVar

from engine.errors import ConversionError, CorruptInput, OutOfMemory, TooLarge

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
    """Raises TooLarge where a picture of that size may not be decoded or rendered, in pixels."""
    if width * height > MAX_PIXELS:
        raise TooLarge(
            f"{width} x {height} pixels exceed the limit of {MAX_PIXELS}.",
            reason="pixels",
            details={"max_pixels": MAX_PIXELS, "width": width, "height": height},
        )


def check_side(size: Size, longest: int) -> None:
    """Raises TooLarge where a side is longer than the target format can hold, in pixels."""
    width, height = size
    if max(size) > longest:
        raise TooLarge(
            f"The target holds no side longer than {longest} pixels; the picture has {width} x {height}.",
            reason="pixels",
            details={"max_side": longest, "width": width, "height": height},
        )


def check_count(count: int, sizes: Sequence[Size], kind: str) -> None:
    """Raises TooLarge where the pictures of a file are too many, or too large together.

    `kind`, frames or pages, is the error's reason; `sizes` may be fewer than `count` where they are not known.
    """
    for size in sizes:
        check_size(*size)
    pixels = sum(width * height for width, height in sizes)
    if count > MAX_FRAMES or pixels > MAX_TOTAL_PIXELS:
        raise TooLarge(
            f"More than {MAX_FRAMES} {kind}, or {MAX_TOTAL_PIXELS} pixels in all of them.",
            reason=kind,
            details={
                f"max_{kind}": MAX_FRAMES,
                kind: count,
                "max_total_pixels": MAX_TOTAL_PIXELS,
                "total_pixels": pixels,
            },
        )


def limit_pictures(pictures: Iterable[P], taken: list[Size], kind: str) -> Iterator[P]:
    """The pictures within the limits, their sizes noted in `taken`.

    A decoder that fails on the way found a corrupt file.
    """
    try:
        for picture in pictures:
            taken.append(picture.size)
            check_count(len(taken), taken, kind)
            yield picture
    except (ConversionError, GeneratorExit):
        raise
    except MemoryError as error:
        raise OutOfMemory("The picture needs more memory than a job may have.") from error
    except Exception as error:
        raise CorruptInput("The picture data cannot be decoded.") from error
