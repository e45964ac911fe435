"""Images of a PDF: their samples as numbers, and replacing them by others of another size or compression."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from math import ceil
from typing import Any

import pikepdf
from pikepdf import Array, Dictionary, Name, Pdf, Stream
from PIL import Image, ImageChops

from engine import MAX_PIXELS, Size
from engine.mupdf import pymupdf
from plugins._jpeg import embedding
from plugins._pdf import flate
from plugins._pdf.name_trees import as_list
from plugins._pixels import pillow, png_chunks

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_DEVICES = {1: Name.DeviceGray, 3: Name.DeviceRGB, 4: Name.DeviceCMYK}
_BANDS = {
    **dict.fromkeys(("/DeviceGray", "/CalGray", "/G", "/Separation"), 1),
    **dict.fromkeys(("/DeviceRGB", "/CalRGB", "/RGB", "/Lab"), 3),
    **dict.fromkeys(("/DeviceCMYK", "/CMYK"), 4),
}
_LOSSY_FILTERS = ("/DCTDecode", "/DCT", "/JPXDecode")
_PNG_EFFORT = 7
_BAND_PIXELS = 16_000_000  # of a part of a large image
_READ_PIXELS = 2_000_000  # of a part that needs no second pass through the stream
LARGE = 40_000_000
"""Pixels of an image for which memory is saved."""
_PNG_PREDICTORS = 15


@dataclass(frozen=True)
class Encoding:
    """Compressed samples, and the filter that decodes them, with its parameters."""

    data: bytes
    filter: str
    parameters: Dictionary | None = None


@dataclass(frozen=True)
class StoredImage:
    """An image as it is stored. `space` is its color space, None for masks; `bands` counts its samples per pixel.

    `bands` is 0 if it is unknown, and of images with a palette the number of its colors' components. `file` is the
    file with the same objects, from which samples can be read without another copy of the stream.
    """

    stream: Stream
    size: Size
    bits: int
    space: Any
    bands: int
    file: pymupdf.Document | None = None

    @classmethod
    def of(cls, stream: Stream, file: pymupdf.Document | None = None) -> StoredImage | None:
        """The image of a stream. None if its size is missing, or larger than images may be."""
        width, height, bits = (stream.get(key) for key in ("/Width", "/Height", "/BitsPerComponent"))
        if not (isinstance(width, int) and isinstance(height, int) and 0 < width * height <= MAX_PIXELS and width > 0):
            return None
        is_mask = bool(stream.get("/ImageMask", False))
        space = None if is_mask else stream.get("/ColorSpace")
        depth = 1 if is_mask else bits if isinstance(bits, int) else 8
        return cls(stream, (width, height), depth, space, 1 if is_mask else _bands(space), file)

    @property
    def filters(self) -> list[str]:
        return [str(name) for name in as_list(self.stream.get("/Filter"))]

    @property
    def has_palette(self) -> bool:
        return isinstance(self.space, Array) and len(self.space) > 1 and self.space[0] in (Name.Indexed, Name.I)

    @property
    def is_lossy(self) -> bool:
        """Whether it is compressed by JPEG or JPEG 2000."""
        return any(name in _LOSSY_FILTERS for name in self.filters)

    @property
    def is_jpeg(self) -> bool:
        return self.filters == ["/DCTDecode"]

    @property
    def mode(self) -> str:
        """Pillow's mode of its colors."""
        return _MODES.get(self.bands, "RGB")

    @property
    def is_bilevel(self) -> bool:
        """Whether a sample has one bit. Such samples are kept, whatever their colors are."""
        return self.bits == 1 and (self.bands == 1 or self.has_palette) and not self.is_lossy

    @property
    def has_fixed_samples(self) -> bool:
        """Whether something refers to single samples: colors that are transparent, or a color behind the image."""
        mask = self.stream.get("/SMask")
        is_matted = "/Matte" in self.stream or (isinstance(mask, Stream) and "/Matte" in mask)
        return isinstance(self.stream.get("/Mask"), Array) or is_matted or bool(self.stream.get("/SMaskInData", 0))

    def decode(self, step: int = 1) -> Image.Image | None:
        """The samples as they are stored, of mode 1, L, RGB or CMYK; of an image with a palette its colors.

        With a larger `step`, each pixel is the mean of a square of so many, and 1 bit becomes gray. None if the image
        is damaged, or has another number of components.
        """
        if self.is_bilevel:
            image = _decode(self, Name.DeviceGray, None, step=step)
            return image.convert("1", dither=Image.Dither.NONE) if image and step == 1 else image
        if self.has_palette:
            return _decode(self, self.space, self.stream.get("/Decode"), step=step)
        if self.bands in _DEVICES and self.bits == 8 and not self.is_lossy and self.file is not None:
            bands = _read_bands(self, self.file, step)
            return _checked(lambda: _assembled(self, bands, step))
        if self.bands in _DEVICES:
            return _decode(self, _DEVICES[self.bands], None, step=step)
        has_own_space = self.space is None and self.filters[-1:] == ["/JPXDecode"]
        return _decode(self, None, None, step=step) if has_own_space else None

    def decode_as(self, space: pymupdf.Colorspace, step: int = 1) -> Image.Image | None:
        """The image in a color space, at a `step` as for `decode`. None if it is damaged."""
        return _decode(self, self.space, self.stream.get("/Decode"), space, step)

    def replace(self, image: Image.Image, encoding: Encoding) -> None:
        """Stores what `decode` returned, at another size or as it is."""
        stream = self.stream
        keeps_depth = self.is_bilevel
        stream.write(encoding.data, filter=Name(f"/{encoding.filter}"), decode_parms=encoding.parameters)
        stream.Width, stream.Height = image.size
        if keeps_depth:
            return
        stream.BitsPerComponent = 8
        if self.has_palette:
            self.set_space(image, self.space[1])
        elif self.space is None:
            self.set_space(image)

    def set_space(self, image: Image.Image, space: Any = None) -> None:
        """Sets another color space for new samples, by default the one of the device."""
        self.stream.ColorSpace = _DEVICES[len(image.getbands())] if space is None else space
        if "/Decode" in self.stream:
            del self.stream.Decode


def _bands(space: Any) -> int:
    """The number of components of the colors in a color space; 0 if it is unknown."""
    if isinstance(space, Array) and len(space):
        match str(space[0]):
            case "/ICCBased" if len(space) > 1 and isinstance(space[1], Stream):
                return int(space[1].get("/N", 0))
            case "/Indexed" | "/I" if len(space) > 1:
                base = space[1]
                return 0 if isinstance(base, Array) and base and base[0] in (Name.Indexed, Name.I) else _bands(base)
            case "/DeviceN" if len(space) > 1 and isinstance(space[1], Array):
                return len(space[1])
            case name:
                return _BANDS.get(name, 0)
    return _BANDS.get(str(space), 0) if isinstance(space, Name) else 0


def _decode(
    image: StoredImage, space: Any, ranges: Any, target: pymupdf.Colorspace | None = None, step: int = 1
) -> Image.Image | None:
    """The image as MuPDF decodes it in a document of its own, with another color space and range of samples."""
    copy = Pdf.new()
    stream = Stream(copy, image.stream.read_raw_bytes())
    source = {"/Filter": image.stream.get("/Filter"), "/DecodeParms": image.stream.get("/DecodeParms")}
    values = {**source, "/ColorSpace": space, "/Decode": ranges}
    for key, value in values.items():
        if value is not None:
            stream[key] = _copied(copy, value)
    stream.Type = Name.XObject
    stream.Subtype = Name.Image
    stream.Width, stream.Height = image.size
    stream.BitsPerComponent = image.bits
    copy.trailer.Image = copy.make_indirect(stream)
    copy.save(file := BytesIO(), compress_streams=False, stream_decode_level=pikepdf.StreamDecodeLevel.none)
    document = pymupdf.open(stream=file.getvalue(), filetype="pdf")
    xref = next((number for number in range(1, document.xref_length()) if document.xref_is_image(number)), 0)
    with closing(document):
        if step == 1:
            return _checked(lambda: _as_image(image, image.size, pymupdf.Pixmap(document, xref), target))
        bands = _decoded_bands(image, document, xref, target, step)
        return _checked(lambda: _assembled(image, bands, step))


def _checked(decode: Callable[[], Image.Image | None]) -> Image.Image | None:
    """What `decode` returns; None if MuPDF fails or warns, because the image is damaged. Raises MemoryError."""
    pymupdf.TOOLS.mupdf_warnings()  # also that the last one is repeated
    try:
        image = decode()
    except pymupdf.mupdf.FzErrorSystem as error:
        raise MemoryError from error
    except (pymupdf.mupdf.FzErrorBase, RuntimeError, ValueError):
        return None
    return None if pymupdf.TOOLS.mupdf_warnings() else image


def _assembled(image: StoredImage, bands: Iterator[Image.Image | None], step: int) -> Image.Image | None:
    """The image with means of squares instead of pixels, of which only a band is in memory. None if one is missing."""
    whole: Image.Image | None = None
    top = 0
    for band in bands:
        if band is None:
            return None
        whole = whole or Image.new(band.mode, (ceil(image.size[0] / step), ceil(image.size[1] / step)))
        whole.paste(band.reduce(step) if step > 1 else band, (0, top // step))
        top += band.height
    return whole


def _read_bands(image: StoredImage, file: pymupdf.Document, step: int) -> Iterator[Image.Image | None]:
    """Bands of samples of 8 bits, as the filters of the stream return them."""
    width, height = image.size
    rows = max(step, _READ_PIXELS // width // step * step)
    document = pymupdf.mupdf.pdf_document_from_fz_document(file)
    samples = pymupdf.mupdf.pdf_open_stream_number(document, image.stream.objgen[0])
    for top in range(0, height, rows):
        size = width, min(rows, height - top)
        band = bytearray(size[0] * size[1] * image.bands)
        read = pymupdf.mupdf.fz_read(samples, pymupdf.mupdf.python_mutable_buffer_data(band), len(band))
        yield Image.frombuffer(image.mode, size, band, "raw", image.mode, 0, 1) if read == len(band) else None


def _decoded_bands(
    image: StoredImage, document: pymupdf.Document, xref: int, target: pymupdf.Colorspace | None, step: int
) -> Iterator[Image.Image | None]:
    """Bands of the image as MuPDF decodes it."""
    width, height = image.size
    rows = max(step, _BAND_PIXELS // width // step * step)
    file = pymupdf.mupdf.pdf_document_from_fz_document(document)
    source = pymupdf.mupdf.pdf_load_image(file, pymupdf.mupdf.pdf_new_indirect(file, xref, 0))
    for top in range(0, height, rows):
        area = pymupdf.mupdf.FzIrect(0, top, width, min(top + rows, height))
        pixels, *_ = pymupdf.mupdf.fz_get_pixmap_from_image(source, area, pymupdf.mupdf.FzMatrix(0, 0, 0, 0, 0, 0))
        is_whole = pixels.h() == height  # as MuPDF decodes an image of which a band is nearly all
        band = _as_image(
            image, image.size if is_whole else (width, area.y1 - top), pymupdf.Pixmap("raw", pixels), target
        )
        pymupdf.TOOLS.store_shrink(100)
        yield band.crop((0, top, width, area.y1)) if band and is_whole else band


def _as_image(
    image: StoredImage, size: Size, pixels: pymupdf.Pixmap, target: pymupdf.Colorspace | None
) -> Image.Image | None:
    """What MuPDF has decoded, in a color space. None if there is a problem, or not this size."""
    pixels = pymupdf.Pixmap(target, pixels) if target else pixels
    mode = _MODES.get(pixels.n)
    is_wrong = pixels.alpha or (pixels.width, pixels.height) != size
    if mode is None or is_wrong or (target is None and image.bands not in (0, pixels.n) and not image.is_bilevel):
        return None
    return Image.frombytes(mode, size, pixels.samples_mv)


def _copied(copy: Pdf, value: Any) -> Any:
    """A value of another document: references are followed."""
    if not isinstance(value, pikepdf.Object):
        return value
    if value.is_indirect:
        return copy.copy_foreign(value)
    if isinstance(value, Array):
        return Array([_copied(copy, item) for item in value])
    if isinstance(value, Dictionary):
        return Dictionary({key: _copied(copy, item) for key, item in value.items()})
    return value


def jpeg(image: Image.Image, quality: int) -> bytes:
    """A JPEG of the samples themselves."""
    # Pillow inverts CMYK, as Adobe's programs do in files.
    samples = ImageChops.invert(image) if image.mode == "CMYK" else image
    parameters = embedding.encoding_for(quality)
    is_small = image.width * image.height <= LARGE  # libjpeg keeps all coefficients for both
    return pillow.encode_jpeg(samples, **parameters, progressive=is_small, optimize=is_small)


def deflated(image: Image.Image, *, fast: bool = False) -> Encoding:
    """The samples of mode L, RGB or CMYK without loss."""
    if image.mode == "CMYK":
        return Encoding(flate.compress(image.tobytes()), "FlateDecode")
    data = png_chunks.compress_pixels(image, effort=1 if fast else _PNG_EFFORT)
    bands = len(image.getbands())
    parameters = Dictionary(Predictor=_PNG_PREDICTORS, Colors=bands, BitsPerComponent=8, Columns=image.width)
    return Encoding(data, "FlateDecode", parameters)


def bilevel(image: Image.Image) -> Encoding:
    """The samples of mode 1 without loss."""
    is_group4, data = pillow.compress_bilevel(image)
    if is_group4:
        return Encoding(data, "CCITTFaxDecode", Dictionary(K=-1, Columns=image.width, Rows=image.height))
    return Encoding(flate.compress(image.tobytes()), "FlateDecode")
