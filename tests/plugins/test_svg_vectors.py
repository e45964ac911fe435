"""SVG as vectors and as images: the results look like the PNG and as Chromium shows them, and text stays text."""

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from PIL import Image, ImageFilter

from engine import OptionValues, Size, pipeline
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._svg import vectors
from tests.support.browser import running_browser
from tests.support.results.conversions import codes
from tests.support.samples.corpus import CORPUS, load_corpus

_REGISTRY = load_registry()
_NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="300" height="120"'
_BLUR = 1.5  # pixels; edges differ between renderers
_VISIBLE = 32  # levels of 255
_SHARE_OF_PIXELS = 0.01
_DRAWINGS = sorted((Path(__file__).parent / "drawings").glob("*.svg"))
_SIZE = b'<svg width="200" height="120"'
_SHARE_OF_CONSTRUCTS = 0.05  # as edges of noise differ between renderers
_UNREPORTED = {
    "filter-units-user",  # Chromium does not cut off the source at the region
    "filter-region-percent",
    "use-style",  # selectors that refer to ancestors do not apply where an element is used
    "css-supports",  # what is supported is unknown
    "displacement-noise",  # edges
}
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
    "default size of text": '<text x="1em" y="50" stroke-width=".1em">abc</text>',
    "alpha mask": '<mask id="m" style="mask-type:alpha"><rect width="150" height="99" opacity=".5"/></mask>'
    '<rect width="300" height="120" mask="url(#m)"/>',
    "mask of a mask": '<mask id="n"><rect width="120" height="120" fill="#fff"/></mask>'
    '<mask id="m" mask="url(#n)"><circle cx="100" cy="60" r="50" fill="#fff"/></mask>'
    '<rect width="300" height="120" mask="url(#m)"/>',
    "painted text": '<linearGradient id="a"><stop stop-color="red"/><stop offset="1"/></linearGradient>'
    '<text x="9" y="60" font-size="40" fill="url(#a)" stroke="#000" opacity=".5">text</text>',
    "symbol": '<symbol id="s" viewBox="0 0 10 10"><circle cx="5" cy="5" r="5"/></symbol>'
    '<use href="#s" x="10" y="10" width="50" height="90" fill="red"/>',
    "pattern of a box": '<pattern id="a" width=".2" height=".25"><circle cx="8" cy="8" r="6" fill="red"/></pattern>'
    '<rect width="300" height="120" fill="url(#a)"/>',
    "background": "<style>svg{background:#def}</style>",
}
_STOPS = '<stop stop-color="red"/><stop offset=".5" stop-color="#ff0"/><stop offset="1" stop-color="blue"/>'
_GRADIENTS = [
    '<linearGradient id="a" x2=".3" spreadMethod="{}">{}</linearGradient>',
    '<linearGradient id="a" x2="30%" y2=".2" gradientTransform="rotate(30)" spreadMethod="{}">{}</linearGradient>',
    '<linearGradient id="a" gradientUnits="userSpaceOnUse" x1="150" x2="200px" spreadMethod="{}">{}</linearGradient>',
    '<linearGradient id="a" href="#b" x2=".5"/><linearGradient id="b" x2=".2" spreadMethod="{}">{}</linearGradient>',
    '<radialGradient id="a" r=".2" fx=".45" spreadMethod="{}">{}</radialGradient>',
    '<radialGradient id="a" r=".4" fr=".2" spreadMethod="{}">{}</radialGradient>',
]


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
    images = {
        "pdf": _page(_convert(data, "svg", "pdf"), png.size),
        "svg": _on_white(_convert(_convert(data, "svg", "svg"), "svg", "png")),
    }
    assert {image.size for image in images.values()} == {png.size}
    return {target: _share_of_different_pixels(png, image) for target, image in images.items()}


@pytest.mark.parametrize("path", _DRAWINGS, ids=lambda path: path.stem)
def test_drawings_look_like_the_png(path: Path) -> None:
    differences = _differences(path.read_bytes())

    assert differences["svg"] == 0
    assert differences["pdf"] <= _SHARE_OF_PIXELS or path.stem in _DIFFERENT


@pytest.mark.parametrize("body", _BODIES.values(), ids=_BODIES)
def test_details_look_like_the_png(body: str) -> None:
    assert max(_differences(_svg(body)).values()) <= _SHARE_OF_PIXELS


@pytest.mark.parametrize("spread", ["repeat", "reflect", "pad"])
@pytest.mark.parametrize("gradient", _GRADIENTS)
def test_gradients_look_like_the_png(gradient: str, spread: str) -> None:
    differences = _differences(
        _svg(f'{gradient.format(spread, _STOPS)}<rect width="300" height="120" fill="url(#a)"/>')
    )

    # MuPDF draws 256 colors of a gradient, so that the borders between periods are not sharp.
    assert max(differences.values()) <= (10 if spread == "repeat" else 1) * _SHARE_OF_PIXELS


@pytest.mark.parametrize(
    "gradient",
    [
        '<linearGradient id="a" x2="3cm" gradientUnits="userSpaceOnUse" spreadMethod="repeat">{}</linearGradient>',
        '<linearGradient id="a" x2="0" spreadMethod="repeat">{}</linearGradient>',
        '<linearGradient id="a" x2="1e-30" spreadMethod="repeat">{}</linearGradient>',
        '<linearGradient id="a" x2="1e999" spreadMethod="reflect">{}</linearGradient>',
        '<linearGradient id="a" x2="nan" spreadMethod="reflect">{}</linearGradient>',
        '<radialGradient id="a" r="0" spreadMethod="repeat">{}</radialGradient>',
        '<radialGradient id="a" r=".1" fr=".5" spreadMethod="repeat">{}</radialGradient>',
        f'<linearGradient id="a" spreadMethod="repeat">{"{}" * 1000}</linearGradient>'.replace("{}", _STOPS),
        '<linearGradient id="a" gradientTransform="scale(0)" spreadMethod="repeat">{}</linearGradient>',
    ],
)
def test_unusual_gradients_do_not_fail(gradient: str) -> None:
    assert _convert(_svg(gradient.replace("{}", _STOPS) + '<rect width="9" height="9" fill="url(#a)"/>'), "svg", "pdf")


def test_a_image_in_cmyk() -> None:
    file = BytesIO()
    Image.new("CMYK", (10, 10), (0, 255, 255, 0)).save(file, "JPEG")
    link = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
    data = _svg(f'<image href="{link}" width="120" height="120"/>')

    assert max(_differences(data).values()) <= _SHARE_OF_PIXELS
    red = _on_white(_convert(data, "svg", "png")).getpixel((60, 60))
    assert isinstance(red, tuple)
    assert red[0] > 200
    assert max(red[1:]) < 60


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


@pytest.mark.parametrize("source", ["pdf", "eps", "svg"])
def test_the_printed_size_is_kept(source: str) -> None:
    data = f'<svg {_NAMES.replace("300", "50mm").replace("120", "30mm")}><path d="M0 0H99V9"/></svg>'.encode()
    if source != "svg":
        data = _convert(data, "svg", source)

    redrawn = _convert(data, source, "svg")

    assert _on_white(_convert(redrawn, "svg", "png")).size == (189, 113)
    page = pymupdf.open(stream=_convert(redrawn, "svg", "pdf"), filetype="pdf")[0]
    assert (page.rect.width, page.rect.height) == pytest.approx((141.73, 85.04), abs=0.01)


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
        ('<g xml:base="https://example.com/" xml:lang="de"/>', '<g xml:lang="de"/>'),
    ],
)
def test_a_redrawn_svg_has_only_what_is_drawn(active: str, harmless: str) -> None:
    redrawn = etree.fromstring(_convert(_svg(active), "svg", "svg"))
    expected = etree.fromstring(_svg(harmless))
    for name in ("font-family", "font-size"):
        redrawn.attrib.pop(name, None)
    etree.cleanup_namespaces(expected)

    assert etree.tostring(redrawn, method="c14n") == etree.tostring(expected, method="c14n")


def test_a_drawing_without_a_namespace_gets_it() -> None:
    redrawn = _convert(b'<svg width="9" height="9"><g><rect width="9" height="9"/></g></svg>', "svg", "svg")

    assert redrawn.startswith(b'<svg xmlns="http://www.w3.org/2000/svg"')
    assert redrawn.endswith(b'<g><rect width="9" height="9"/></g></svg>')


def test_cairo_draws_what_typst_refuses() -> None:
    svg = f'<svg {_NAMES}><rect x="20" y="10" width="100" height="50" fill="#00f"/></svg>'

    page = pymupdf.open(stream=vectors.draw_with_cairo(svg))[0]

    assert (page.rect.width, page.rect.height) == pytest.approx((225, 90), abs=0.01)
    (drawing,) = page.get_drawings()
    assert tuple(drawing["rect"]) == pytest.approx((15, 7.5, 90, 45), abs=0.01)
    assert drawing["fill"] == (0, 0, 1)


@pytest.mark.parametrize("target", ["png", "webp", "svg", "pdf"])
def test_title_and_description_are_kept_with_all_metadata(target: str) -> None:
    body = "<title>A <b>b</b> title</title><desc>Words</desc><g><title>inner</title><rect width='9' height='9'/></g>"
    options: OptionValues = {"metadata": "all"}
    plan = _REGISTRY.plan([_REGISTRY.formats["svg"]], target, options=options)

    result = pipeline.run(plan, [_svg(body)], options)

    if target == "pdf":
        found = pymupdf.open(stream=result.data, filetype="pdf").metadata
        content = repr(found)
    else:
        content = repr(result.data)
    assert "A b title" in content
    assert "Words" in content
    assert "inner" not in content
    assert codes(result) == set()
    assert b"A b title" not in _convert(_svg(body), "svg", target) or target == "pdf"


def _drawings() -> dict[str, bytes]:
    """Drawings in the manner of the programs that write most SVGs, and the SVGs of the corpus."""
    files = [*(Path(__file__).parent / "drawings").glob("*.svg"), *(CORPUS.parent / "hard").glob("*.svg")]
    files += [entry.path for entry in load_corpus() if entry.sound and entry.format == "svg"]
    return {str(path): path.read_bytes() for path in sorted(files)}


def _drawn_by_browser(drawings: Mapping[str, bytes], sizes: Mapping[str, tuple[int, int]]) -> dict[str, Image.Image]:
    """The images of one screenshot, on which they lie below each other. Leaves out those that Chromium refuses."""
    place = '<img style="display:block;width:{}px;height:{}px" src="data:image/svg+xml;base64,{}">'
    page_text = "".join(place.format(*sizes[name], base64.b64encode(data).decode()) for name, data in drawings.items())
    with running_browser() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 1000})
        page.set_content(f"<style>*{{margin:0}}</style>{page_text}", wait_until="load")
        refused = page.evaluate("[...document.images].map(image => image.naturalWidth === 0)")
        sheet = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
    top, images = 0, {}
    for name, missing in zip(drawings, refused, strict=True):
        width, height = sizes[name]
        if not missing:
            images[name] = sheet.crop((0, top, width, top + height))
        top += height
    return images


def _browser_differences(own: Mapping[str, Image.Image], shown: Mapping[str, Image.Image]) -> dict[str, float]:
    """The share of pixels of those that are visibly different."""
    shares = {name: _share_of_different_pixels(image, own[name]) for name, image in shown.items()}
    return {name: round(share, 3) for name, share in shares.items() if share > _SHARE_OF_PIXELS}


def test_images_and_redrawn_svgs_look_as_in_a_browser() -> None:
    """At most one in ten is visibly different, and none is refused. A redrawn SVG is shown as the image."""
    drawings, own, redrawn = _drawings(), {}, {}
    to_png, to_svg = (_REGISTRY.plan([_REGISTRY.formats["svg"]], target) for target in ("png", "svg"))
    for name, data in drawings.items():
        drawn = Image.open(BytesIO(pipeline.run(to_png, [data]).data)).convert("RGBA")
        own[name] = Image.alpha_composite(Image.new("RGBA", drawn.size, "white"), drawn).convert("RGB")
        redrawn[name] = pipeline.run(to_svg, [data]).data
    sizes = {name: image.size for name, image in own.items()}

    expected, shown = _drawn_by_browser(drawings, sizes), _drawn_by_browser(redrawn, sizes)

    assert len(expected) >= 48
    assert shown.keys() == own.keys()
    different, different_redrawn = _browser_differences(own, expected), _browser_differences(own, shown)
    assert len(different) <= len(expected) / 10, different
    assert len(different_redrawn) <= len(shown) / 20, different_redrawn


@pytest.mark.long
def test_constructs_look_as_in_a_browser_or_are_reported() -> None:
    """Constructs of SVG, CSS and filters, each in a drawing of its own."""
    root = etree.parse(Path(__file__).parent / "drawings" / "constructs.xml").getroot()
    drawings = {str(one.get("id")): etree.tostring(one, with_tail=False).replace(b"<svg", _SIZE, 1) for one in root}
    results = {
        name: pipeline.run(_REGISTRY.plan([_REGISTRY.formats["svg"]], "png"), [drawings[name]]) for name in drawings
    }
    redrawn = {name: _convert(data, "svg", "svg") for name, data in drawings.items()}
    own = {name: _on_white(result.data) for name, result in results.items()}
    sizes = dict.fromkeys(drawings, (200, 120))

    expected, shown = _drawn_by_browser(drawings, sizes), _drawn_by_browser(redrawn, sizes)

    assert len(expected) > 170
    different = {
        name for name in drawings if _share_of_different_pixels(own[name], expected[name]) > _SHARE_OF_CONSTRUCTS
    }
    lost = {name for name in drawings if _share_of_different_pixels(shown[name], expected[name]) > _SHARE_OF_CONSTRUCTS}
    unreported = {name for name in different | lost if not codes(results[name])}
    assert unreported == _UNREPORTED
    assert len(different) <= 37, different
