"""PPM (portable pixmap)."""

from io import BytesIO
from typing import Annotated

from PIL import Image
from pydantic import Field

from engine import (
    RASTER,
    AnyConversion,
    FileFormat,
    Frame,
    Raster,
    Signature,
    TargetCapabilities,
    any_of,
    conversion,
    hookimpl,
)

PPM = FileFormat(
    "ppm",
    media_type="image/x-portable-pixmap",
    extensions=("ppm",),
    sniff=any_of(Signature((0, b"P6")), Signature((0, b"P3"))),
)
Plain = Annotated[bool, Field(description="Writes the samples as text.")]


@conversion(PPM, RASTER)
def decode(data: bytes) -> Raster:
    return Raster([Frame(Image.open(BytesIO(data), formats=["PPM"]))])


@conversion(RASTER, PPM)
def encode(raster: Raster, *, plain: Plain = False) -> bytes:
    image = raster.first_frame(TargetCapabilities(("RGB",))).image
    samples = image.tobytes()
    if plain:
        return f"P3 {image.width} {image.height} 255\n".encode() + "\n".join(map(str, samples)).encode()
    return f"P6 {image.width} {image.height} 255\n".encode() + samples


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
