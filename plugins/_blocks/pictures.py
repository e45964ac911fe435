"""Files of pictures in documents: their media types and names, and what targets hold of them."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace
from pathlib import PurePosixPath
from types import MappingProxyType

from PIL import UnidentifiedImageError

from engine import ConversionError, FidelityWarning, check_size
from engine.blocks import Picture
from plugins._pixels import pillow
from plugins.formats import svg

OF_BROWSERS = frozenset(f"image/{name}" for name in ("png", "jpeg", "gif", "webp", "avif", "svg+xml"))
"""Media types of pictures that browsers show."""
OF_MARKDOWN = OF_BROWSERS - {"image/avif", "image/svg+xml"}
"""Media types of pictures that programs show in Markdown, where they are data in URLs."""
OF_OFFICE = frozenset(f"image/{name}" for name in ("png", "jpeg", "gif", "bmp", "tiff", "x-emf", "x-wmf"))
"""Media types of pictures that all programs of Office show."""
OF_BOOKS = frozenset(f"image/{name}" for name in ("png", "jpeg", "gif"))
"""Media types of pictures that all readers of e-books show."""
_SVG = "image/svg+xml"
_DECODERS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "AVIF", "JPEG2000", "PPM")
_TYPES = MappingProxyType(
    {"jpg": "jpeg", "jpe": "jpeg", "tif": "tiff", "svg": "svg+xml", "emf": "x-emf", "wmf": "x-wmf"}
)
_EXTENSIONS = MappingProxyType({"jpeg": "jpg", "svg+xml": "svg", "x-emf": "emf", "x-wmf": "wmf"})


def media_type(name: str) -> str:
    """The media type of a picture whose file has this name."""
    extension = PurePosixPath(name).suffix.removeprefix(".").lower()
    return f"image/{_TYPES.get(extension, extension)}"


def extension(media_type: str) -> str:
    """The extension for files of a media type, without the dot."""
    kind = media_type.rpartition("/")[2]
    return _EXTENSIONS.get(kind, kind)


def adapt(picture: Picture, held: Set[str]) -> Picture | None:
    """The picture as a target holds it: as PNG, if its media type is none of `held`.

    Issues a warning and returns None for one that cannot be decoded, such as a metafile. Returns None for one that is
    not in the document, for which its reader has issued a warning.
    """
    if picture.url:
        return None
    if picture.media_type in held:
        return picture
    try:
        if picture.media_type == _SVG:
            image = svg.render(picture.data).first_frame().image
        else:
            image = pillow.open_image(picture.data, *_DECODERS)
            check_size(*image.size)
        image = image if image.mode in ("1", "L", "LA", "P", "RGB", "RGBA") else image.convert("RGB")
        return replace(picture, data=pillow.encode(image, "PNG"), media_type="image/png")
    except (ConversionError, UnidentifiedImageError, OSError, SyntaxError):
        message = f"Pictures of the type {picture.media_type} are not in the result."
        FidelityWarning.issue("pictures_dropped", message)
        return None
