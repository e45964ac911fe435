"""PSD (Adobe Photoshop): the merged picture, read by Pillow; what Pillow cannot read or write, by psd-tools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import psd_tools.composite  # noqa: F401  # psd-tools would import it in a job, whose sandbox may not let it
from PIL import ImageChops
from psd_tools import PSDImage
from psd_tools.constants import Resource
from psd_tools.psd.image_resources import ImageResource

from engine import (
    RASTER,
    FileFormat,
    Frame,
    Holds,
    Loss,
    Options,
    Raster,
    Samples,
    Signature,
    conversion,
    hookimpl,
)
from engine.color import normalised
from engine.conversions import AnyConversion
from engine.gates import check_size
from plugins import _exif, _pillow

PSD = FileFormat(
    "psd",
    media_type="image/vnd.adobe.photoshop",
    extensions=("psd",),
    sniff=Signature((0, b"8BPS"), (4, b"\0\1")),
    density=0.5,
)

_GREY, _RGB = 1, 3  # colour modes that have a 16-bit form here
_MERGED_FLAG = 4  # in the version resource: whether the merged picture is there


@conversion(PSD, RASTER, loss=Loss.STRUCTURE, cost=2)
def decode(data: bytes, _options: Options) -> Raster:
    depth, mode = (int.from_bytes(data[at : at + 2], "big") for at in (22, 24))
    check_size(int.from_bytes(data[18:22], "big"), int.from_bytes(data[14:18], "big"))
    if depth > 8:
        deep = _deep(data) if mode in (_GREY, _RGB) else None
        return Raster(_composed(data), deep=deep)
    image = _pillow.opened(data, "PSD")
    resources = {number: block for number, _, block in getattr(image, "resources", ())}
    version = resources.get(Resource.VERSION_INFO, b"\0\0\0\0\1")
    raster = _pillow.raster(image, [image.tell()])
    if not version[_MERGED_FLAG]:
        # What composing layers takes is not told by the size of the picture.
        raster = replace(raster, frames=_composed(data), sizes=())
    exif = resources.get(Resource.EXIF_DATA_1)
    return replace(
        raster,
        exif=_exif.PREFIX + exif if exif else None,
        xmp=resources.get(Resource.XMP_METADATA),
    )


def _composed(data: bytes) -> Iterator[Frame]:
    """The picture made from the visible layers, or the merged one where psd-tools reads what Pillow does not."""
    document = PSDImage.open(BytesIO(data))
    image = document.composite(force=not document.has_preview())
    if image is None:
        raise ValueError("neither a merged picture nor layers")
    yield Frame(image, _profile(document))


def _deep(data: bytes) -> Iterator[Frame]:
    document = PSDImage.open(BytesIO(data))
    array = normalised(document.numpy("color"))
    grey = array.shape[2] == 1
    yield Frame(Samples(array[..., 0] if grey else array, "L" if grey else "RGB"), _profile(document))


def _profile(document: PSDImage) -> bytes | None:
    profile = document.image_resources.get_data(Resource.ICC_PROFILE)
    return profile if isinstance(profile, bytes) else None


# So much only where there is transparency, of which psd-tools makes a layer.
@conversion(RASTER, PSD, cost=3, memory=70)
def encode(raster: Raster, _options: Options) -> bytes:
    """A merged picture; where it has alpha, a layer too, because only layers are transparent in a PSD."""
    frame = raster.single(Holds(("L", "RGB", "RGBA", "CMYK"), icc=True, longest=30_000))
    image = frame.image
    # The file counts ink downwards.
    document = PSDImage.frompil(ImageChops.invert(image) if image.mode == "CMYK" else image)
    if image.mode == "RGBA":
        document.create_pixel_layer(image, name="Layer 1")
    for resource, block in (
        (Resource.ICC_PROFILE, frame.icc_profile),
        (Resource.EXIF_DATA_1, raster.exif and raster.exif.removeprefix(_exif.PREFIX)),
        (Resource.XMP_METADATA, raster.xmp),
    ):
        if block:
            document.image_resources[resource] = ImageResource(key=resource.value, data=block)
    file = BytesIO()
    document.save(file)
    return file.getvalue()


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, encode]
