"""PPM (portable pixmap)."""

from collections.abc import Iterator
from io import BytesIO
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
    any_of,
    conversion,
    tool,
)

PPM = FileFormat(
    "ppm",
    media_type="image/x-portable-pixmap",
    extensions=("ppm",),
    sniff=any_of(Signature((0, b"P6")), Signature((0, b"P3"))),
)
RGB = TargetCapabilities(("RGB",))
Plain = Annotated[bool, Field(description="Writes the samples as text.")]
Columns = Annotated[int, Field(ge=1, le=10, description="Number of tiles.")]
Stamp = Annotated[Raster, InputFile(RASTER, "A picture for the corner of each tile.")]


@conversion(PPM, RASTER)
def decode(data: bytes) -> Raster:
    return Raster([Frame(Image.open(BytesIO(data), formats=["PPM"]).convert("RGB"))])


@conversion(RASTER, PPM, holds=RGB)
def encode(raster: Raster, *, plain: Plain = False) -> bytes:
    image = raster.first_frame().image
    samples = image.tobytes()
    if plain:
        return f"P3 {image.width} {image.height} 255\n".encode() + "\n".join(map(str, samples)).encode()
    return f"P6 {image.width} {image.height} 255\n".encode() + samples


@tool("ppm-tiles", RASTER, title="Cut into tiles", sources=(PPM,), archive=True)
def cut(raster: Raster, *, columns: Columns = 2, stamp: Stamp | None = None) -> ToolResult[Raster]:
    """Cuts a picture into tiles beside each other, with a stamp in their corners."""
    image = raster.first_frame(RGB).image
    corner = None if stamp is None else stamp.first_frame(RGB).image

    def tiles() -> Iterator[tuple[str, Raster]]:
        for number in range(columns):
            left, right = image.width * number // columns, image.width * (number + 1) // columns
            tile = image.crop((left, 0, right, image.height))
            if corner is not None:
                tile.paste(corner)
            yield f"tile-{number + 1}", Raster([Frame(tile)])

    return ToolResult(files=tiles())
