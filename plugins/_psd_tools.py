"""Reading and writing PSD with psd-tools."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import psd_tools.composite  # noqa: F401  # otherwise imported in the job, where the sandbox may refuse it
from PIL import ImageChops
from psd_tools import PSDImage
from psd_tools.constants import Resource
from psd_tools.psd.image_resources import ImageResource

from engine import DeepPixels, Frame, color


def composite(data: bytes) -> Iterator[Frame]:
    """The merged picture, or a composite of the visible layers if there is none."""
    document = PSDImage.open(BytesIO(data))
    image = document.composite(force=not document.has_preview())
    if image is None:
        raise ValueError("no merged picture and no layers")
    yield Frame(image, _profile(document))


def deep_frames(data: bytes) -> Iterator[Frame]:
    """The merged picture with 16 bits per sample."""
    document = PSDImage.open(BytesIO(data))
    array = color.to_16_bits(document.numpy("color"))
    grey = array.shape[2] == 1
    yield Frame(DeepPixels(array[..., 0] if grey else array, "L" if grey else "RGB"), _profile(document))


def _profile(document: PSDImage) -> bytes | None:
    profile = document.image_resources.get_data(Resource.ICC_PROFILE)
    return profile if isinstance(profile, bytes) else None


def encode(frame: Frame, exif: bytes | None, xmp: bytes | None) -> bytes:
    """A PSD with a merged picture. With alpha it also has a layer, because only layers can be transparent."""
    image = frame.image
    # PSD stores CMYK inverted.
    document = PSDImage.frompil(ImageChops.invert(image) if image.mode == "CMYK" else image)
    if image.mode == "RGBA":
        document.create_pixel_layer(image, name="Layer 1")
    for resource, block in (
        (Resource.ICC_PROFILE, frame.icc_profile),
        (Resource.EXIF_DATA_1, exif),
        (Resource.XMP_METADATA, xmp),
    ):
        if block:
            document.image_resources[resource] = ImageResource(key=resource.value, data=block)
    file = BytesIO()
    document.save(file)
    return file.getvalue()
