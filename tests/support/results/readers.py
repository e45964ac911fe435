"""Independent readers of results, which share no code with the writers."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import imagecodecs
import numpy as np
import OpenEXR
import pypdfium2
import pyvips
from numpy.typing import NDArray
from PIL import Image
from psd_tools import PSDImage

from engine.mupdf import pymupdf
from tests.support.samples.clips import first_image


@dataclass(frozen=True)
class Reading:
    """The content of a file: width and height in pixels (points for pages), number of pages or frames, the first one.

    `pixels` is height x width x 3, 8 bits, on white.
    """

    size: tuple[int, int]
    count: int
    pixels: NDArray[np.uint8]


def read(format_name: str, data: bytes) -> Reading:
    """Opens `data` in this format. Raises the exceptions of the reader."""
    return _READERS[format_name](data)


def _vips(data: bytes) -> Reading:
    image = pyvips.Image.new_from_buffer(data, "").autorot()
    count = image.get("n-pages") if image.get_typeof("n-pages") else 1
    size = (image.width, image.height)
    if image.interpretation in ("cmyk", "rgb16", "grey16", "b-w") or image.get_typeof("icc-profile-data"):
        image = image.colourspace("srgb")
    if image.hasalpha():
        image = image.flatten(background=255)
    array = np.asarray(image.cast("uchar").numpy())
    return Reading(size, count, _colour(array))


def _frames(decode: Callable[..., Any]) -> Callable[[bytes], Reading]:
    """A reader for a decoder of imagecodecs, which returns frames x height x width x bands."""

    def reader(data: bytes) -> Reading:
        array = np.asarray(decode(data))
        if array.dtype == np.uint16:
            array = (array >> 8).astype(np.uint8)
        stacked = array.ndim == 4 or (array.ndim == 3 and array.shape[2] > 4)
        first, count = (array[0], array.shape[0]) if stacked else (array, 1)
        return Reading((first.shape[1], first.shape[0]), count, _colour(first))

    return reader


def _decode_avif(data: bytes) -> NDArray[Any]:
    """Samples of 8 or 16 bits."""
    array: NDArray[Any] = imagecodecs.avif_decode(data)
    if array.dtype == np.uint8:
        return array
    has_12_bits = data[data.index(b"av1C") + 6] & 0x20
    return array << (4 if has_12_bits else 6)


def _decode_jp2(data: bytes) -> NDArray[Any]:
    """Samples of 8 or 16 bits. Pillow wraps white of 16 bits around."""
    array: NDArray[Any] = imagecodecs.jpeg2k_decode(data)
    bits = data[data.index(b"\xff\x4f\xff\x51") + 42] + 1
    return array if bits == 8 else array << (16 - bits)


def _decode_jxl(data: bytes) -> NDArray[Any]:
    """Samples of 8 or 16 bits, from fewer if the largest one has the highest bit."""
    array: NDArray[Any] = imagecodecs.jpegxl_decode(data)
    return array if array.dtype == np.uint8 else array << (16 - int(array.max()).bit_length())


def _light(decode: Callable[[bytes], NDArray[Any]]) -> Callable[[bytes], Reading]:
    """A reader for a decoder of linear light, whose pixels are those of sRGB."""

    def reader(data: bytes) -> Reading:
        light = np.clip(np.asarray(decode(data), float), 0, 1)
        light = light if light.ndim == 3 else light[..., None]
        encoded = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
        if light.shape[2] == 4:
            encoded[..., 3] = light[..., 3]
        return Reading(light.shape[1::-1], 1, _colour((encoded * 255 + 0.5).astype(np.uint8)))

    return reader


def _decode_exr(data: bytes) -> NDArray[Any]:
    (channel,) = OpenEXR.File(BytesIO(data)).channels().values()
    samples: NDArray[Any] = np.array(channel.pixels, np.float32)
    if samples.ndim == 3 and samples.shape[2] == 4:
        samples[..., :3] /= np.maximum(samples[..., 3:], 1e-6)
    return samples


def _heif(data: bytes) -> Reading:
    with TemporaryDirectory() as folder:
        source, result = Path(folder, "in.heic"), Path(folder, "out.jpg")
        source.write_bytes(data)
        subprocess.run(["heif-convert", "-q", "100", source, result], check=True, capture_output=True)
        return _vips(result.read_bytes())


def decode_jxl(data: bytes, extension: str = "png", *options: str) -> bytes:
    """A JPEG XL file as djxl writes it in the format of this extension, such as apng for an animation."""
    with TemporaryDirectory() as folder:
        source, result = Path(folder, "in.jxl"), Path(folder, f"out.{extension}")
        source.write_bytes(data)
        subprocess.run(["djxl", source, result, *options], check=True, capture_output=True)
        return result.read_bytes()


def _pdf(data: bytes) -> Reading:
    document = pypdfium2.PdfDocument(data)
    page = document[0]
    size = (round(page.get_width()), round(page.get_height()))
    return Reading(size, len(document), _colour(np.asarray(page.render(scale=1).to_pil())))


def _eps(data: bytes) -> Reading:
    with TemporaryDirectory() as folder:
        source, result = Path(folder, "in.eps"), Path(folder, "out.png")
        source.write_bytes(data)
        command = ["gs", "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE", "-dEPSCrop", "-sDEVICE=png16m", "-r72"]
        subprocess.run([*command, f"-sOutputFile={result}", source], check=True, capture_output=True)
        return _vips(result.read_bytes())


def _pfm(data: bytes) -> Reading:
    kind, size, _, samples = data.split(b"\n", 3)
    width, height = map(int, size.split())
    light = np.frombuffer(samples, "<f4").reshape(height, width, 3 if kind == b"PF" else 1)[::-1]
    linear = light.clip(0)  # colors outside of sRGB are negative
    encoded = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return Reading((width, height), 1, _colour((encoded * 255 + 0.5).astype(np.uint8)))


def _psd(data: bytes) -> Reading:
    image = PSDImage.open(BytesIO(data)).composite(apply_icc=False)  # Pillow reads only 8 bits per sample
    white = Image.new("RGBA", image.size, "white")
    white.alpha_composite(image.convert("RGBA"))
    return Reading(image.size, 1, np.asarray(white.convert("RGB")))


def _mupdf(data: bytes) -> Reading:
    pixmap = pymupdf.Pixmap(data)
    samples = np.frombuffer(pixmap.samples, np.uint8).reshape(pixmap.height, pixmap.width, pixmap.n)
    return Reading((pixmap.width, pixmap.height), 1, _colour(samples))


def _ico(data: bytes) -> Reading:
    image = Image.open(BytesIO(data[:2] + b"\1" + data[3:]), formats=["ICO"])  # Pillow does not read cursors exactly
    return Reading(image.size, 1, _colour(np.asarray(image.convert("RGBA"))))


def _dds(data: bytes) -> Reading:
    image = Image.open(BytesIO(data), formats=["DDS"])
    return Reading(image.size, 1, _colour(np.asarray(image)))


def _icns(data: bytes) -> Reading:
    image = Image.open(BytesIO(data), formats=["ICNS"])
    return Reading(image.size, 1, _colour(np.asarray(image.convert("RGBA"))))


def _clip(data: bytes) -> Reading:
    image, count = first_image(data)
    return Reading(image.size, count, np.asarray(image.convert("RGB")))


def _netpbm(*program: str) -> Callable[[bytes], Reading]:
    """A reader that has the image converted by a program of Netpbm."""

    def reader(data: bytes) -> Reading:
        return _mupdf(subprocess.run(program, input=data, check=True, capture_output=True).stdout)

    return reader


def _colour(array: NDArray[Any]) -> NDArray[np.uint8]:
    array = array[..., None] if array.ndim == 2 else array
    if array.shape[2] in (2, 4):
        alpha = array[..., -1:].astype(np.uint16)
        array = ((array[..., :-1] * alpha + 255 * (255 - alpha)) // 255).astype(np.uint8)
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


_READERS: dict[str, Callable[[bytes], Reading]] = {
    "avif": _frames(_decode_avif),
    "bmp": _frames(imagecodecs.bmp_decode),
    "cur": _ico,
    "dds": _dds,
    "eps": _eps,
    "exr": _light(_decode_exr),
    "gif": _vips,
    "hdr": _light(imagecodecs.rgbe_decode),
    "heic": _heif,
    "j2k": _frames(_decode_jp2),
    "jp2": _frames(_decode_jp2),
    "icns": _icns,
    "ico": _ico,
    "jpeg": _vips,
    **dict.fromkeys(("pam", "pbm", "pgm", "ppm"), _mupdf),
    "jph": _frames(_decode_jp2),
    "jxl": _frames(_decode_jxl),
    "jxr": _frames(imagecodecs.jpegxr_decode),
    "pdf": _pdf,
    **dict.fromkeys(("mp4", "webm"), _clip),
    "pcx": _netpbm("pcxtoppm"),
    "pfm": _pfm,
    "png": _frames(imagecodecs.apng_decode),
    "psb": _psd,
    "psd": _psd,
    "qoi": _netpbm("qoitopam"),
    "sgi": _netpbm("sgitopnm"),
    "svg": _vips,
    "tga": _netpbm("tgatoppm", "-"),
    "tiff": _vips,
    "webp": _vips,
    "xbm": _netpbm("xbmtopbm"),
    "xpm": _netpbm("xpmtoppm"),
}
