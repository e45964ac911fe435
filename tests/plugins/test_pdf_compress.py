"""PDFs that are made smaller: their pictures, fonts and streams, and what stays as it is."""

from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.tools import run_tool
from tests.support.samples.generated import saved as picture_file
from tests.support.samples.pdf_documents import document, opened, page_texts, saved


def _photo(size: tuple[int, int] = (800, 600)) -> Image.Image:
    noise = np.random.default_rng(2).integers(0, 255, (size[1] // 40, size[0] // 40, 3), np.uint8)
    return Image.fromarray(noise).resize(size, Image.Resampling.BICUBIC)


def _page(image: Image.Image, dpi: int = 300, encoder: str = "PNG", **parameters: Any) -> bytes:
    """A page with a picture at its printed size, without color profile."""
    data = run_tool("pdf-from-images", picture_file(image, encoder, dpi=(dpi, dpi), **parameters)).data
    with pikepdf.open(BytesIO(data)) as made:
        for item in made.objects:
            if isinstance(item, Stream) and item.get("/Subtype") == Name.Image and isinstance(item.ColorSpace, Array):
                item.ColorSpace = Name.DeviceGray if int(item.ColorSpace[1].N) == 1 else Name.DeviceRGB
        return saved(made)


def _picture(data: bytes) -> dict[str, Any]:
    """The only picture that is no mask."""
    read = opened(data)
    found = [item for item in read.objects if isinstance(item, Stream) and item.get("/Subtype") == Name.Image]
    masks = {item.SMask.objgen for item in found if "/SMask" in item}
    (picture,) = [item for item in found if item.objgen not in masks]
    space = picture.ColorSpace[0] if isinstance(picture.ColorSpace, Array) else picture.ColorSpace
    return {
        "size": (int(picture.Width), int(picture.Height)),
        "filter": str(picture.Filter),
        "bits": int(picture.BitsPerComponent),
        "space": str(space),
    }


def _shown(data: bytes) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.asarray(pypdfium2.PdfDocument(data)[0].render(scale=1).to_pil(), float)


@pytest.mark.parametrize(
    ("dpi", "options", "size"),
    [(300, {}, (400, 300)), (220, {}, (800, 600)), (300, {"dpi": 72}, (192, 144)), (300, {"dpi": 300}, (800, 600))],
)
def test_pictures_of_more_than_the_resolution_are_reduced(
    dpi: int, options: dict[str, Any], size: tuple[int, int]
) -> None:
    data = _page(_photo(), dpi)

    result = run_tool("pdf-compress", data, **options)

    assert _picture(result.data) == {"size": size, "filter": "/DCTDecode", "bits": 8, "space": "/DeviceRGB"}
    assert len(result.data) < len(data) / 3
    assert np.abs(_shown(result.data) - _shown(data)).mean() < 5


def test_the_largest_place_of_a_picture_decides() -> None:
    with pikepdf.open(BytesIO(_page(_photo(), 300))) as made:
        page = made.pages[0].obj
        inner = made.make_stream(b"q 192 0 0 144 0 0 cm /Picture0 Do Q", Type=Name.XObject, Subtype=Name.Form)
        inner.BBox, inner.Resources = Array([0, 0, 192, 144]), page.Resources
        large = made.add_blank_page(page_size=(800, 600)).obj
        large.Resources = Dictionary(XObject=Dictionary(F=inner))
        large.Contents = made.make_stream(b"4 0 0 4 0 0 cm /F Do")
        data = saved(made)

    assert _picture(run_tool("pdf-compress", data).data)["size"] == (800, 600)  # 75 dpi on the second page


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (_photo().convert("L"), ("/DCTDecode", 8, "/DeviceGray")),
        (Image.merge("RGB", [_photo().convert("L")] * 3), ("/DCTDecode", 8, "/DeviceGray")),
        (_photo().convert("1", dither=Image.Dither.NONE), ("/CCITTFaxDecode", 1, "/DeviceGray")),
    ],
)
def test_colors_of_pictures(image: Image.Image, expected: tuple[str, int, str]) -> None:
    found = _picture(run_tool("pdf-compress", _page(image, 150)).data)

    assert (found["filter"], found["bits"], found["space"]) == expected


def test_drawings_stay_without_loss() -> None:
    drawing = Image.new("RGB", (900, 600), "white")
    for place, color in enumerate(("red", "green", "blue", "black")):
        drawing.paste(color, (place * 200, place * 100, place * 200 + 150, place * 100 + 250))
    data = _page(drawing, 150)

    result = run_tool("pdf-compress", data).data

    assert _picture(result)["filter"] == "/FlateDecode"
    assert np.array_equal(_shown(result), _shown(data))


def test_transparency_stays() -> None:
    image = _photo()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    data = _page(image)

    result = run_tool("pdf-compress", data).data

    assert len(result) < len(data) / 4
    assert np.abs(_shown(result) - _shown(data)).mean() < 3


@pytest.mark.parametrize(("color_space", "space"), [("gray", "/DeviceGray"), ("srgb", "/DeviceRGB")])
def test_colors_can_be_converted(color_space: str, space: str) -> None:
    image = Image.merge("CMYK", [*_photo().split(), Image.new("L", (800, 600))])

    found = _picture(run_tool("pdf-compress", _page(image, 150, "TIFF"), color_space=color_space).data)

    assert found["space"] == space


def test_jpeg_2000_is_read() -> None:
    made = Pdf.new()
    page = made.add_blank_page(page_size=(192, 144)).obj
    stored = picture_file(_photo(), "JPEG2000")
    keys = {"Type": Name.XObject, "Subtype": Name.Image, "Width": 800, "Height": 600, "ColorSpace": Name.DeviceRGB}
    picture = made.make_stream(stored, **keys, BitsPerComponent=8, Filter=Name.JPXDecode)
    page.Resources, page.Contents = (
        Dictionary(XObject=Dictionary(P=picture)),
        made.make_stream(b"192 0 0 144 0 0 cm /P Do"),
    )

    assert _picture(run_tool("pdf-compress", saved(made)).data)["filter"] == "/DCTDecode"


def test_equal_streams_are_merged_and_unused_ones_dropped() -> None:
    made = Pdf.new()
    data = np.random.default_rng(1).bytes(20_000)
    for _ in range(4):
        page = made.add_blank_page().obj
        page.Resources = Dictionary(
            XObject=Dictionary(F=made.make_stream(data, Subtype=Name.Form, BBox=Array([0, 0, 1, 1])))
        )
    made.Root.Unused = made.make_stream(b"")

    result = run_tool("pdf-compress", saved(made)).data

    assert 20_000 < len(result) < 25_000
    assert len(opened(result).pages) == 4


def test_fonts_become_subsets_and_text_stays_text() -> None:
    made = pymupdf.open()
    page = made.new_page()
    page.insert_htmlbox(page.rect, "<p>Größe 漢字</p>")
    data = bytes(made.tobytes())

    result = run_tool("pdf-compress", data).data

    assert len(result) < len(data) / 10
    assert page_texts(result) == page_texts(data) == ["Größe 漢字"]


def test_max_bytes_lowers_quality_and_resolution() -> None:
    data = _page(_photo(), 150)
    plain = run_tool("pdf-compress", data)
    limit = len(plain.data) * 2 // 3

    smaller = run_tool("pdf-compress", data, max_bytes=limit)
    enough = run_tool("pdf-compress", data, max_bytes=len(data))

    assert len(smaller.data) <= limit
    assert (smaller.outcome.quality_used or 0) < 75
    assert (len(enough.data), enough.outcome.quality_used) == (len(plain.data), 75)
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-compress", data, max_bytes=1000)
    assert (raised.value.reason, raised.value.param) == ("target_unreachable", "max_bytes")


def test_a_result_is_never_larger() -> None:
    small = run_tool("pdf-compress", document("A", 9)).data

    again = run_tool("pdf-compress", small, linearize=True)

    assert (again.data, again.codes) == (small, {"kept_original"})


def test_a_result_can_be_linearized() -> None:
    assert opened(run_tool("pdf-compress", _page(_photo()), linearize=True).data).is_linearized
