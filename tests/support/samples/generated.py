"""A small generated file of every input format: four quadrants, red and green above blue and gray."""

import struct
import subprocess
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import imagecodecs
import numpy as np
import OpenEXR
import pillow_heif
from numpy.typing import NDArray
from PIL import Image
from psd_tools import PSDImage

from engine.mupdf import pymupdf
from tests.support.samples import books, psd_files
from tests.support.samples.clips import clip
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.raw_samples import CAMERAS, raw_sample

SIZE = (168, 120)
SRGB = b"\1\0\0\0\0\0\x10"  # the content of the box colr of JPEG 2000
COLORS = ((220, 30, 40), (30, 180, 60), (40, 60, 210), (128, 128, 128))


@cache
def sample(format_name: str) -> bytes:
    """The file of that format; its image is SIZE pixels, its page SIZE points."""
    return raw_sample(format_name) if format_name in CAMERAS else _MAKERS[format_name]()


def quadrants(size: tuple[int, int] = SIZE) -> Image.Image:
    """The image itself."""
    width, height = size
    image = Image.new("RGB", size)
    for index, color in enumerate(COLORS):
        left, top = index % 2 * (width // 2), index // 2 * (height // 2)
        image.paste(color, (left, top, left + width // 2, top + height // 2))
    return image


def _pillow(encoder: str, **parameters: object) -> Callable[[], bytes]:
    return lambda: saved(quadrants(), encoder, **parameters)


def _heic() -> bytes:
    buffer = BytesIO()
    pillow_heif.from_pillow(quadrants()).save(buffer, quality=90)
    return buffer.getvalue()


def _jxl() -> bytes:
    return bytes(imagecodecs.jpegxl_encode(np.asarray(quadrants()), 95))


def _djvu() -> bytes:
    """A page of 72 dots per inch."""
    with TemporaryDirectory() as folder:
        image, page = Path(folder, "in.ppm"), Path(folder, "out.djvu")
        quadrants().save(image)
        subprocess.run(["c44", "-dpi", "72", image, page], check=True)
        return page.read_bytes()


def _psd() -> bytes:
    buffer = BytesIO()
    PSDImage.frompil(quadrants()).save(buffer)
    return buffer.getvalue()


def boxed(codestream: bytes, *, brand: bytes = b"jp2 ", colors: bytes = SRGB, additional: bytes = b"") -> bytes:
    """A JPEG 2000 file with the codestream of an image, this content of its box colr, and more boxes in its header."""
    width, height = (int.from_bytes(codestream[at : at + 4]) for at in (8, 12))
    channels, depth = codestream[41], codestream[42]
    header = jp2_box(b"ihdr", struct.pack(">2IH4B", height, width, channels, depth, 7, 0, 0)) + jp2_box(b"colr", colors)
    start = b"\0\0\0\x0cjP  \r\n\x87\n" + jp2_box(b"ftyp", brand + bytes(4) + brand)
    return start + jp2_box(b"jp2h", header + additional) + jp2_box(b"jp2c", codestream)


def jp2_box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def _jph() -> bytes:
    return boxed(bytes(imagecodecs.htj2k_encode(np.asarray(quadrants()))), brand=b"jph ")


def linear(image: Image.Image) -> NDArray[np.float32]:
    """The light of an image in sRGB, of which 1 is white."""
    encoded = np.asarray(image) / np.float32(255)
    return np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4).astype(np.float32)


def exr(*parts: dict[str, NDArray[Any]], **attributes: Any) -> bytes:
    """An OpenEXR file of parts, each with its channels by name."""
    header = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage, **attributes}
    named = [OpenEXR.Part({**header, "name": f"part {number}"}, part) for number, part in enumerate(parts)]
    file = BytesIO()
    (OpenEXR.File(named) if len(parts) > 1 else OpenEXR.File(header, parts[0])).write(file)
    return file.getvalue()


def _boxes() -> list[tuple[int, int, tuple[int, int, int]]]:
    width, height = SIZE[0] // 2, SIZE[1] // 2
    return [(index % 2 * width, index // 2 * height, color) for index, color in enumerate(COLORS)]


def _svg() -> bytes:
    width, height = SIZE
    boxes = "".join(
        f'<rect x="{x}" y="{y}" width="{width // 2}" height="{height // 2}" fill="rgb{color}"/>'
        for x, y, color in _boxes()
    )
    return f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">{boxes}</svg>'.encode()


def _pdf() -> bytes:
    document = pymupdf.open()
    page = document.new_page(width=SIZE[0], height=SIZE[1])
    for x, y, color in _boxes():
        fill = tuple(value / 255 for value in color)
        page.draw_rect((x, y, x + SIZE[0] // 2, y + SIZE[1] // 2), color=None, fill=fill, width=0)
    data: bytes = document.tobytes()
    return data


def _eps() -> bytes:
    width, height = SIZE
    lines = ["%!PS-Adobe-3.0 EPSF-3.0", f"%%BoundingBox: 0 0 {width} {height}", "%%EndComments"]
    for x, y, color in _boxes():
        red, green, blue = (f"{value / 255:.4f}" for value in color)
        bottom = height - y - height // 2
        lines.append(f"{red} {green} {blue} setrgbcolor {x} {bottom} {width // 2} {height // 2} rectfill")
    return "\n".join([*lines, "showpage", "%%EOF", ""]).encode()


def _icns() -> bytes:
    block = saved(quadrants(), "PNG")
    return b"icns" + (16 + len(block)).to_bytes(4) + b"ic08" + (8 + len(block)).to_bytes(4) + block


def _ico() -> bytes:
    return saved(quadrants(), "ICO", sizes=[SIZE], bitmap_format="bmp")


def _pnm(header: str, mode: str) -> bytes:
    samples = quadrants().convert(mode)
    return header.encode() + (samples.tobytes("raw", "1;I") if mode == "1" else samples.tobytes())


def _pfm() -> bytes:
    encoded = np.asarray(quadrants())[::-1] / 255
    linear = np.where(encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4)
    return f"PF\n{SIZE[0]} {SIZE[1]}\n-1.0\n".encode() + linear.astype("<f4").tobytes()


def _xbm() -> bytes:
    ink = quadrants().convert("1").tobytes("raw", "1;IR")
    numbers = ",\n".join(f"0x{byte:02x}" for byte in ink)
    return f"#define x_width {SIZE[0]}\n#define x_height {SIZE[1]}\nstatic char x_bits[] = {{{numbers}}};\n".encode()


def _xpm() -> bytes:
    colors = [f'"{index} c #{red:02x}{green:02x}{blue:02x}"' for index, (red, green, blue) in enumerate(COLORS)]
    half = SIZE[0] // 2
    rows = [f'"{first * half}{second * half}"' for first, second in ("01", "23") for _ in range(SIZE[1] // 2)]
    lines = ",\n".join([f'"{SIZE[0]} {SIZE[1]} 4 1"', *colors, *rows])
    return f"/* XPM */\nstatic char * x[] = {{\n{lines}}};\n".encode()


def _png() -> bytes:
    return saved(quadrants(), "PNG")


_MAKERS: dict[str, Callable[[], bytes]] = {
    "icc": srgb_profile,
    "avif": _pillow("AVIF", quality=90),
    "bmp": _pillow("BMP"),
    "csv": lambda: b"name,size\nleft,1.50\n",
    "cur": lambda: _ico().replace(b"\1", b"\2", 1),
    "dds": _pillow("DDS"),
    "djvu": _djvu,
    "cbz": lambda: books.cbz(_png()),
    "eps": _eps,
    "epub": lambda: books.epub(_png()),
    "fb2": lambda: books.fb2(_png()),
    "exr": lambda: exr({"RGB": linear(quadrants()).astype(np.float16)}),
    "gif": _pillow("GIF"),
    "hdr": lambda: bytes(imagecodecs.rgbe_encode(linear(quadrants()))),
    "heic": _heic,
    "html": lambda: b"<!DOCTYPE html><title>A page</title><h1>A page</h1><p>of text</p>",
    "icns": _icns,
    "ico": _ico,
    "j2k": _pillow("JPEG2000", no_jp2=True),
    "jp2": _pillow("JPEG2000"),
    "jpeg": _pillow("JPEG", quality=95, subsampling="4:4:4"),
    "jph": _jph,
    "json": lambda: b'[["name", "size"], ["left", 1.5]]',
    "jxl": _jxl,
    "mov": lambda: clip(quadrants(), muxer="mov"),
    "mp4": lambda: clip(quadrants()),
    "webm": lambda: clip(quadrants(), muxer="webm", codec="libvpx-vp9"),
    "md": lambda: b"# A page\n\nof *text*\n",
    "mobi": books.mobi,
    "pam": lambda: _pnm(f"P7\nWIDTH {SIZE[0]}\nHEIGHT {SIZE[1]}\nDEPTH 3\nMAXVAL 255\nTUPLTYPE RGB\nENDHDR\n", "RGB"),
    "pbm": lambda: _pnm(f"P4\n{SIZE[0]} {SIZE[1]}\n", "1"),
    "pcx": _pillow("PCX"),
    "jxr": lambda: bytes(imagecodecs.jpegxr_encode(np.asarray(quadrants()))),
    "pdf": _pdf,
    "pfm": _pfm,
    "pgm": lambda: _pnm(f"P5\n{SIZE[0]} {SIZE[1]}\n255\n", "L"),
    "png": _png,
    "ppm": lambda: _pnm(f"P6\n{SIZE[0]} {SIZE[1]}\n255\n", "RGB"),
    "psb": lambda: psd_files.build(psd_files.planes(np.asarray(quadrants())), psd_files.RGB, version=2),
    "psd": _psd,
    "qoi": _pillow("QOI"),
    "sgi": _pillow("SGI"),
    "svg": _svg,
    "tga": _pillow("TGA", compression="tga_rle"),
    "tiff": _pillow("TIFF", compression="tiff_lzw"),
    "txt": lambda: "\n".join(map(str, range(40))).encode(),
    "webp": _pillow("WEBP", lossless=True),
    "xbm": _xbm,
    "xpm": _xpm,
    "xps": lambda: books.xps(SIZE, _boxes()),
}

FORMATS = frozenset({*_MAKERS, *CAMERAS})
"""The names of the formats that have a sample."""


def saved(image: Image.Image, encoder: str, **parameters: Any) -> bytes:
    file = BytesIO()
    image.save(file, encoder, **parameters)
    return file.getvalue()


def samples_with_traits() -> Iterator[tuple[str, bytes]]:
    """Files that are not plain 8-bit images, by what is special about them."""
    drawn = quadrants()
    transparent = drawn.convert("RGBA")
    for center in ((42, 30), (126, 30), (42, 90), (126, 90)):
        transparent.paste((0, 0, 0, 0), (center[0] - 12, center[1] - 12, center[0] + 12, center[1] + 12))
    yield "transparency", saved(transparent, "PNG")
    others = [Image.blend(drawn, Image.new("RGB", SIZE), darkness) for darkness in (0.1, 0.2)]
    yield "animation", saved(drawn, "GIF", save_all=True, append_images=others, duration=50)
    yield "pages", saved(drawn, "TIFF", save_all=True, append_images=others)
    tags = Image.Exif()
    tags[0x010F], tags.get_ifd(0x8825)[1] = "Maker", "N"
    parameters = {"exif": tags.tobytes(), "icc_profile": srgb_profile(), "dpi": (200, 200)}
    yield "metadata", saved(drawn, "JPEG", quality=95, **parameters)
