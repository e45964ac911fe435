"""TIFF through tifffile: pages that Pillow cannot read, or only with 8 bits per sample, and the writer."""

import struct
from enum import IntEnum
from io import BytesIO
from itertools import islice
from typing import Any, Self

import imagecodecs
import imageio.v3 as iio
import numpy as np
from imageio.plugins.tifffile_v3 import TifffilePlugin
from numpy.typing import NDArray
from PIL import Image, ImageCms
from tifffile import COMPRESSION, PHOTOMETRIC, SAMPLEFORMAT, TiffFile, TiffFileError, TiffPage

from engine import MAX_FRAMES, CorruptInput, DeepPixels, Size, check_size, color
from plugins._jpeg.segments import segment
from plugins._pixels import pillow
from plugins._tiff import tiff_directories

# Loaded at import: the sandbox of a job may refuse to load them.
_DECODERS = (
    "bitorder", "ccittfax3", "ccittfax4", "ccittrle", "deflate", "delta", "float24", "floatpred", "jpeg", "jpeg2k",
    "jpeg8", "jpegsof3", "jpegxl", "jpegxr", "lerc", "ljpeg", "lzma", "lzw", "packbits", "packints", "pixarlog",
    "png", "webp", "zlib", "zstd",
)  # fmt: skip
_CODECS = [imagecodecs.cms_transform, *(getattr(imagecodecs, f"{name}_decode") for name in _DECODERS)]


_NO_IMAGE = tiff_directories.REDUCED | tiff_directories.MASK
# Kinds of extra samples.
_UNSPECIFIED = 0
_ASSOCIATED = 1
_UNASSOCIATED = 2
_MODES = {
    PHOTOMETRIC.MINISWHITE: "L",
    PHOTOMETRIC.MINISBLACK: "L",
    PHOTOMETRIC.RGB: "RGB",
    PHOTOMETRIC.SEPARATED: "CMYK",
    PHOTOMETRIC.YCBCR: "RGB",  # only in JPEG, whose decoder converts it
}
_LAB = (PHOTOMETRIC.CIELAB, PHOTOMETRIC.ICCLAB, PHOTOMETRIC.ITULAB)
_ITU_LAB = ((0, 100), (-85, 85), (-75, 125))  # the default ranges of L, a and b
_JPEG = (COMPRESSION.OJPEG, COMPRESSION.JPEG, COMPRESSION.ALT_JPEG, COMPRESSION.JPEG_LOSSY)


class Writer:
    """Writes pages with tifffile, through imageio. A context; the file is complete after it."""

    def __init__(self, order: str) -> None:
        self._order = order  # the byte order, "<" or ">"
        self._file = BytesIO()
        self._pages: list[COMPRESSION | None] = []  # the tag to be corrected of each page

    def __enter__(self) -> Self:
        self._handle = iio.imopen(self._file, "w", plugin=TifffilePlugin, byteorder=self._order)
        return self

    def __exit__(self, *exception: object) -> None:
        self._handle.close()

    def write(self, array: NDArray[Any], **parameters: Any) -> None:
        """Adds a page. TiffWriter.write documents `parameters`."""
        self._handle.write(array, metadata=None, software=False, **parameters)
        self._pages.append(None)

    def write_bilevel(self, image: Image.Image, **parameters: Any) -> None:
        """Adds a page of mode 1, by Group 4 or deflate: the smaller. TiffWriter.write documents `parameters`."""
        is_group4, data = pillow.compress_bilevel(image)
        # tifffile writes compressed strips as they are, but knows only deflate.
        strips: Any = [iter([data])]
        self._handle.write(
            strips,
            is_batch=True,
            shape=(image.height, image.width),
            dtype=np.bool_,
            photometric="miniswhite",
            compression="zlib",
            rowsperstrip=image.height,
            metadata=None,
            software=False,
            **parameters,
        )
        self._pages.append(COMPRESSION.CCITT_T6 if is_group4 else None)

    def getvalue(self) -> bytes:
        """The file."""
        if any(self._pages):
            self._file.seek(0)
            with TiffFile(self._file, mode="r+") as file:
                for page, compression in zip(file.pages, self._pages, strict=True):
                    if compression and isinstance(page, TiffPage):
                        page.tags["Compression"].overwrite(compression)
        return self._file.getvalue()


def open_file(data: bytes) -> TiffFile:
    """A file for reading. Raises CorruptInput."""
    try:
        return TiffFile(BytesIO(data))
    except TiffFileError as error:
        raise CorruptInput("The TIFF header cannot be read.") from error


def images(file: TiffFile) -> list[TiffPage]:
    """The pages without thumbnails and masks, each replaced by its sub-directory that is larger.

    Stops one page after the limit. Raises CorruptInput if there is no page.
    """
    # By offset, because directories can form a loop.
    found = (page for page in islice(file.pages, MAX_FRAMES + 1) if isinstance(page, TiffPage))
    pages = {page.offset: page for page in found if isinstance(_area(page), int)}  # not a tuple
    if not pages:
        raise CorruptInput("The TIFF file has no pages.")
    largest = [max((page, *_full_sizes(page)), key=_area) for page in pages.values()]
    return [page for page in largest if not page.subfiletype & _NO_IMAGE] or [*pages.values()][:1]


def _full_sizes(page: TiffPage) -> list[TiffPage]:
    """The sub-directories of a page that are no thumbnails."""
    pages = islice(page.pages or (), MAX_FRAMES)
    return [page for page in pages if isinstance(page, TiffPage) and not page.subfiletype & _NO_IMAGE]


def _area(page: TiffPage) -> int:
    return page.imagewidth * page.imagelength


def is_deep(page: TiffPage) -> bool:
    """Whether a page has more than 8 bits per sample, and keeps them."""
    return bits(page) > 8 and page.photometric != PHOTOMETRIC.PALETTE and not _has_transparent_inks(page)


def _has_transparent_inks(page: TiffPage) -> bool:
    """Whether a page is CMYK with transparency, which becomes sRGB, because no raster has both."""
    return page.photometric == PHOTOMETRIC.SEPARATED and _alpha_band(page, len("CMYK")) is not None


def bits(page: TiffPage) -> int:
    """The number of bits per sample, of the largest sample."""
    return int(np.max(page.bitspersample))


def integer_bits(page: TiffPage) -> int:
    """The number of bits of integers that hold the samples: 8 for palettes, 32 for floats."""
    return 32 if page.sampleformat == SAMPLEFORMAT.IEEEFP else bits(page) if is_deep(page) else 8


def orientation(page: TiffPage) -> int:
    """The EXIF orientation, 1 to 8."""
    value = page.tags.valueof("Orientation", 1)
    return int(value) if value in range(1, 9) else 1


def upright_size(page: TiffPage) -> Size:
    size = page.imagewidth, page.imagelength
    return size[::-1] if orientation(page) >= 5 else size


def profile(page: TiffPage) -> bytes | None:
    """The ICC profile. None for Lab and for CMYK with transparency, which are decoded to sRGB."""
    is_converted = page.photometric in _LAB or _has_transparent_inks(page)
    return None if is_converted else page.tags.valueof("InterColorProfile")


def read(page: TiffPage) -> DeepPixels | Image.Image:
    """The upright pixels of a page. Raises TooLarge, and CorruptInput with the page's encoding."""
    check_size(page.imagewidth, page.imagelength)
    try:
        if page.compression == COMPRESSION.OJPEG:
            samples = imagecodecs.jpeg8_decode(_old_jpeg(page))
        else:
            # The axes are planes, depth, rows, columns and bands, of which an image has either planes or bands.
            samples = np.moveaxis(page.asarray(squeeze=False)[:, 0], 0, -1)
        array = samples.reshape(page.imagelength, page.imagewidth, -1)
        return _to_pixels(pillow.apply_orientation(array, orientation(page)), page)
    except MemoryError:
        raise
    except Exception as error:
        raise CorruptInput(
            f"The page cannot be decoded; it has the color space {_name(PHOTOMETRIC, page.photometric)}, "
            f"the compression {_name(COMPRESSION, page.compression)} and {bits(page)} bits per sample."
        ) from error


def _old_jpeg(page: TiffPage) -> bytes:
    """The JPEG file of a gray page. Tags have a JPEG file (513, size 514), its header, or tables (519 to 521)."""

    def first(tag: int) -> int:
        value = page.tags.valueof(tag, 0)
        return int(value[0] if isinstance(value, tuple) else value)

    def content(tag: int, size: int) -> bytes:
        page.parent.filehandle.seek(first(tag))
        return page.parent.filehandle.read(size)

    def huffman(kind: bytes, tag: int) -> bytes:
        return segment(0xC4, kind + content(tag, 16 + sum(content(tag, 16))))

    header = content(513, first(514))
    strip = content(tiff_directories.STRIP_OFFSETS, page.databytecounts[0])
    if strip in header:
        return header
    if len(page.databytecounts) > 1:
        raise ValueError("Tables for several strips are not supported.")
    frame = struct.pack(">BHHB3B", 8, page.imagelength, page.imagewidth, 1, 1, 0x11, 0)
    tables = (segment(0xDB, b"\0" + content(519, 64)), huffman(b"\0", 520), huffman(b"\x10", 521))
    made = b"".join((b"\xff\xd8", *tables, segment(0xC0, frame), segment(0xDA, b"\1\1\0\0\x3f\0")))
    return (header or made) + strip


def _name(kind: type[IntEnum], value: int) -> str:
    """The name of a TIFF value, or its number."""
    return kind(value).name if value in list(kind) else str(value)


def _to_pixels(array: NDArray[Any], page: TiffPage) -> DeepPixels | Image.Image:
    """Samples of rows x columns x bands in a mode of Raster, with 16 bits if the page has more than 8."""
    photometric = page.photometric
    if photometric == PHOTOMETRIC.PALETTE:
        return _apply_palette(array, page)
    if photometric in _LAB:
        color.warn_converted("LAB")
        if bits(page) > 16:
            color.warn_of_depth(16)
        lab = _lab_to_srgb(array[..., :3], page)
        if (band := _alpha_band(page, 3)) is not None:
            alpha, depth = _to_unsigned(array[..., band : band + 1], page)
            lab = DeepPixels(np.dstack((lab.array, color.scale(alpha, (1 << depth) - 1, 65535))), "RGBA")
        return lab if is_deep(page) else lab.as_image()
    if photometric == PHOTOMETRIC.YCBCR and page.compression not in _JPEG:
        return Image.fromarray(array[..., :3], "YCbCr").convert("RGB")
    if array.dtype == np.bool_ and array.shape[-1] == 1:
        return Image.fromarray(array[..., 0] ^ (photometric == PHOTOMETRIC.MINISWHITE))
    if bits(page) > 16 and array.dtype.kind == "u" and array.max() <= 65535:
        array = array.astype(np.uint16)
    mode = _MODES[PHOTOMETRIC(photometric)]
    samples, depth = _to_unsigned(array[..., : len(mode)], page)
    if photometric == PHOTOMETRIC.MINISWHITE:
        samples = (1 << depth) - 1 - samples
    if (band := _alpha_band(page, len(mode))) is not None:
        alpha = _to_unsigned(array[..., band : band + 1], page)[0]
        if page.extrasamples[band - len(mode) :][:1] == (_ASSOCIATED,):
            samples = _divide(samples, alpha, (1 << depth) - 1)
        if _has_transparent_inks(page):
            inks = np.dstack((samples, alpha))
            return pillow.transparent_inks(inks, (1 << depth) - 1, page.tags.valueof("InterColorProfile"))
        samples = np.dstack((samples, alpha))
        mode = f"{mode}A"
    pixels = DeepPixels.from_bits(samples[..., 0] if mode == "L" else samples, depth, mode)
    return pixels if is_deep(page) else pixels.as_image()


def _to_unsigned(samples: NDArray[Any], page: TiffPage) -> tuple[NDArray[np.uint16], int]:
    """Samples as unsigned integers, and their number of bits, at most 16. Warns if more bits are lost."""
    if samples.dtype.kind != "u":
        return color.to_16_bits(samples), 16
    depth = min(bits(page), 8 * samples.itemsize)
    if depth <= 16:
        return samples.astype(np.uint16), depth
    reduced = np.right_shift(samples, depth - 16, dtype=samples.dtype)
    # Wider samples can be narrower ones with zeros after them, or repeated.
    factors = (1 << (depth - 16), ((1 << depth) - 1) // 65535)
    if not any(np.array_equal(reduced * samples.dtype.type(factor), samples) for factor in factors):
        color.warn_of_depth(16)
    return reduced.astype(np.uint16), 16


def _alpha_band(page: TiffPage, colors: int) -> int | None:
    """The index of the band with the alpha, after `colors` others. None if there is none.

    Without a stated meaning, a single band is alpha, as for other readers; beside inks it may be a spot color.
    """
    extra = page.extrasamples
    is_alpha = not extra or (extra == (_UNSPECIFIED,) and page.photometric in tiff_directories.PLAIN_COLORS)
    if is_alpha and page.samplesperpixel == colors + 1:
        return colors
    return next((colors + index for index, kind in enumerate(extra) if kind in (_ASSOCIATED, _UNASSOCIATED)), None)


def _divide(samples: NDArray[np.uint16], alpha: NDArray[np.uint16], maximum: int) -> NDArray[np.uint16]:
    """Samples that are multiplied by alpha, without it."""
    divisor = np.maximum(alpha, 1).astype(np.uint32)
    quotients = np.floor_divide(samples * np.uint32(maximum) + divisor // 2, divisor)
    return np.minimum(quotients, maximum).astype(np.uint16)  # type: ignore[no-any-return]


def _apply_palette(array: NDArray[Any], page: TiffPage) -> Image.Image:
    colors = np.asarray(page.colormap).T
    # Some writers store 8 bits.
    palette = colors.astype(np.uint8) if colors.max() <= 255 else color.to_8_bits(colors)
    samples: NDArray[Any] = palette.take(array[..., 0], axis=0)
    band = _alpha_band(page, 1)
    if band is None:
        return Image.fromarray(samples, "RGB")
    alpha = color.scale(array[..., band : band + 1], (1 << bits(page)) - 1, 255)
    if page.extrasamples[band - 1 :][:1] == (_ASSOCIATED,):
        samples = _divide(samples, alpha, 255)
    return Image.fromarray(np.dstack((samples, alpha)).astype(np.uint8), "RGBA")


def _lab_to_srgb(array: NDArray[Any], page: TiffPage) -> DeepPixels:
    """Lab samples as sRGB with 16 bits."""
    lab = np.empty(array.shape, np.uint16)  # as LittleCMS stores it: L of 0 to 100, a and b of -128 to 127
    lab[..., 0] = np.clip(_lab_values(array[..., 0], 0, page) * 655.35 + 0.5, 0, 65535)
    for band in (1, 2):
        lab[..., band] = np.clip((_lab_values(array[..., band], band, page) + 128) * 257 + 0.5, 0, 65535)
    source, target = (ImageCms.ImageCmsProfile(ImageCms.createProfile(name)).tobytes() for name in ("LAB", "sRGB"))
    converted = imagecodecs.cms_transform(lab, source, target, colorspace="lab", outcolorspace="rgb")
    return DeepPixels(converted, "RGB")


def _lab_values(samples: NDArray[Any], band: int, page: TiffPage) -> NDArray[np.float32]:
    """The values of L (band 0), a or b."""
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    unsigned = samples.view(f"u{samples.itemsize}")  # the sample format may only apply to a and b
    values = unsigned.astype(np.float32)
    depth = bits(page)
    if page.photometric == PHOTOMETRIC.ITULAB:
        low, high = _ITU_LAB[band]
        return low + values * np.float32((high - low) / ((1 << depth) - 1))
    unit = np.float32(1 << (depth - 8))
    if band == 0:
        white = unit * 255 if page.photometric == PHOTOMETRIC.ICCLAB else np.iinfo(unsigned.dtype).max
        return values * np.float32(100 / white)
    if page.photometric == PHOTOMETRIC.ICCLAB:
        return values / unit - 128
    return samples.view(f"i{samples.itemsize}").astype(np.float32) / unit
