"""PDF pages that are one image become that image in TIFF; damaged images by JBIG2 are refused."""

from io import BytesIO

import imagecodecs
import numpy as np
import pikepdf
import pytest
import tifffile
from pikepdf import Array, Dictionary, Name
from PIL import Image

from engine import CorruptInput
from engine.mupdf import pymupdf
from plugins._pixels.pillow import apply_orientation
from tests.support.results.conversions import codes, convert
from tests.support.results.conversions import opened as opened_image
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_images import jbig2
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo

_PHOTO = photo((300, 200))
_SIZE = (72.0, 48.0)  # points: 300 dpi
_PROFILE = srgb_profile()


def _document(*pages: tuple[Image.Image, str]) -> bytes:
    """A PDF with an image of 300 dpi on each page, in the given format."""
    document = pymupdf.open()
    for image, encoder in pages:
        page = document.new_page(width=_SIZE[0], height=_SIZE[1])
        page.insert_image(page.rect, stream=image_file(image, encoder), keep_proportion=False)
    return bytes(document.tobytes())


def _raw(samples: bytes, bits: int, space: pikepdf.Object, content: str, **entries: pikepdf.Object) -> bytes:
    """A PDF with a page that shows the image `/P` of 300 x 200 samples."""
    document = pikepdf.new()
    page = document.add_blank_page(page_size=_SIZE)
    image = document.make_stream(
        samples, Type=Name.XObject, Subtype=Name.Image, Width=300, Height=200, BitsPerComponent=bits, ColorSpace=space
    )
    for key, value in entries.items():
        image[f"/{key}"] = value
    page.obj.Resources = Dictionary(XObject=Dictionary(P=image))
    page.obj.Contents = document.make_stream(content.encode())
    file = BytesIO()
    document.save(file)
    return file.getvalue()


_DRAW = "q 72 0 0 48 0 0 cm /P Do Q"


def _resolution(data: bytes, page: int = 0) -> tuple[int, int]:
    with tifffile.TiffFile(BytesIO(data)) as file:
        across, down = file.pages[page].get_resolution(unit=2)
    return round(across), round(down)


@pytest.mark.parametrize("mode", ["1", "L", "RGB"])
def test_a_page_that_is_one_image(mode: str) -> None:
    image = _PHOTO.convert(mode)
    result = convert(_document((image, "PNG")), "tiff")
    found = opened_image(result.data)
    assert codes(result) == set()
    assert (found.mode, _resolution(result.data)) == (mode, (300, 300))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(image))


def test_cmyk() -> None:
    image = _PHOTO.convert("CMYK")
    found = opened_image(convert(_raw(image.tobytes(), 8, Name.DeviceCMYK, _DRAW), "tiff").data)
    assert found.mode == "CMYK"
    np.testing.assert_array_equal(np.asarray(found), np.asarray(image))


def test_16_bits() -> None:
    samples = np.linspace(0, 65535, 60_000).astype(">u2").reshape(200, 300)
    result = convert(_raw(samples.tobytes(), 16, Name.DeviceGray, _DRAW), "tiff")
    np.testing.assert_array_equal(tifffile.imread(BytesIO(result.data)), samples)
    assert codes(result) == set()


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("color", ["0 g", "1 0 0 rg"])
def test_a_image_that_is_painted_through_a_mask(inverted: bool, color: str) -> None:
    image = _PHOTO.convert("1")
    with pikepdf.open(BytesIO(_raw(image.tobytes(), 1, Name.DeviceGray, f"{color} {_DRAW}"))) as document:
        original = document.pages[0].Resources.XObject.P
        del original["/ColorSpace"]
        original.ImageMask, original.Decode = True, Array([1, 0] if inverted else [0, 1])
        document.save(file := BytesIO())
    found = opened_image(convert(file.getvalue(), "tiff").data)
    if color == "0 g":
        np.testing.assert_array_equal(np.asarray(found), np.asarray(image) ^ inverted)
    else:
        assert (found.mode, found.size) == ("RGB", (150, 100))


def test_a_palette_and_a_profile() -> None:
    palette = bytes(range(0, 240, 5))
    indexes = bytes(index % 16 for index in range(60_000))
    space = Array([Name.Indexed, Name.DeviceRGB, 15, palette])
    found = opened_image(convert(_raw(indexes, 8, space, _DRAW), "tiff").data)
    expected = np.frombuffer(palette, np.uint8).reshape(-1, 3)[np.frombuffer(indexes, np.uint8)].reshape(200, 300, 3)
    np.testing.assert_array_equal(np.asarray(found.convert("RGB")), expected)
    document = pikepdf.open(BytesIO(_raw(_PHOTO.tobytes(), 8, Name.DeviceRGB, _DRAW)))
    profile = document.make_stream(_PROFILE, N=3)
    document.pages[0].Resources.XObject.P.ColorSpace = Array([Name.ICCBased, document.make_indirect(profile)])
    document.save(file := BytesIO())
    found = opened_image(convert(file.getvalue(), "tiff").data)
    assert found.info["icc_profile"] == _PROFILE
    np.testing.assert_array_equal(np.asarray(found), np.asarray(_PHOTO))


@pytest.mark.parametrize(
    ("matrix", "orientation"),
    [("-72 0 0 48 72 0", 2), ("-72 0 0 -48 72 48", 3), ("72 0 0 -48 0 48", 4)],
)
def test_a_mirrored_image(matrix: str, orientation: int) -> None:
    data = _raw(_PHOTO.tobytes(), 8, Name.DeviceRGB, f"q {matrix} cm /P Do Q")
    found = np.asarray(opened_image(convert(data, "tiff").data))
    np.testing.assert_array_equal(found, apply_orientation(np.asarray(_PHOTO), orientation))


@pytest.mark.parametrize(("rotation", "orientation"), [(90, 6), (180, 3), (270, 8)])
def test_a_rotated_page(rotation: int, orientation: int) -> None:
    document = pymupdf.open(stream=_document((_PHOTO, "PNG")))
    document[0].set_rotation(rotation)
    data = bytes(document.tobytes())
    upright = apply_orientation(np.asarray(_PHOTO), orientation)
    np.testing.assert_array_equal(np.asarray(opened_image(convert(data, "tiff").data)), upright)
    turned = opened_image(convert(data, "tiff", rotate=(360 - rotation) % 360).data)
    np.testing.assert_array_equal(np.asarray(turned), np.asarray(_PHOTO))


@pytest.mark.parametrize("rows", [64, 16])
def test_strips_are_one_image(rows: int) -> None:
    """Strips in the order from the bottom to the top, with edges that are no whole points."""
    document = pymupdf.open()
    page = document.new_page(width=_SIZE[0], height=_SIZE[1])
    for top in reversed(range(0, 200, rows)):
        strip = _PHOTO.crop((0, top, 300, min(top + rows, 200)))
        area = pymupdf.Rect(0, top * 0.24, 72, (top + strip.height) * 0.24)
        page.insert_image(area, stream=image_file(strip, "PNG"), keep_proportion=False)
    result = convert(bytes(document.tobytes()), "tiff").data
    np.testing.assert_array_equal(np.asarray(opened_image(result)), np.asarray(_PHOTO))
    assert _resolution(result) == (300, 300)


@pytest.mark.parametrize("tile", [None, (128, 128)])
def test_a_tiff_comes_back(tile: tuple[int, int] | None) -> None:
    file = BytesIO()
    gray = np.asarray(_PHOTO.convert("L"))
    tifffile.imwrite(
        file, gray, compression="jpeg", tile=tile, resolution=(200, 100), resolutionunit="inch", metadata=None
    )
    result = convert(convert(file.getvalue(), "pdf").data, "tiff").data
    np.testing.assert_array_equal(tifffile.imread(BytesIO(result)), tifffile.imread(BytesIO(file.getvalue())))
    assert _resolution(result) == (200, 100)


def test_text_to_search_is_no_drawing() -> None:
    document = pymupdf.open(stream=_document((_PHOTO, "PNG")))
    document[0].insert_text((5, 20), "recognized", fontsize=8, render_mode=3)
    found = opened_image(convert(bytes(document.tobytes()), "tiff").data)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(_PHOTO))


@pytest.mark.parametrize(
    "content",
    [
        f"{_DRAW} 0 0 20 20 re f",
        "q 0 0 72 10 re W n 72 0 0 48 0 0 cm /P Do Q",
        "q 36 0 0 24 0 0 cm /P Do Q",
        "q 60 20 -20 40 10 0 cm /P Do Q",
        "q /T gs 72 0 0 48 0 0 cm /P Do Q",
        f"{_DRAW} q 10 0 0 10 0 0 cm /P Do Q",
    ],
)
def test_other_pages_are_drawn(content: str) -> None:
    document = pikepdf.open(BytesIO(_raw(bytes(180_000), 8, Name.DeviceRGB, content)))
    document.pages[0].Resources.ExtGState = Dictionary(T=Dictionary(ca=0.5))
    document.save(file := BytesIO())
    result = convert(file.getvalue(), "tiff").data
    assert (opened_image(result).size, _resolution(result)) == ((150, 100), (150, 150))


def test_pages_of_both_kinds() -> None:
    document = pymupdf.open(stream=_document((_PHOTO, "PNG"), (_PHOTO.convert("1"), "PNG"), (_PHOTO, "JPEG")))
    document[0].insert_text((5, 20), "drawn", fontsize=8)
    data = bytes(document.tobytes())
    result = convert(data, "tiff").data
    with tifffile.TiffFile(BytesIO(result)) as file:
        assert [page.shape for page in file.pages] == [(100, 150, 3), (200, 300), (200, 300, 3)]
    assert [_resolution(result, page) for page in range(3)] == [(150, 150), (300, 300), (300, 300)]
    assert opened_image(convert(data, "tiff", pages="2").data).mode == "1"
    assert opened_image(convert(data, "tiff", dpi=100).data).size == (100, 67)
    assert opened_image(convert(data, "tiff", width=90).data).size == (90, 60)
    assert opened_image(convert(data, "png", pages="2").data).size == (150, 100)


def _jbig2_document(data: bytes) -> bytes:
    return _raw(data, 1, Name.DeviceGray, _DRAW, Filter=Name.JBIG2Decode)


def test_jbig2_is_drawn() -> None:
    image = _PHOTO.convert("L").point(lambda value: 255 * (value > 128)).convert("1")
    data = _jbig2_document(jbig2(image))
    np.testing.assert_array_equal(np.asarray(opened_image(convert(data, "tiff").data)), np.asarray(image))
    drawn = np.asarray(opened_image(convert(data, "png", width=300).data).convert("L"))
    np.testing.assert_array_equal(drawn > 128, np.asarray(image))


@pytest.mark.parametrize("data", [b"", b"no segments" * 20])
@pytest.mark.parametrize("target", ["tiff", "png", "svg", "eps"])
def test_damaged_jbig2_is_refused(data: bytes, target: str) -> None:
    with pytest.raises(CorruptInput, match="JBIG2"):
        convert(_jbig2_document(data), target)


def test_a_damaged_image_is_told() -> None:
    compressed = bytes(imagecodecs.zlib_encode(_PHOTO.tobytes()))
    data = _raw(compressed[: len(compressed) // 2], 8, Name.DeviceRGB, _DRAW, Filter=Name.FlateDecode)
    assert codes(convert(data, "png")) == codes(convert(data, "tiff")) == {"repaired"}
