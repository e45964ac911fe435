"""A small generated file of every input format: four quadrants, red and green above blue and gray."""

from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any

import pillow_heif
from PIL import Image, ImageCms
from psd_tools import PSDImage

from engine.mupdf import pymupdf
from tests.support.samples.raw_samples import CAMERAS, raw_sample

SIZE = (168, 120)
COLORS = ((220, 30, 40), (30, 180, 60), (40, 60, 210), (128, 128, 128))


@cache
def sample(format_name: str) -> bytes:
    """The file of that format; its picture is SIZE pixels, its page SIZE points."""
    return raw_sample(format_name) if format_name in CAMERAS else _MAKERS[format_name]()


def quadrants(size: tuple[int, int] = SIZE) -> Image.Image:
    """The picture itself."""
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


def _psd() -> bytes:
    buffer = BytesIO()
    PSDImage.frompil(quadrants()).save(buffer)
    return buffer.getvalue()


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


_MAKERS: dict[str, Callable[[], bytes]] = {
    "avif": _pillow("AVIF", quality=90),
    "bmp": _pillow("BMP"),
    "eps": _eps,
    "gif": _pillow("GIF"),
    "heic": _heic,
    "jpeg": _pillow("JPEG", quality=95, subsampling="4:4:4"),
    "pdf": _pdf,
    "png": _pillow("PNG"),
    "psd": _psd,
    "svg": _svg,
    "tiff": _pillow("TIFF", compression="tiff_lzw"),
    "webp": _pillow("WEBP", lossless=True),
}

FORMATS = frozenset({*_MAKERS, *CAMERAS})
"""The names of the formats that have a sample."""


def saved(image: Image.Image, encoder: str, **parameters: Any) -> bytes:
    file = BytesIO()
    image.save(file, encoder, **parameters)
    return file.getvalue()


def samples_with_traits() -> Iterator[tuple[str, bytes]]:
    """Files that are not plain 8-bit pictures, by what is special about them."""
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
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    parameters = {"exif": tags.tobytes(), "icc_profile": profile, "dpi": (200, 200)}
    yield "metadata", saved(drawn, "JPEG", quality=95, **parameters)
