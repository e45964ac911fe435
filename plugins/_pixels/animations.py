"""Animations that a file stores as rectangles: their frames, composed as browsers show them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from PIL import Image
from PIL.PngImagePlugin import Disposal

from engine import FidelityWarning, Frame, Raster, Size, color
from plugins._pixels import pillow


@dataclass(frozen=True, slots=True)
class Block:
    """What a file stores of a frame: a rectangle (left, top, right, bottom), which `decode` returns as an image.

    `duration` is in milliseconds. `opaque`: it has no transparent pixel. `over`: pixels are laid over those below by
    their transparency; otherwise they replace them. `disposal` is what becomes of the rectangle before the next frame.
    """

    box: tuple[int, int, int, int]
    decode: Callable[[], Image.Image]
    duration: float
    disposal: Disposal
    gray: bool
    opaque: bool
    over: bool = True


def to_raster(image: Image.Image, blocks: Sequence[Block], pages: str | None) -> Raster:
    """The frames that `pages` selects, in L, RGB, LA or RGBA; a block that is a frame keeps its palette.

    `image` is the opened file, and has the size of the frames.
    """
    mode = "L" if all(block.gray for block in blocks) else "RGB"
    mode += "" if _are_opaque(image.size, blocks) else "A"
    order = pillow.select(list(range(len(blocks))), pages)
    raster = pillow.to_raster(image, order, animated=len(order) > 1)
    sample = pillow.sample(mode, image.info.get("icc_profile")) if mode.endswith("A") else raster.sample
    return replace(raster, frames=pillow.in_order(order, partial(_compose, image, mode, blocks)), sample=sample)


def plays(raster: Raster, most: int) -> int:
    """How often an animation plays in a file that can say up to `most`; 0: forever. Issues a warning if it is more."""
    if raster.loop_count > most:
        FidelityWarning.issue("timing_rounded", f"The target plays an animation at most {most:,} times.")
    return min(raster.loop_count, most)


def _are_opaque(size: Size, blocks: Sequence[Block]) -> bool:
    """Whether the headers prove that no frame has a transparent pixel."""
    whole = [block.opaque and block.box == (0, 0, *size) for block in blocks]
    laid_on = all((block.opaque or block.over) and block.disposal != Disposal.OP_BACKGROUND for block in blocks)
    return all(whole) or (whole[0] and laid_on and blocks[0].disposal == Disposal.OP_NONE)


def _compose(header: Image.Image, mode: str, blocks: Sequence[Block], order: Sequence[int]) -> Iterator[Frame]:
    """The frames of the ascending indexes in `order`."""
    canvas: Image.Image | None = None  # None: transparent
    for index, block in enumerate(blocks[: order[-1] + 1]):
        shown = _draw(block, canvas, header.size, mode)
        if index in order:
            yield Frame(pillow.upright(shown, header), header.info.get("icc_profile"), block.duration)
        if block.disposal == Disposal.OP_NONE:
            canvas = shown
        elif block.disposal == Disposal.OP_BACKGROUND and canvas is not None:
            canvas = None if block.box == (0, 0, *header.size) else shown.convert(mode)
            if canvas is not None:
                canvas.paste(0, block.box)
        del shown


def _draw(block: Block, canvas: Image.Image | None, size: Size, mode: str) -> Image.Image:
    """A new image: the canvas with the block, as far as it is inside."""
    left, top, right, bottom = block.box
    inside = min(right, size[0]) - left, min(bottom, size[1]) - top
    if min(inside) <= 0:
        return Image.new(mode, size) if canvas is None else canvas.convert(mode)
    image = color.standard_mode(block.decode()).crop((0, 0, *inside))
    replaces = canvas is None or block.opaque or not block.over
    if replaces and image.size == size:
        keeps_palette = image.mode == "P" and block.opaque != mode.endswith("A")
        return image if keeps_palette else image.convert(mode)
    drawn = Image.new(mode, size) if canvas is None else canvas.convert(mode)
    if replaces:
        drawn.paste(image.convert(mode), (left, top))
    elif mode.endswith("A"):
        drawn.alpha_composite(image.convert(mode), (left, top))
    else:
        overlay = image.convert(mode + "A")
        drawn.paste(overlay, (left, top), overlay)
    return drawn
