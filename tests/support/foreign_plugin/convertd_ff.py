"""Farbfeld: 16 bits per sample, with transparency."""

from collections.abc import Iterator
from struct import pack, unpack
from typing import Annotated

from PIL import Image
from pydantic import Field

from engine import (
    RASTER,
    FileFormat,
    Frame,
    InputFile,
    Raster,
    Signature,
    TargetCapabilities,
    ToolResult,
    conversion,
    tool,
)

FF = FileFormat("ff", media_type="image/x-farbfeld", extensions=("ff",), sniff=Signature((0, b"farbfeld")))
RGBA = TargetCapabilities(("RGBA",))
Opaque = Annotated[bool, Field(description="Makes all pixels opaque.")]
Columns = Annotated[int, Field(ge=1, le=10, description="Number of tiles.")]
Stamp = Annotated[Raster, InputFile(RASTER, "An image for the corner of each tile.")]


@conversion(FF, RASTER)
def decode(data: bytes) -> Raster:
    size = unpack(">8xII", data[:16])
    return Raster([Frame(Image.frombytes("RGBA", size, data[16::2]))])  # the high bytes of the samples


@conversion(RASTER, FF, capabilities=RGBA)
def encode(raster: Raster, *, opaque: Opaque = False) -> bytes:
    image = raster.first_frame().image
    if opaque:
        image.putalpha(255)
    samples = bytearray(2 * len(image.tobytes()))
    samples[::2] = samples[1::2] = image.tobytes()
    return pack(">8sII", b"farbfeld", *image.size) + samples


@tool("ff-tiles", RASTER, title="Cut into tiles", sources=(FF,), archive=True)
def cut(raster: Raster, *, columns: Columns = 2, stamp: Stamp | None = None) -> ToolResult[Raster]:
    """Cuts an image into tiles beside each other, with a stamp in their corners."""
    image = raster.first_frame(RGBA).image
    corner = None if stamp is None else stamp.first_frame(RGBA).image

    def tiles() -> Iterator[tuple[str, Raster]]:
        for number in range(columns):
            left, right = image.width * number // columns, image.width * (number + 1) // columns
            tile = image.crop((left, 0, right, image.height))
            if corner is not None:
                tile.paste(corner)
            yield f"tile-{number + 1}", Raster([Frame(tile)])

    return ToolResult(files=tiles())
