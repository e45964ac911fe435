"""PPM (portable pixmap)."""

from io import BytesIO

from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    FileFormat,
    Frame,
    Options,
    Raster,
    Signature,
    TargetCapabilities,
    conversion,
    hookimpl,
)

PPM = FileFormat("ppm", media_type="image/x-portable-pixmap", extensions=("ppm",), sniff=Signature((0, b"P6")))


@conversion(PPM, RASTER)
def decode(data: bytes, options: Options) -> Raster:
    return Raster([Frame(Image.open(BytesIO(data), formats=["PPM"]))])


@conversion(RASTER, PPM)
def encode(raster: Raster, options: Options) -> bytes:
    file = BytesIO()
    raster.first_frame(TargetCapabilities(("RGB",))).image.save(file, "PPM")
    return file.getvalue()


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
