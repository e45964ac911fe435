"""Reduces the pictures of a PDF to a resolution and compresses them again, where that makes them smaller."""

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
from plugins._pdf.images.stored_images import Encoding, StoredPicture, bilevel, deflated, jpeg
from plugins._pixels import resampling

_MAX_RATIO = 1.5  # pictures with more than this times the requested resolution are reduced
_BILEVEL_FACTOR = 2  # Pictures without gray need twice the resolution.
_LOSSLESS_QUALITY = 100  # Pictures that were stored without loss stay so.
_LOWEST_QUALITY = 30  # Below, fewer pixels look better than more loss at the same size.
_MIN_GAIN = 0.85  # Another loss must make a JPEG smaller than this share of its size.
_STEP_RATIO = 0.85  # A JPEG whose steps are larger than this share of the requested ones has no higher quality.
_MIN_BYTES = 256  # smaller pictures are not worth the effort
_SPACES = {"srgb": pymupdf.csRGB, "gray": pymupdf.csGRAY}


@dataclass(frozen=True)
class PictureSettings:
    """The quality of JPEG from 1 to 100, the dots per inch to which pictures are reduced, and their color space."""

    quality: int
    dpi: float
    color_space: ColorSpace = "keep"

    @classmethod
    def of(cls, quality: int, dpi: float, color_space: ColorSpace = "keep") -> PictureSettings:
        """The settings for a quality that a user asks for: a low one reduces the resolution, too."""
        share = min(1.0, quality / _LOWEST_QUALITY)
        return cls(max(quality, _LOWEST_QUALITY), dpi * share, color_space)


def recompress(document: Pdf, settings: PictureSettings) -> int:
    """Replaces pictures, one at a time. Returns the number of those that can be JPEGs, whether they changed or not.

    Pictures of 1 bit keep it. Masks have no loss but the one of resolution. Damaged pictures stay.
    """
    try:
        sizes = largest_sizes(document)
    except PdfError:  # It is unknown how large the pictures are.
        sizes = {}
    streams = {stream.objgen: stream for stream in _pictures(document)}
    masks = _masks(streams, sizes)
    count = 0
    for number in sorted(streams, key=masks.__contains__):  # A mask is needed to reduce the picture that it belongs to.
        picture = StoredPicture.of(streams[number])
        if picture is None:
            continue
        is_photo = number not in masks and not picture.is_bilevel and not picture.has_fixed_samples
        count += is_photo
        if len(streams[number].read_raw_bytes()) >= _MIN_BYTES:
            size = picture.size if picture.has_fixed_samples else _reduced_size(picture, sizes.get(number), settings)
            _recompress(picture, size, settings, is_photo=is_photo)
    return count


def _pictures(document: Pdf) -> Iterator[Stream]:
    return (item for item in document.objects if isinstance(item, Stream) and item.get("/Subtype") == Name.Image)


def _masks(streams: dict[Id, Stream], sizes: Sizes) -> set[Id]:
    """The pictures that are masks of others. Adds the sizes at which they are drawn."""
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


def _reduced_size(picture: StoredPicture, drawn: tuple[float, float] | None, settings: PictureSettings) -> Size:
    """The size in pixels of a picture, given the largest one in points at which it is drawn."""
    if drawn is None or min(drawn) <= 0:
        return picture.size
    width, height = picture.size
    dpi = min(width / drawn[0], height / drawn[1]) * 72
    wanted = settings.dpi * (_BILEVEL_FACTOR if picture.is_bilevel else 1)
    if dpi <= wanted * _MAX_RATIO:
        return picture.size
    return ceil(width * wanted / dpi), ceil(height * wanted / dpi)


def _recompress(picture: StoredPicture, size: Size, settings: PictureSettings, *, is_photo: bool) -> None:
    """Stores a picture at a size, in the smallest of the ways in which it can be stored."""
    converts = is_photo and settings.color_space != "keep"
    is_changed = size != picture.size or converts
    if picture.bits < 8 or picture.has_palette:  # otherwise the samples are compressed below
        flate.recompress(picture.stream)
    if is_changed or _can_shrink(picture, settings):
        image = picture.decode_as(_SPACES[settings.color_space]) if converts else picture.decode()
        if image is not None:
            image = _resample(picture, image, size)
            encoding = _encode(picture, image, settings, is_photo=is_photo)
            gain = 1 if is_changed or not picture.is_lossy else _MIN_GAIN
            if converts or len(encoding.data) < len(picture.stream.read_raw_bytes()) * gain:
                picture.replace(image, encoding)
                if converts:
                    picture.set_space(image)
                return
    if picture.filters[-1:] == ["/DCTDecode"]:
        _optimize_jpeg(picture)
    else:
        flate.recompress(picture.stream)


def _can_shrink(picture: StoredPicture, settings: PictureSettings) -> bool:
    """Whether a picture that keeps its size and colors can become smaller."""
    if picture.has_fixed_samples:
        return False
    return picture.filters != ["/DCTDecode"] or _steps(picture.stream.read_raw_bytes()) < _STEP_RATIO * _steps(
        jpeg(Image.new(picture.mode, (8, 8)), settings.quality)
    )


def _encode(picture: StoredPicture, image: Image.Image, settings: PictureSettings, *, is_photo: bool) -> Encoding:
    """A picture as JPEG, or without loss if it was, and if that is smaller."""
    if picture.is_bilevel:
        return bilevel(image)
    if not picture.is_lossy and (not is_photo or settings.quality == _LOSSLESS_QUALITY):
        return deflated(image)
    lossy = Encoding(jpeg(image, settings.quality), "DCTDecode")
    # The best compression takes long, and makes nothing half as large as the fastest does.
    if picture.is_lossy or len(deflated(image, fast=True).data) > 2 * len(lossy.data):
        return lossy
    return min(deflated(image), lossy, key=lambda one: len(one.data))


def _resample(picture: StoredPicture, image: Image.Image, size: Size) -> Image.Image:
    """The picture at a size. Colors that are more transparent count less."""
    if size == picture.size:
        return image
    stored = picture.stream.get("/SMask")
    mask = StoredPicture.of(stored) if isinstance(stored, Stream) else None
    if mask is not None and mask.size == image.size and image.mode in ("L", "RGB"):
        alpha = mask.decode_as(pymupdf.csGRAY)
        if alpha is not None:
            image.putalpha(alpha)
    colors = resampling.resample(image, size, (0, 0, *image.size))
    assert isinstance(colors, Image.Image)
    if picture.is_bilevel:
        return colors.convert("1", dither=Image.Dither.NONE)
    return colors.convert(colors.mode.removesuffix("A"))


def _optimize_jpeg(picture: StoredPicture) -> None:
    """Compresses the coefficients of a JPEG better, and removes another compression around it."""
    stream, raw = picture.stream, picture.stream.read_raw_bytes()
    if picture.filters == ["/FlateDecode", "/DCTDecode"] and "/DecodeParms" not in stream:
        data = flate.decompress(raw)
        if data is None:
            return
        stream.write(data, filter=Name.DCTDecode)
        raw = data
    if picture.is_jpeg and picture.bands in (1, 3):
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
