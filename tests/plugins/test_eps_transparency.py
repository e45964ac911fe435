"""Transparency of pages in EPS: only transparent parts become images, and everything looks as before."""

import re
from io import BytesIO

import numpy as np
import pikepdf
import pytest
from PIL import Image

from engine import pipeline
from engine.mupdf import pymupdf
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from tests.support.results.conversions import codes

_REGISTRY = load_registry()
_PAGE = 200  # points
_STATES = {
    "alpha": "<</ca .5>>",
    "blend mode": "<</BM/Difference>>",
    "soft mask": "<</SMask<</S/Luminosity/G 9 0 R>>>>",
}


def _pdf(content: str, state: str = "<<>>", page: str = "") -> bytes:
    """A page with a blue square at (20, 20), and content that can use the graphics state /a."""
    document = pikepdf.new()
    document.add_blank_page(page_size=(_PAGE, _PAGE))
    mask = b"<</Type/XObject/Subtype/Form/BBox[0 0 200 200]/Group<</S/Transparency/CS/DeviceGray>>>>"
    group = document.make_stream(b".5 g 0 0 200 200 re f", pikepdf.Object.parse(mask))
    parsed = pikepdf.Object.parse(state.replace("9 0 R", "null").encode())
    if "/G 9 0 R" in state:
        parsed.SMask.G = group
    resources = pikepdf.Dictionary(ExtGState=pikepdf.Dictionary(a=parsed))
    for key, value in pikepdf.Object.parse(f"<<{page}>>".encode()).items():
        document.pages[0].obj[key] = value
    document.pages[0].Resources = resources
    document.pages[0].Contents = document.make_stream(f"0 0 1 rg 20 20 60 60 re f {content}".encode())
    result = BytesIO()
    document.save(result)
    return result.getvalue()


def _to_eps(data: bytes, source: str = "pdf") -> PipelineResult:
    return pipeline.run(_REGISTRY.plan([_REGISTRY.formats[source]], "eps"), [data])


def _images(eps: bytes) -> list[tuple[int, int]]:
    """The sizes of the images in an EPS."""
    return [(int(width), int(height)) for width, height in re.findall(rb"^/W (\d+)\n/H (\d+)$", eps, re.MULTILINE)]


def _difference(eps: bytes, pdf: bytes) -> float:
    """The mean difference between an EPS and a page, in levels of 255."""
    plan = _REGISTRY.plan([_REGISTRY.formats["eps"]], "png")
    shown = Image.open(BytesIO(pipeline.run(plan, [eps], {"dpi": 72}).data)).convert("RGB")
    pixels = pymupdf.open(stream=pdf, filetype="pdf")[0].get_pixmap(alpha=False)
    page = np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width, 3)
    return float(np.abs(np.asarray(shown, np.int16) - page).mean())


@pytest.mark.parametrize("state", _STATES.values(), ids=_STATES)
def test_only_what_is_transparent_becomes_a_image(state: str) -> None:
    pdf = _pdf("/a gs 1 0 0 rg 25 25 50 40 re f", state)

    result = _to_eps(pdf)

    assert codes(result) == {"effects_rasterized"}
    assert _difference(result.data, pdf) < 1
    ((width, height),) = _images(result.data)
    # The 50 x 40 points at 300 dpi, and up to 8 points on each side.
    assert 208 <= width <= 276
    assert 166 <= height <= 234
    assert _images(_to_eps(_pdf("1 0 0 rg 25 25 50 40 re f", state)).data) == []


@pytest.mark.parametrize(
    ("page", "state"),
    [
        ("", "<</ca 1/CA 1/BM/Normal/SMask/None>>"),
        ("/Group<</S/Transparency/CS/DeviceRGB>>", "<<>>"),
        ("/Group<</S/Transparency/CS/DeviceRGB>>", "<</CA .5>>"),
    ],
)
def test_a_page_that_looks_opaque_has_no_images_and_no_warning(page: str, state: str) -> None:
    pdf = _pdf("/a gs 1 0 0 rg 60 60 50 40 re f", state, page)

    result = _to_eps(pdf)

    assert (codes(result), _images(result.data)) == (set(), [])
    assert _difference(result.data, pdf) < 1


def test_a_rotated_page_with_a_crop_box_is_covered_at_the_right_place() -> None:
    pdf = _pdf("/a gs 1 0 0 rg 60 60 50 40 re f", "<</ca .5>>", "/Rotate 90/CropBox[10 20 150 180]")

    result = _to_eps(pdf)

    assert len(_images(result.data)) == 1
    assert _difference(result.data, pdf) < 1


def test_a_page_that_is_blended_in_cmyk_has_images_in_cmyk() -> None:
    group = "/Group<</S/Transparency/CS/DeviceCMYK>>"
    pdf = _pdf("1 0 0 0 k 20 20 60 60 re f /a gs 0 0 1 0 k 25 25 50 40 re f", "<</ca .5>>", group)

    result = _to_eps(pdf)

    assert len(_images(result.data)) == 1
    assert b"\n/CS/CMYK\n" in result.data
    assert _difference(result.data, pdf) < 3


def test_many_transparent_parts_share_images() -> None:
    squares = "".join(f"{x} {y} 4 4 re f " for x in range(5, 195, 19) for y in range(5, 195, 19))
    pdf = _pdf(f"/a gs 1 0 0 rg {squares}", "<</ca .5>>")

    result = _to_eps(pdf)

    assert 1 <= len(_images(result.data)) <= 32
    assert _difference(result.data, pdf) < 2


@pytest.mark.long
def test_a_large_page_has_a_image_of_a_lower_resolution() -> None:
    pdf = _pdf("/a gs 1 0 0 rg 0 0 9000 9000 re f", "<</ca .5>>", "/MediaBox[0 0 9000 9000]")

    ((width, height),) = _images(_to_eps(pdf).data)

    assert width * height <= 31_000_000


def test_a_blank_page_is_written() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"/>'

    eps = _to_eps(svg, "svg").data
    shown = pipeline.run(_REGISTRY.plan([_REGISTRY.formats["eps"]], "png"), [eps]).data

    assert Image.open(BytesIO(shown)).convert("L").getextrema() == (255, 255)


def test_boxes_are_rounded_up() -> None:
    eps = _to_eps(b'<svg xmlns="http://www.w3.org/2000/svg" width="50mm" height="96px"/>', "svg").data

    assert b"%%BoundingBox: 0 0 142 72\n" in eps
    assert b"%%HiResBoundingBox: 0 0 141.732 72.000\n" in eps


def test_an_svg_keeps_its_vectors() -> None:
    svg = (
        b'<svg xmlns="http://www.w3.org/2000/svg" width="1200" height="800">'
        b'<rect x="100" y="100" width="800" height="500" fill="#08c"/>'
        b'<circle cx="700" cy="400" r="300" fill="#c00" fill-opacity=".5"/>'
        b'<text x="110" y="250" font-size="80">Logo</text></svg>'
    )

    result = _to_eps(svg, "svg")

    assert codes(result) == {"effects_rasterized"}
    ((width, height),) = _images(result.data)
    assert 1875 <= width <= 1942
    assert 1875 <= height <= 1942
    assert len(result.data) < 400_000
    # The text is drawn as outlines: glyphs of bitmaps would be images.
    assert result.data.count(b" c\n") > 20
