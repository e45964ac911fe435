"""PSD files that Pillow does not read, and those that are written, by psd-tools."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import psd_tools.composite  # noqa: F401  # psd-tools would import it in a job, whose sandbox may not let it
from PIL import ImageChops
from psd_tools import PSDImage
from psd_tools.constants import Resource
from psd_tools.psd.image_resources import ImageResource

from engine import DeepPixels, Frame
from engine.color import normalised


def composite(data: bytes) -> Iterator[Frame]:
    """The picture made from the visible layers, or the merged one where psd-tools reads what Pillow does not."""
    document = PSDImage.open(BytesIO(data))
    image = document.composite(force=not document.has_preview())
    if image is None:
        raise ValueError("neither a merged picture nor layers")
    yield Frame(image, _profile(document))


def deep_frames(data: bytes) -> Iterator[Frame]:
    """The merged picture with more than 8 bits a sample."""
    document = PSDImage.open(BytesIO(data))
    array = normalised(document.numpy("color"))
    grey = array.shape[2] == 1
    yield Frame(DeepPixels(array[..., 0] if grey else array, "L" if grey else "RGB"), _profile(document))


def _profile(document: PSDImage) -> bytes | None:
    profile = document.image_resources.get_data(Resource.ICC_PROFILE)
    return profile if isinstance(profile, bytes) else None


def encode(frame: Frame, exif: bytes | None, xmp: bytes | None) -> bytes:
    """A merged picture; where it has alpha, a layer too, because only layers are transparent in a PSD."""
    image = frame.image
    # The file counts ink downwards.
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
