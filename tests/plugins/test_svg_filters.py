"""Filters of SVG and images in SVG look as in Chromium, and what resvg draws otherwise is reported."""

import base64
from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageOps

from engine.mupdf import pymupdf
from engine.pipeline import PipelineResult
from tests.support.results.conversions import codes, convert, opened


def _convert(body: str, target: str = "png") -> PipelineResult:
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="100" height="100">{body}</svg>'
    return convert(svg.encode(), target)


def _image(result: PipelineResult) -> Image.Image:
    return opened(result.data).convert("RGBA")


def _drawn_box(result: PipelineResult) -> tuple[int, ...]:
    """Left, top, right and bottom of what is drawn, in pixels, of an image or of the first page of a PDF."""
    if result.data.startswith(b"%PDF"):
        page = pymupdf.open(stream=result.data)[0]
        pixels = page.get_pixmap(matrix=pymupdf.Matrix(100 / page.rect.width, 100 / page.rect.height), alpha=True)
        image = Image.frombytes("RGBA", (pixels.width, pixels.height), pixels.samples)
    else:
        image = _image(result)
    box = image.getchannel("A").point(lambda alpha: 255 * (alpha > 127)).getbbox()
    assert box
    return box


_SHIFTS = 'in="SourceGraphic" xChannelSelector="{}" yChannelSelector="{}" scale="{}"'


@pytest.mark.parametrize("target", ["png", "pdf"])
@pytest.mark.parametrize(
    ("flood", "shifts", "box"),
    [
        ('flood-color="#f00"', ("R", "G", 20), (30, 50, 50, 70)),
        ('flood-color="#f00"', ("R", "G", -20), (50, 30, 70, 50)),
        ('flood-color="#f0f" flood-opacity=".5"', ("B", "G", 20), (30, 50, 50, 70)),
        ('flood-color="#fff" flood-opacity="0"', ("A", "", 20), (50, 50, 70, 70)),
        ('flood-color="#f00"', ("R", "G", 0), (40, 40, 60, 60)),
    ],
)
def test_displacement(flood: str, shifts: tuple[object, ...], box: tuple[int, ...], target: str) -> None:
    body = (
        '<filter id="f" filterUnits="userSpaceOnUse" x="0" y="0" width="100" height="100">'
        f'<feFlood {flood}/><feDisplacementMap {_SHIFTS.format(*shifts)} in2="nothing"/></filter>'
        '<g filter="url(#f)"><rect x="40" y="40" width="20" height="20"/></g>'
    )

    assert _drawn_box(_convert(body, target)) == box


def test_noise_displaces_an_edge() -> None:
    body = (
        '<filter id="f"><feTurbulence baseFrequency=".05" numOctaves="2" seed="3"/>'
        f"<feDisplacementMap {_SHIFTS.format('R', 'G', 20)}/></filter>"
        '<rect x="20" y="20" width="60" height="60" filter="url(#f)"/>'
    )
    opaque = np.asarray(_image(_convert(body)))[..., 3] > 127

    assert abs(int(opaque.sum()) - 3532) < 30  # in Chromium
    assert opaque[30:72, 30:72].all()


@pytest.mark.parametrize(
    ("primitives", "opaque"),
    [
        ('<feOffset dx="20" dy="10" x="40" y="20" width="30" height="40"/>', (40, 20, 70, 60)),
        ('<feFlood x="5" y="5" width="9" height="9"/><feOffset/><feTile/>', (5, 5, 14, 14)),
        ('<feFlood x="5" y="5" width="9" height="9"/><feTile x="20" y="30" width="40" height="50"/>', (20, 30, 60, 80)),
    ],
)
def test_regions_of_filter_primitives(primitives: str, opaque: tuple[int, ...]) -> None:
    body = f'<filter id="f" x="0" y="0" width="1" height="1">{primitives}</filter>'

    assert _image(_convert(f'{body}<rect width="100" height="100" filter="url(#f)"/>')).getbbox() == opaque


@pytest.mark.parametrize("flood", ['<feFlood flood-color="#06c" {}/>', '<feFlood flood-color="#06c" {}/><feOffset/>'])
def test_a_tile_repeats_the_region_of_its_input(flood: str) -> None:
    region = 'x="0" y="0" width="{0}" height="{0}"'
    tile = f"{flood.format(region.format(10))}<feOffset {region.format(20)}/><feTile/>"
    body = f'<filter id="f" x="0" y="0" width="1" height="1">{tile}</filter>'
    expected = np.zeros((100, 100, 4), np.uint8)
    rows, columns = np.indices((100, 100)) % 20 < 10
    expected[rows & columns] = (0, 102, 204, 255)

    drawn = np.asarray(_image(_convert(f'{body}<rect width="100" height="100" filter="url(#f)"/>')), int)

    assert abs(drawn - expected).max() <= 2


@pytest.mark.parametrize(
    "filtered",
    [
        'style="filter:drop-shadow(20px 0 0 #06c)"',
        'color="#06c" style="filter:drop-shadow(20px 0 0 currentcolor)"',
        'filter="url(#shadow)"',
        'filter="url(#light)"',
        'filter="url(#sum)"',
        'filter="url(#saturate)"',
    ],
)
def test_colors_of_filters(filtered: str) -> None:
    filters = (
        '<filter id="shadow" width="3" color-interpolation-filters="sRGB">'
        '<feDropShadow dx="20" dy="0" stdDeviation="0" flood-color="#06c"/></filter>'
        '<filter id="light" width="3"><feDiffuseLighting lighting-color="#06c"><feDistantLight elevation="90"/>'
        '</feDiffuseLighting></filter><filter id="sum" width="3" color-interpolation-filters="sRGB">'
        '<feFlood flood-color="#060" result="a"/><feFlood flood-color="#00c"/>'
        '<feComposite in2="a" operator="lighter"/></filter>'
        '<filter id="saturate" width="3" color-interpolation-filters="sRGB"><feFlood flood-color="#2c5f92"/>'
        '<feColorMatrix type="saturate" values="2"/></filter>'
    )
    drawn = _image(_convert(f'{filters}<rect width="40" height="100" {filtered}/>')).getpixel((50, 50))

    assert isinstance(drawn, tuple)
    assert max(abs(one - other) for one, other in zip(drawn, (0, 102, 204, 255), strict=True)) <= 8


@pytest.mark.parametrize(
    ("primitive", "expected"),
    [
        ('<feGaussianBlur stdDeviation="3"/>', {}),
        ('<feGaussianBlur stdDeviation="3 1"/>', {"effects_dropped"}),
        ('<feOffset dx="5"/>', {"effects_dropped"}),
        ('<feFlood x="0" width="9"/>', {"effects_dropped"}),
    ],
)
def test_filters_of_what_is_rotated_are_reported(primitive: str, expected: set[str]) -> None:
    body = f'<filter id="f">{primitive}</filter><g transform="{{}}"><rect width="9" height="9" filter="url(#f)"/></g>'

    assert codes(_convert(body.format("rotate(30)"))) == set(expected)
    assert codes(_convert(body.format("scale(3) translate(9)"))) == set()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("kind", "exact"), [("JPEG", False), ("PNG", True), ("WEBP", False)])
def test_embedded_images_are_turned_upright(orientation: int, kind: str, exact: bool) -> None:
    image = Image.new("RGB", (32, 64), "blue")
    image.paste("red", (0, 0, 16, 16))
    exif = Image.Exif()
    exif[274] = orientation
    file = BytesIO()
    image.save(file, kind, exif=exif)
    link = f"data:image/{kind.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
    expected = ImageOps.exif_transpose(Image.open(file)).convert("RGBA")

    drawn = _image(_convert(f'<image href="{link}"/>')).crop((0, 0, *expected.size))

    assert np.abs(np.asarray(drawn, int) - np.asarray(expected, int)).mean() < 6
