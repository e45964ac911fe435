"""SVG as vectors: the results look like the PNG, have its size, and text stays text."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image, ImageFilter

from engine import Size, pipeline
from engine.mupdf import pymupdf
from engine.registry import load_registry
from tests.support.results.conversions import codes

_REGISTRY = load_registry()
_NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="300" height="120"'
_BLUR = 1.5  # pixels; edges differ between renderers
_VISIBLE = 32  # levels of 255
_SHARE_OF_PIXELS = 0.01
_DRAWINGS = sorted((Path(__file__).parent / "drawings").glob("*.svg"))
_DIFFERENT = {
    "filter_primitives",  # filters have more pixels, so that the radius of light is another
    "inkscape_pattern",  # MuPDF draws seams between the tiles of patterns
}
_BODIES = {
    "subscript": '<text x="10" y="60" font-size="40" font-family="sans-serif">H'
    '<tspan style="font-size:65%;baseline-shift:sub">2</tspan>O</text>',
    "clip-path of a clip-path": '<clipPath id="a"><circle cx="60" cy="60" r="50"/></clipPath>'
    '<clipPath id="b" clip-path="url(#a)"><rect x="40" y="20" width="200" height="60"/></clipPath>'
    '<rect width="300" height="120" fill="#393" clip-path="url(#b)"/>',
    "colored part of centered text": '<text x="150" y="50" text-anchor="middle" font-size="24">ab'
    '<tspan fill="red">cde</tspan>fg</text>',
    "no dashes": '<g stroke="#000" stroke-width="4" stroke-dasharray="10 5"><path d="M10 30H290"/>'
    '<path d="M10 60H290" stroke-dasharray="none"/></g>',
    "inherited gradientTransform": '<linearGradient id="a" gradientUnits="userSpaceOnUse" x2="100" '
    'gradientTransform="translate(100) rotate(45)"><stop stop-color="red"/><stop offset="1"/></linearGradient>'
    '<linearGradient id="b" xlink:href="#a"/><rect width="300" height="120" fill="url(#b)"/>',
}


def _convert(data: bytes, source: str, target: str) -> bytes:
    return pipeline.run(_REGISTRY.plan([_REGISTRY.formats[source]], target), [data]).data


def _svg(body: str) -> bytes:
    return f"<svg {_NAMES}>{body}</svg>".encode()


def _on_white(png: bytes) -> Image.Image:
    image = Image.open(BytesIO(png)).convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")


def _page(pdf: bytes, size: Size) -> Image.Image:
    page = pymupdf.open(stream=pdf, filetype="pdf")[0]
    matrix = pymupdf.Matrix(size[0] / page.rect.width, size[1] / page.rect.height)
    pixels = page.get_pixmap(matrix=matrix, alpha=False)
    return Image.frombytes("RGB", (pixels.width, pixels.height), pixels.samples)


def _share_of_different_pixels(first: Image.Image, second: Image.Image) -> float:
    blurred = [np.asarray(image.filter(ImageFilter.GaussianBlur(_BLUR)), np.int16) for image in (first, second)]
    return float((np.abs(blurred[0] - blurred[1]).max(axis=-1) > _VISIBLE).mean())


def _differences(data: bytes) -> dict[str, float]:
    """The share of pixels in which PDF and SVG differ from the PNG."""
    png = _on_white(_convert(data, "svg", "png"))
    pictures = {
        "pdf": _page(_convert(data, "svg", "pdf"), png.size),
        "svg": _on_white(_convert(_convert(data, "svg", "svg"), "svg", "png")),
    }
    assert {picture.size for picture in pictures.values()} == {png.size}
    return {target: _share_of_different_pixels(png, picture) for target, picture in pictures.items()}


@pytest.mark.parametrize("path", _DRAWINGS, ids=lambda path: path.stem)
def test_drawings_look_like_the_png(path: Path) -> None:
    differences = _differences(path.read_bytes())

    assert differences["svg"] == 0
    assert differences["pdf"] <= _SHARE_OF_PIXELS or path.stem in _DIFFERENT


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_details_look_like_the_png(body: str) -> None:
    assert max(_differences(_svg(body)).values()) <= _SHARE_OF_PIXELS


@pytest.mark.parametrize("target", ["png", "pdf", "svg"])
def test_flowed_text_is_not_drawn_but_told(target: str) -> None:
    body = "<flowRoot><flowRegion><rect width='200' height='60'/></flowRegion><flowPara>Text</flowPara></flowRoot>"

    result = pipeline.run(_REGISTRY.plan([_REGISTRY.formats["svg"]], target), [_svg(body)])

    assert codes(result) == {"effects_dropped"}
    if target == "pdf":
        assert not pymupdf.open(stream=result.data, filetype="pdf")[0].get_bboxlog()
    else:
        assert _on_white(_convert(result.data, target, "png")).getcolors() == [(300 * 120, (255, 255, 255))]


def test_text_stays_text() -> None:
    data = _svg('<text x="10" y="50" font-size="20" font-family="Arial, sans-serif">office ψ</text>')

    page = pymupdf.open(stream=_convert(data, "svg", "pdf"), filetype="pdf")[0]
    text = etree.fromstring(_convert(data, "svg", "svg"))[0]

    assert page.get_text().strip() == "office ψ"
    assert text.text == "office ψ"
    assert "Arial" in text.get("font-family", "")


@pytest.mark.parametrize(
    ("active", "harmless"),
    [
        ("<script>alert(1)</script>", ""),
        ('<rect onload="alert(1)" style="onclick:alert(1)"/>', "<rect/>"),
        ('<a href="javascript:alert(1)"><g/></a>', "<a><g/></a>"),
        ('<a href="#"><set attributeName="href" to="javascript:alert(1)"/></a>', '<a href="#"/>'),
        ('<a xlink:href="https://example.com/"/>', '<a xlink:href="https://example.com/"/>'),
        ('<use href="https://example.com/a.svg#a"/>', "<use/>"),
        ('<foreignObject><iframe xmlns="http://www.w3.org/1999/xhtml" src="a"/></foreignObject>', "<g/>"),
        ('<g xmlns:e="e" e:a="1"><e:b>c</e:b><metadata/></g>', "<g/>"),
        ("<text>a<title>b</title>c</text>", "<text>ac</text>"),
    ],
)
def test_a_redrawn_svg_has_only_what_is_drawn(active: str, harmless: str) -> None:
    redrawn = etree.fromstring(_convert(_svg(active), "svg", "svg"))
    expected = etree.fromstring(_svg(harmless))
    redrawn.attrib.pop("font-family", None)
    etree.cleanup_namespaces(expected)

    assert etree.tostring(redrawn, method="c14n") == etree.tostring(expected, method="c14n")
