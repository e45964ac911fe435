"""Reduces the images of a PDF to a resolution and compresses them again, where that makes them smaller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from typing import Any

from pikepdf import Name, Pdf, PdfError, Stream
from PIL import Image, JpegImagePlugin

from engine import Size
from engine.mupdf import pymupdf
from engine.option_types import ColorSpace
from plugins._jpeg import transform
from plugins._pdf import flate
from plugins._pdf.images.placements import Id, Sizes, largest_sizes
from plugins._pdf.images.stored_images import LARGE, Encoding, StoredImage, bilevel, deflated, jpeg
from plugins._pdf.objects import stored_length
from plugins._pdf.passwords import authenticate
from plugins._pixels import resampling

_MAX_RATIO = 1.5  # images with more than this times the requested resolution are reduced
_BILEVEL_FACTOR = 2  # Images without gray need twice the resolution.
_LOSSLESS_QUALITY = 100  # Images that were stored without loss stay so.
_LOWEST_QUALITY = 30  # Below, fewer pixels look better than more loss at the same size.
_MIN_GAIN = 0.85  # Another loss must make a JPEG smaller than this share of its size.
_STEP_RATIO = 0.85  # A JPEG whose steps are larger than this share of the requested ones has no higher quality.
_MARGIN = 2  # times the final resolution at which such an image is filtered
_MIN_BYTES = 256  # smaller images are not worth the effort
_SPACES = {"srgb": pymupdf.csRGB, "gray": pymupdf.csGRAY}


@dataclass(frozen=True)
class ImageSettings:
    """The quality of JPEG from 1 to 100, the dots per inch to which images are reduced, and their color space."""

    quality: int
    dpi: float
    color_space: ColorSpace = "keep"

    @classmethod
    def of(cls, quality: int, dpi: float, color_space: ColorSpace = "keep") -> ImageSettings:
        """The settings for a quality that a user asks for: a low one reduces the resolution, too."""
        share = min(1.0, quality / _LOWEST_QUALITY)
        return cls(max(quality, _LOWEST_QUALITY), dpi * share, color_space)


def recompress(document: Pdf, settings: ImageSettings, data: bytes, password: str) -> int:
    """Replaces images, one at a time, of a document that was read from `data`, with its password.

    Returns the number of those that can be JPEGs, whether they changed or not.

    Images of 1 bit keep it. Masks have no loss but the one of resolution. Damaged images stay.
    """
    try:
        sizes = largest_sizes(document)
    except PdfError:  # It is unknown how large the images are.
        sizes = {}
    streams = {stream.objgen: stream for stream in _images(document)}
    masks = _masks(streams, sizes)
    count = 0
    file = pymupdf.open(stream=data, filetype="pdf")
    authenticate(file, password)
    for number in sorted(streams, key=masks.__contains__):  # A mask is needed to reduce the image that it belongs to.
        image = StoredImage.of(streams[number], file)
        if image is None:
            continue
        is_photo = number not in masks and not image.is_bilevel and not image.has_fixed_samples
        count += is_photo
        if stored_length(streams[number]) >= _MIN_BYTES:
            size = image.size if image.has_fixed_samples else _reduced_size(image, sizes.get(number), settings)
            _recompress(image, size, settings, is_photo=is_photo)
    return count


def _images(document: Pdf) -> Iterator[Stream]:
    return (item for item in document.objects if isinstance(item, Stream) and item.get("/Subtype") == Name.Image)


def _masks(streams: dict[Id, Stream], sizes: Sizes) -> set[Id]:
    """The images that are masks of others. Adds the sizes at which they are drawn."""
    found: set[Id] = set()
    for number, stream in streams.items():
        for mask in (stream.get("/SMask"), stream.get("/Mask")):
            if isinstance(mask, Stream):
                found.add(mask.objgen)
                drawn = sizes.get(number), sizes.get(mask.objgen)
                known = [size for size in drawn if size is not None]
                if known:
                    sizes[mask.objgen] = max(width for width, _ in known), max(height for _, height in known)
    return found


def _reduced_size(image: StoredImage, drawn: tuple[float, float] | None, settings: ImageSettings) -> Size:
    """The size in pixels of an image, given the largest one in points at which it is drawn."""
    if drawn is None or min(drawn) <= 0:
        return image.size
    width, height = image.size
    dpi = min(width / drawn[0], height / drawn[1]) * 72
    wanted = settings.dpi * (_BILEVEL_FACTOR if image.is_bilevel else 1)
    if dpi <= wanted * _MAX_RATIO:
        return image.size
    return ceil(width * wanted / dpi), ceil(height * wanted / dpi)


def _recompress(stored: StoredImage, size: Size, settings: ImageSettings, *, is_photo: bool) -> None:
    """Stores an image at a size, in the smallest of the ways in which it can be stored."""
    converts = is_photo and settings.color_space != "keep"
    is_changed = size != stored.size or converts
    if stored.bits < 8 or stored.has_palette:  # otherwise the samples are compressed below
        flate.recompress(stored.stream)
    if is_changed or _can_shrink(stored, settings):
        # A large image is first reduced as far as its final size is not changed by it.
        is_large = stored.size[0] * stored.size[1] > LARGE
        step = max(1, min(stored.size[0] // size[0], stored.size[1] // size[1]) // _MARGIN) if is_large else 1
        image = stored.decode_as(_SPACES[settings.color_space], step) if converts else stored.decode(step)
        if image is not None:
            image = _resample(stored, image, size)
            encoding = _encode(stored, image, settings, is_photo=is_photo)
            gain = 1 if is_changed or not stored.is_lossy else _MIN_GAIN
            if converts or len(encoding.data) < stored_length(stored.stream) * gain:
                stored.replace(image, encoding)
                if converts:
                    stored.set_space(image)
                return
    if stored.filters[-1:] == ["/DCTDecode"]:
        _optimize_jpeg(stored)
    else:
        flate.recompress(stored.stream)


def _can_shrink(image: StoredImage, settings: ImageSettings) -> bool:
    """Whether an image that keeps its size and colors can become smaller."""
    if image.has_fixed_samples:
        return False
    return image.filters != ["/DCTDecode"] or _steps(image.stream.read_raw_bytes()) < _STEP_RATIO * _steps(
        jpeg(Image.new(image.mode, (8, 8)), settings.quality)
    )


def _encode(stored: StoredImage, image: Image.Image, settings: ImageSettings, *, is_photo: bool) -> Encoding:
    """An image as JPEG, or without loss if it was, and if that is smaller."""
    if stored.is_bilevel:
        return bilevel(image)
    if not stored.is_lossy and (not is_photo or settings.quality == _LOSSLESS_QUALITY):
        return deflated(image)
    lossy = Encoding(jpeg(image, settings.quality), "DCTDecode")
    # A large image would need several times its memory. Without loss, it is compared as it is stored.
    if stored.is_lossy or image.width * image.height > LARGE:
        return lossy
    # The best compression takes long, and makes nothing half as large as the fastest does.
    if len(deflated(image, fast=True).data) > 2 * len(lossy.data):
        return lossy
    return min(deflated(image), lossy, key=lambda one: len(one.data))


def _resample(stored: StoredImage, image: Image.Image, size: Size) -> Image.Image:
    """The image at a size. Colors that are more transparent count less."""
    if size == stored.size:
        return image
    soft_mask = stored.stream.get("/SMask")
    mask = StoredImage.of(soft_mask) if isinstance(soft_mask, Stream) else None
    if mask is not None and mask.size == image.size and image.mode in ("L", "RGB"):
        alpha = mask.decode_as(pymupdf.csGRAY)
        if alpha is not None:
            image.putalpha(alpha)
    colors = resampling.resample(image, size, (0, 0, *image.size))
    assert isinstance(colors, Image.Image)
    if stored.is_bilevel:
        return colors.convert("1", dither=Image.Dither.NONE)
    return colors.convert(colors.mode.removesuffix("A"))


def _optimize_jpeg(image: StoredImage) -> None:
    """Compresses the coefficients of a JPEG better, and removes another compression around it."""
    stream = image.stream
    raw = image.stream.read_raw_bytes()
    if image.filters == ["/FlateDecode", "/DCTDecode"] and "/DecodeParms" not in stream:
        data = flate.decompress(raw)
        if data is None:
            return
        stream.write(data, filter=Name.DCTDecode)
        raw = data
    if image.is_jpeg and image.bands in (1, 3):
        data = transform.transform(raw, progressive=True)
        if data is not None and len(data) < len(raw):
            parameters: Any = stream.get("/DecodeParms")
            stream.write(data, filter=Name.DCTDecode, decode_parms=parameters)


def _steps(data: bytes) -> float:
    """The sum of the steps to which a JPEG rounds brightness; 0 for damaged files."""
    try:
        with Image.open(BytesIO(data), formats=["JPEG"]) as image:
            assert isinstance(image, JpegImagePlugin.JpegImageFile)
            return float(sum(image.quantization.get(0, ())))
    except (OSError, SyntaxError, ValueError):
        return 0.0
