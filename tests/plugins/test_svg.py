"""SVG: notations of CSS, sizes, fonts, warnings, and vectors that stay vectors."""

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pikepdf
import pytest
from PIL import Image, ImageColor

from engine import CorruptInput, TooLarge, pipeline
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert

_REGISTRY = load_registry()
_NAMES = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
_RECT = '<rect width="100" height="100" fill="red"/>'


def _convert(body: str, target: str = "png", attributes: str = 'width="100" height="100"') -> PipelineResult:
    data = f"<svg {_NAMES} {attributes}>{body}</svg>".encode()
    return pipeline.run(_REGISTRY.plan([_REGISTRY.formats["svg"]], target), [data])


def _image(result: PipelineResult) -> Image.Image:
    return Image.open(BytesIO(result.data)).convert("RGBA")


_USUAL = {"SRGB": "sRGB", "CURRENTCOLOR": "#0a5"}


def _image_widths(data: bytes) -> list[int]:
    """The widths in pixels of the images in a PDF."""
    with pikepdf.open(BytesIO(data)) as document:
        streams = [one for one in document.objects if isinstance(one, pikepdf.Stream)]
        return [int(one.Width) for one in streams if one.get("/Subtype") == "/Image"]


_BLUE = (0, 0, 255, 255)


@pytest.mark.parametrize(
    ("paint", "expected"),
    [
        ("rgb(0 0 255)", _BLUE),
        ("rgb(0 0 255 / 50%)", (0, 0, 255, 128)),
        ("rgba(0,0,255,.5)", (0, 0, 255, 128)),
        ("#00f8", (0, 0, 255, 136)),
        ("hsl(240deg 100% 50%)", _BLUE),
        ("hsla(240, 100%, 50%, 50%)", (0, 0, 255, 128)),
        ("hwb(240 0% 0%)", _BLUE),
        ("light-dark(#00f, #f00)", _BLUE),
        ("color(srgb 0 0 1)", _BLUE),
        ("color(display-p3 0 1 0)", (0, 255, 0, 255)),
        ("oklch(0.452 0.3132 264.05)", _BLUE),
        ("lab(29.57 68.3 -112.03)", _BLUE),
        ("var(--paint)", _BLUE),
        ("var(--unknown, var(--paint))", _BLUE),
        *((name, _BLUE) for name in ("currentColor", "currentcolor", "CURRENTCOLOR", "BLUE")),
        ("RebeccaPurple", (102, 51, 153, 255)),
    ],
)
@pytest.mark.parametrize("place", ['fill="{}"', 'style="fill:{}"'])
def test_notations_of_colors(paint: str, expected: tuple[int, ...], place: str) -> None:
    style = "<style>:root{--paint:#00f;color:#00f}</style>"

    drawn = _image(_convert(f'{style}<rect width="100" height="100" {place.format(paint)}/>'))

    pixel = drawn.getpixel((50, 50))
    assert isinstance(pixel, tuple)
    assert max(abs(one - other) for one, other in zip(pixel, expected, strict=True)) <= 2


@pytest.mark.parametrize(
    "width",
    [
        "2rem",
        "2em",
        "32px",
        "32PX",
        " 32 ",
        "calc(10% + 22px)",
        "calc(2 * (1rem))",
        "min(2rem, 90%)",
        "clamp(1px, 2rem, 50%)",
    ],
)
def test_notations_of_lengths(width: str) -> None:
    drawn = _image(_convert(f'<rect width="{width}" style="height:50%" fill="red"/>'))

    assert drawn.getbbox() == (0, 0, 32, 50)


@pytest.mark.parametrize(
    "body",
    [
        '<rect width="50" height="50" fill="{None}" stroke="red"/>',
        '<g fill="blue"><rect width="50" height="50" fill="{INHERIT}"/></g>',
        '<g fill="blue"><rect width="50" height="50" style="fill:red;fill:{Inherit}"/></g>',
        '<rect width="50" height="50" display="{NONE}"/><rect y="50" width="50" height="50" visibility="{Hidden}"/>',
        '<path d="M20 50H80" stroke="red" stroke-width="20" stroke-linecap="{ROUND}"/>',
        '<path d="M10 10h80v80h-80zM20 20h60v60h-60z" fill-rule="{EvenOdd}"/>',
        '<text x="50" y="50" text-anchor="{MIDDLE}" font-weight="{BOLD}" style="font-style:{Italic}">ab</text>',
        '<rect width="99" height="99"/><rect width="50" height="50" fill="red" style="mix-blend-mode:{MULTIPLY}"/>',
        '<filter id="f" color="#0a5" color-interpolation-filters="{SRGB}"><feFlood flood-color="{CURRENTCOLOR}"/>'
        '<feComponentTransfer><feFuncG type="linear" slope=".5"/></feComponentTransfer></filter>'
        '<rect width="50" height="50" filter="url(#f)"/>',
    ],
)
def test_keywords_in_any_case(body: str) -> None:
    usual = re.sub(r"{(\w+)}", lambda match: _USUAL.get(match[1], match[1].lower()), body)
    drawn = _image(_convert(re.sub("[{}]", "", body)))

    assert drawn == _image(_convert(usual))
    assert drawn != _image(_convert(re.sub(r"{\w+}", "nonsense", body)))


@pytest.mark.parametrize(
    ("transform", "box"),
    [
        ("translate(50%, 10%)", (50, 10, 60, 20)),
        ("TRANSLATEX(20PX)", (20, 0, 30, 10)),
        ("translatey(50%)", (0, 50, 10, 60)),
        ("translate3d(20px, 10px, 5px) scale3d(2, 3, 4)", (20, 10, 40, 40)),
        ("translateZ(0) rotateZ(.25turn) scaleZ(2)", None),
        ("skewX(45deg)", (0, 0, 20, 10)),
    ],
)
def test_transforms_of_css(transform: str, box: tuple[int, ...] | None) -> None:
    result = _convert(f'<rect width="10" height="10" style="transform:{transform}"/>')

    assert _image(result).getbbox() == box
    assert codes(result) == set()


@pytest.mark.parametrize(
    ("value", "color"),
    [("unset", "blue"), ("revert", "blue"), ("INITIAL", "black"), ("inherit", "blue"), ("nonsense()", "red")],
)
def test_default_values_of_css(value: str, color: str) -> None:
    body = f'<g fill="blue"><rect width="100" height="100" fill="red" style="fill:{value}"/></g>'

    assert _image(_convert(body)).getpixel((50, 50)) == (*ImageColor.getrgb(color), 255)


@pytest.mark.parametrize(
    ("attributes", "size"),
    [
        ('width="60" viewBox="0 0 300 150"', (60, 30)),
        ('height="60" viewBox="0 0 300 150"', (120, 60)),
        ('width="100%" height="40" viewBox="0 0 300 150"', (80, 40)),
        ('style="width:5rem;height:auto" height="1" viewBox="0 0 300 150"', (80, 40)),
        ('viewBox="0 0 70 40"', (70, 40)),
        ('width="60"', (60, 150)),
        ("", (300, 150)),
        ('width="1in" height="2.54cm"', (96, 96)),
    ],
)
def test_sizes(attributes: str, size: tuple[int, int]) -> None:
    assert _image(_convert(_RECT, attributes=attributes)).size == size
    with pikepdf.open(BytesIO(_convert(_RECT, "pdf", attributes).data)) as document:
        box = [float(side) for side in document.pages[0].mediabox]
    assert box[2:] == pytest.approx([side * 0.75 for side in size], abs=0.5)


@pytest.mark.parametrize(
    "rules",
    [
        "rect:not(.a){fill:blue}",
        "svg > rect:nth-child(2){fill:blue}",
        "@media screen{rect{fill:blue}}",
        "rect{fill:blue!important}#r{fill:red}",
        "rect{fill:blue;fill:nonsense(1)}",
    ],
)
def test_style_sheets(rules: str) -> None:
    target = _RECT.replace("<rect", '<rect id="r"')
    drawn = _image(_convert(f"<style>@media print{{*{{fill:lime}}}}{rules}</style>{target}"))

    assert drawn.getpixel((50, 50)) == _BLUE


@pytest.mark.parametrize(
    ("query", "applies"),
    [
        *((query, True) for query in ("", "all", "screen", "only screen", "not print", "print, screen", "SCREEN")),
        *((query, False) for query in ("print", "not screen", "not all", "speech", "screen and", "screen and x")),
        *((f"screen and ({feature})", True) for feature in ("min-width: 100px", "max-width:20em", "min-height: 80px")),
        *((f"({feature})", False) for feature in ("min-width: 101px", "max-height: 1in", "orientation: landscape")),
        *(
            (f"({feature})", True)
            for feature in ("prefers-color-scheme: light", "prefers-reduced-motion: no-preference", "orientation")
        ),
        *((f"({feature})", False) for feature in ("prefers-color-scheme: dark", "hover", "prefers-reduced-motion")),
        ("screen and (prefers-color-scheme: dark)", False),
        ("not (prefers-color-scheme: dark)", True),
        ("(min-width: 99px) and (max-width: 999px)", True),
        ("(min-width: 999px) and (max-width: 999px)", False),
    ],
)
def test_media_queries(query: str, applies: bool) -> None:
    drawn = _image(_convert(f"<style>@media {query} {{rect{{fill:blue}}}}</style>{_RECT}"))

    assert (drawn.getpixel((50, 50)) == _BLUE) is applies


@pytest.mark.parametrize(
    "query",
    [
        "()",
        "(min-width)",
        "(min-width:)",
        "(-)",
        "not",
        "screen and x",
        "not (unknown: 1)",
        "(width > 1px)",
        "(hover) or",
    ],
)
def test_unknown_media_queries_are_reported(query: str) -> None:
    result = _convert(f"<style>@media {query} {{rect{{fill:blue}}}}</style>{_RECT}")

    assert _image(result).getpixel((50, 50)) != _BLUE
    assert "effects_dropped" in codes(result)


_STOPS = '<stop stop-color="red"/><stop offset=".5" stop-color="red"/><stop offset=".5" stop-color="blue"/>'


@pytest.mark.parametrize("transform", ['{}="translate(40)"', 'style="transform:translate(40px)"'])
@pytest.mark.parametrize("paint", ["linearGradient", "radialGradient", "pattern"])
@pytest.mark.parametrize(
    "references", ["", '<{0} id="b" xlink:href="#a"/>', '<{0} id="c" href="#a"/><{0} id="b" href="#c"/>']
)
def test_transforms_of_paints_are_inherited(paint: str, transform: str, references: str) -> None:
    name = "patternTransform" if paint == "pattern" else "gradientTransform"
    side = {"linearGradient": 'x2="100"', "radialGradient": 'cx="0" cy="50" r="100"'}.get(
        paint, 'width="200" height="99"'
    )
    stops = (
        '<path fill="red" d="M0 0H50V99H0"/><path fill="blue" d="M50 0H200V99H50"/>' if paint == "pattern" else _STOPS
    )
    units = "patternUnits" if paint == "pattern" else "gradientUnits"
    body = f'<{paint} id="a" {units}="userSpaceOnUse" {side} {transform.format(name)}>{stops}</{paint}>'
    target = "b" if references else "a"

    drawn = _image(_convert(f'{body}{references.format(paint)}<rect width="100" height="100" fill="url(#{target})"/>'))

    assert [drawn.getpixel((x, 50)) for x in (85, 95)] == [(255, 0, 0, 255), _BLUE]


@pytest.mark.parametrize("letters", ["שלום", "سلام"])
@pytest.mark.parametrize("family", ["sans-serif", "serif", "Arial"])
@pytest.mark.parametrize("weight", ["normal", "bold"])
def test_letters_from_right_to_left_have_their_weight(letters: str, family: str, weight: str) -> None:
    def drawn(name: str) -> Image.Image:
        text = f'<text x="95" y="60" font-size="30" direction="rtl" font-weight="{weight}" font-family="{name}">'
        return _image(_convert(f"{text}{letters}</text>"))

    assert drawn(family) == drawn("DejaVu Sans")


def test_a_symbol_that_a_font_lacks_is_not_bold() -> None:
    def drawn(name: str) -> Image.Image:
        return _image(_convert(f'<text x="20" y="60" font-size="50" font-family="{name}">✓</text>'))

    assert drawn("Arial") == drawn("DejaVu Sans")


def test_gradients_that_refer_to_each_other_are_drawn() -> None:
    body = '<linearGradient id="a" href="#b"/><linearGradient id="b" href="#a"/><rect fill="url(#a)"/>'

    assert _convert(body).data


_DROPPED_STYLES = (
    "text-shadow:1px 1px red",
    "text-orientation:upright",
    "font-variant:small-caps",
    "rotate:9deg",
    "scale:2",
    "fill:color-mix(in srgb, red, blue)",
    "fill:rgb(from red r g b)",
    "mix-blend-mode:plus-lighter",
    "transform:rotateX(9deg)",
    "mask-mode:alpha",
)
_DROPPED_SHEETS = ("@layer a{rect{fill:red}}", "@property --a{syntax:'*';inherits:false}", "g{rect{fill:red}}")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (_RECT, set()),
        ('<text y="50" font-family="sans-serif">a</text>', set()),
        ('<text y="50" font-family="DejaVu Sans">a</text>', set()),
        ('<text y="50" font-family="No Such Font, DejaVu Sans">a</text>', set()),
        ('<text y="50" font-family="No Such Font">a</text>', {"font_substituted"}),
        ("<style>text{font:12px 'No Such Font',serif}</style><text y=\"50\">a</text>", {"font_substituted"}),
        ('<rect width="9" height="9"><animate attributeName="x" to="5" dur="1s"/></rect>', {"effects_dropped"}),
        ("<style>rect{animation:spin 1s}</style>" + _RECT, {"effects_dropped"}),
        (
            '<foreignObject width="90" height="90"><p xmlns="http://www.w3.org/1999/xhtml">a</p></foreignObject>',
            {"effects_dropped"},
        ),
        ('<g clip-path="circle(20px)">' + _RECT + "</g>", {"effects_dropped"}),
        ('<rect width="9" height="9" transform="translate(50%)"/>', {"effects_dropped"}),
        ('<rect width="9" height="9" style="transform-box:fill-box;transform-origin:center"/>', {"effects_dropped"}),
        ('<path d="M0 0H9" pathLength="1" stroke-dasharray=".5" mask-image="none"/>', {"effects_dropped"}),
        ('<g transform="scale(2 1)"><path vector-effect="non-scaling-stroke" d="M0 0H9"/></g>', {"effects_dropped"}),
        *((f'<g style="{style}">{_RECT}</g>', {"effects_dropped"}) for style in _DROPPED_STYLES),
        *((f"<style>{style}</style>{_RECT}", {"effects_dropped"}) for style in _DROPPED_SHEETS),
        ('<text><textPath path="M0 9H99">a</textPath></text>', {"effects_dropped"}),
        ('<text>a<tspan textLength="50">b</tspan></text>', {"effects_dropped"}),
        ('<symbol id="s" refX="center"/><use href="#s"/>', {"effects_dropped"}),
        ('<mask id="m"/><g mask="url(#m) alpha"/>', {"effects_dropped"}),
        ('<linearGradient color-interpolation="linearRGB"/>', {"effects_dropped"}),
        ('<rect width="round(7px, 5px)" height="9"/>', {"effects_dropped"}),
        ('<image href="http://127.0.0.1:9/a.png" width="9" height="9"/>', {"effects_dropped"}),
        ('<image href="other.png" width="9" height="9"/>', {"effects_dropped"}),
        ("<style>@import url(a.css);</style>" + _RECT, {"effects_dropped"}),
    ],
)
def test_warnings(body: str, expected: set[str]) -> None:
    redrawn = _convert(body, "svg")

    assert codes(_convert(body)) == codes(redrawn) == expected
    # The result of the first time has nothing that is lost.
    assert codes(pipeline.run(_REGISTRY.plan([_REGISTRY.formats["svg"]], "png"), [redrawn.data])) == set()


_BLUR = '<filter id="f"><feGaussianBlur stdDeviation="2"/></filter>'
_MASK = '<mask id="m"><rect width="100" height="50" fill="#888"/></mask>'


@pytest.mark.parametrize(
    ("effect", "becomes_image"),
    [
        (_BLUR + '<rect width="50" height="50" filter="url(#f)"/>', True),
        (_BLUR + '<rect width="50" height="50" filter="none"/>', False),
        (_MASK + '<rect width="50" height="50" mask="url(#m)"/>', False),
        ('<rect width="50" height="50" style="mix-blend-mode:multiply"/>', False),
        ('<text y="20" textLength="80">ab</text>', False),
        ('<text x="90" y="20" direction="rtl">שלום</text>', False),
        ('<text y="20" stroke="red" paint-order="stroke">ab</text>', False),
    ],
)
def test_only_filters_become_images(effect: str, becomes_image: bool) -> None:
    pdf, svg = _convert(effect, "pdf"), _convert(effect, "svg")

    assert (codes(pdf), bool(_image_widths(pdf.data))) == (
        {"effects_rasterized"} if becomes_image else set(),
        becomes_image,
    )
    assert codes(svg) == set()
    assert b"<image" not in svg.data


def test_an_effect_in_an_embedded_svg_is_told() -> None:
    inner = f"<svg {_NAMES} width='50' height='50'>{_BLUR}<rect width='9' height='9' filter='url(#f)'/></svg>"
    quoted = inner.replace("#", "%23").replace('"', "'").replace("<", "%3C")

    assert codes(_convert(f'<image href="data:image/svg+xml,{quoted}"/>', "pdf")) == {"effects_rasterized"}


def test_only_the_part_with_an_effect_becomes_a_image() -> None:
    blurred = '<rect width="10" height="10" filter="url(#f)"/>'
    body = f'{_BLUR}<g transform="translate(50 50) scale(2)" opacity=".5">{blurred}</g>'
    result = _convert(f'<text y="20" font-size="20">text</text>{body}', "pdf")

    assert b"/Font" in result.data
    # The image covers the 20 x 20 pixels of the square and its blur, not the whole page.
    assert max(_image_widths(result.data)) < 150


def test_markup_in_entities() -> None:
    data = (
        b'<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "svg11.dtd" '
        b'[<!ENTITY ns_svg "http://www.w3.org/2000/svg"><!ENTITY st0 "fill:#0000ff;">]>'
        b'<svg xmlns="&ns_svg;" width="100" height="100"><rect style="&st0;" width="100" height="100"/></svg>'
    )

    result = pipeline.run(_REGISTRY.plan([_REGISTRY.formats["svg"]], "png"), [data])

    assert _image(result).getpixel((50, 50)) == _BLUE


@pytest.mark.parametrize(
    "reference",
    [
        *('href="{}"', 'xlink:href="file://{}"', 'style="href:{}"', 'style="xlink:href:{}"'),
        *('style="*zoom:1;href:{}"', 'style="--a:{};href:var(--a)"'),
    ],
)
def test_no_other_file_is_drawn(tmp_path: Path, reference: str) -> None:
    secret = tmp_path / "secret.png"
    Image.new("RGB", (9, 9), "red").save(secret)
    attributes = f'width="100" height="100" {reference.format(secret)}'

    drawn = _convert(f"<style>image{{href:{secret}}}</style><image {attributes}/><feImage {attributes}/>")

    assert _image(drawn).getbbox() is None


@pytest.mark.parametrize(
    "body",
    [
        '<rect style="*zoom:1;fill:\\0 ;;:;a" width="9" height="9"/>',
        "<style>}{]@media{;rect:::x{}<![CDATA[ <b> ]]></style>" + _RECT,
        '<rect width="calc(1px / 0)" height="calc(" stroke-width="1e999rem"/>',
        '<g transform="rotate(1,2) matrix(1) scale(0) translate(a)" vector-effect="non-scaling-stroke"/>' + _RECT,
        '<svg:g xmlns:svg="http://www.w3.org/2000/svg"><svg:rect width="9"/></svg:g><unknown x="%"/>',
        '<text x="1 2 3" direction="rtl" font-size="xyz"><tspan/>a<tspan x="5">b</tspan></text>',
        '<switch><foreignObject/></switch><foreignObject><div xmlns="">a<br/></div></foreignObject>',
        '<rect fill="var(" stroke="var(--a,var(--b" filter="url(#" mask="url()" clip-path="url(#none)" width="9"/>',
        '<path style="d:path(&quot;M0 0L9 9&quot;)" pathLength="x" stroke-dasharray="1" paint-order=""/>',
        '<rect width="9" height="9" paint-order=" " stroke="red" animation="" transform="rotate(9" style="font:x"/>',
    ],
)
@pytest.mark.parametrize("target", ["png", "pdf"])
def test_invalid_values_do_not_fail(body: str, target: str) -> None:
    assert _convert(body, target).data


def test_variables_cannot_multiply() -> None:
    names = "".join(f"--a{n + 1}:var(--a{n}) var(--a{n}) var(--a{n}) var(--a{n});" for n in range(30))

    drawn = _image(_convert(f"<style>:root{{--a0:1px;{names}}}</style>{_RECT}<path stroke-dasharray='var(--a30)'/>"))

    assert drawn.getpixel((50, 50)) == (255, 0, 0, 255)


@pytest.mark.parametrize(("depth", "error"), [(3, None), (4, CorruptInput)])
def test_svgs_in_svgs(depth: int, error: type[Exception] | None) -> None:
    body = _RECT
    for _ in range(depth):
        inner = f"<svg {_NAMES} width='100' height='100'>{body}</svg>".replace("#", "%23").replace('"', "'")
        quoted = inner.replace("%", "%25").replace("<", "%3C").replace("'", "%27")
        body = f'<image href="data:image/svg+xml,{quoted}" width="100" height="100"/>'
    if error is None:
        assert _image(_convert(body)).size == (100, 100)
    else:
        with pytest.raises(error):
            _convert(body)


def test_elements_of_embedded_svgs_count() -> None:
    inner = f"%3Csvg xmlns='http://www.w3.org/2000/svg'>{'%3Cg/>' * 11_000}%3C/svg>"

    with pytest.raises(TooLarge):
        _convert(f'<image href="data:image/svg+xml,{inner}"/>' * 2)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dpi": 192},
        {"width": 17},
        {"width": 30, "height": 10, "fit": "cover"},
        {"width": 30, "height": 10, "fit": "contain"},
        {"crop": "0,0,40,20"},
        {"crop": "5,5,20,10", "width": 20},
        {"crop": "5,5,20,10"},
        {"rotate": 90},
        {"flip": "horizontal"},
        {"background": "#0000ff80"},
        {"background": "#ffffff"},
        {"color_space": "gray"},
        {"bit_depth": 16},
        {"progressive": True},
    ],
)
def test_a_png_that_is_kept_has_the_pixels_of_one_that_is_encoded_again(options: dict[str, Any]) -> None:
    body = '<rect width="30" height="15" fill="red" fill-opacity=".5"/><text x="3" y="14" font-size="9">Ab</text>'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{body}</svg>'.encode()

    kept, encoded = (Image.open(BytesIO(convert(svg, "png", **options, effort=effort).data)) for effort in (5, 6))

    assert (kept.size, kept.info.get("dpi")) == (encoded.size, encoded.info.get("dpi"))
    np.testing.assert_array_equal(np.asarray(kept.convert("RGBA")), np.asarray(encoded.convert("RGBA")))


@pytest.mark.parametrize("box", ["0 0 10 10", "-5 0 20 10"])
def test_strokes_that_do_not_scale_have_their_width_in_any_view_box(box: str) -> None:
    line = '<path d="M-9 5H99" stroke="red" stroke-width="4" vector-effect="non-scaling-stroke"/>'
    drawn = np.asarray(_image(_convert(line, attributes=f'width="100" height="100" viewBox="{box}"')))
    assert (drawn[:, 50, 3] / 255).sum() == pytest.approx(4, abs=0.1)
