"""Scans: TIFF pages in PDF keep their compressed data, and pages that are one image become that image in TIFF."""

from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pytest
import tifffile
from numpy.typing import NDArray

from engine import CorruptInput
from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.pdf_images import images
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo

_PHOTO = photo((500, 330))
_TEXT = _PHOTO.convert("L").point(lambda value: 255 * (value > 128)).convert("1")
_ONE_STRIP = 1 << 30


def _jpeg_tiff(mode: str, level: int = 85, color: str | None = None, **parameters: Any) -> bytes:
    """A TIFF of 200 dpi with JPEG compression, whose stored colors are YCbCr by default."""
    file = BytesIO()
    tifffile.imwrite(
        file,
        np.asarray(_PHOTO.convert(mode)),
        photometric="minisblack" if mode == "L" else "rgb",
        compression="jpeg",
        compressionargs={"level": level, "outcolorspace": color} if color else {"level": level},
        resolution=(200, 200),
        resolutionunit="inch",
        metadata=None,
        **parameters,
    )
    return file.getvalue()


def _drawn(data: bytes, size: tuple[int, int], page: int = 0) -> NDArray[np.float64]:
    """A page as MuPDF draws it with `size` pixels."""
    shown = pymupdf.open(stream=data)[page]
    matrix = pymupdf.Matrix(size[0] / shown.rect.width, size[1] / shown.rect.height)
    pixels = shown.get_pixmap(matrix=matrix, colorspace="rgb")
    assert (pixels.width, pixels.height) == size
    return np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width, 3).astype(float)


def _group4_tiff() -> tuple[bytes, tuple[int, int]]:
    """A TIFF of one strip, with its position and size."""
    data = saved(_TEXT, "TIFF", compression="group4", strip_size=_ONE_STRIP, tiffinfo={266: 1})
    with tifffile.TiffFile(BytesIO(data)) as file:
        return data, (file.pages.first.dataoffsets[0], file.pages.first.databytecounts[0])


def _decoded(data: bytes) -> NDArray[np.float64]:
    """The pixels of a TIFF, as its conversion to PNG has them."""
    return np.asarray(opened(convert(data, "png").data).convert("RGB"), float)


def test_a_strip_of_group_4_is_embedded_as_it_is() -> None:
    data, (offset, size) = _group4_tiff()
    (image,) = images(convert(data, "pdf").data)
    assert image.entries["/Filter"] == "/CCITTFaxDecode"
    assert image.raw == data[offset : offset + size]


@pytest.mark.parametrize("compression", ["group4", "group3", "tiff_lzw", None])
@pytest.mark.parametrize("white", [0, 1])
@pytest.mark.parametrize("strip_size", [1000, _ONE_STRIP])
def test_1_bit_is_one_image(compression: str | None, white: int, strip_size: int) -> None:
    data = saved(_TEXT, "TIFF", compression=compression, strip_size=strip_size, tiffinfo={262: white})
    result = convert(data, "pdf").data
    (image,) = images(result)
    assert len(image.raw) < 2300  # 20,625 bytes without compression
    np.testing.assert_array_equal(_drawn(result, _TEXT.size), _decoded(data))


def test_reversed_bits() -> None:
    data, (offset, size) = _group4_tiff()
    strip = bytes(int(f"{byte:08b}"[::-1], 2) for byte in data[offset : offset + size])
    file = BytesIO(data[:offset] + strip + data[offset + size :])
    with tifffile.TiffFile(file, mode="r+") as changed:
        changed.pages.first.tags["FillOrder"].overwrite(2)
    (expected,), (image,) = images(convert(data, "pdf").data), images(convert(file.getvalue(), "pdf").data)
    assert image == expected


@pytest.mark.parametrize("size", [(64, 48), (500, 330)])
def test_dithered_pixels_are_deflated(size: tuple[int, int]) -> None:
    image = photo(size).convert("1")
    for encoder in ("PNG", "TIFF"):
        result = convert(saved(image, encoder), "pdf").data
        np.testing.assert_array_equal(_drawn(result, size)[..., 0], np.asarray(image) * 255.0)
        assert len(result) < size[0] * size[1] / 8 + 1200


@pytest.mark.parametrize(("mode", "color"), [("L", None), ("RGB", None), ("RGB", "rgb")])
@pytest.mark.parametrize("rows", [32, 64, 330])
def test_strips_of_jpeg_become_one_jpeg(mode: str, color: str | None, rows: int) -> None:
    data = _jpeg_tiff(mode, color=color, rowsperstrip=rows)
    result = convert(data, "pdf").data
    (image,) = images(result)
    assert image.entries["/Filter"] == "/DCTDecode"
    embedded = opened(image.raw)
    assert embedded.size == _PHOTO.size
    np.testing.assert_allclose(np.asarray(embedded.convert("RGB"), float), _decoded(data), atol=8)
    assert len(result) < len(data) + 1200
    assert tuple(pymupdf.open(stream=result)[0].rect) == pytest.approx((0, 0, 180, 118.8))


def test_strips_with_subsampled_colors() -> None:
    data = saved(_PHOTO, "TIFF", compression="jpeg", strip_size=50_000)
    (image,) = images(convert(data, "pdf").data)
    np.testing.assert_allclose(_drawn(convert(data, "pdf").data, _PHOTO.size), _decoded(data), atol=40)
    assert opened(image.raw).size == _PHOTO.size


@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_tiles_of_jpeg_are_placed_beside_each_other(mode: str) -> None:
    data = _jpeg_tiff(mode, tile=(128, 128))
    result = convert(data, "pdf").data
    assert {image.entries["/Filter"] for image in images(result)} == {"/DCTDecode"}
    assert len(images(result)) == 12
    assert np.abs(_drawn(result, _PHOTO.size) - _decoded(data)).mean() < 3


@pytest.mark.parametrize("compression", ["group4", "jpeg"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_and_resolution(compression: str, orientation: int) -> None:
    image = _TEXT if compression == "group4" else _PHOTO
    parameters: dict[str, Any] = {"strip_size": _ONE_STRIP, "tiffinfo": {274: orientation}, "dpi": (300, 150)}
    data = saved(image, "TIFF", compression=compression, **parameters)
    result = convert(data, "pdf").data
    width, height = 500 * 72 / 300, 330 * 72 / 150
    assert tuple(pymupdf.open(stream=result)[0].rect.br) == pytest.approx(
        (height, width) if orientation >= 5 else (width, height)
    )
    expected = _decoded(data)
    assert np.abs(_drawn(result, expected.shape[1::-1]) - expected).mean() < 2


def test_pages_of_all_kinds() -> None:
    file = BytesIO()
    gray = np.asarray(_PHOTO.convert("L"))
    with tifffile.TiffWriter(file) as writer:
        for resolution in (100, 200):
            common: dict[str, Any] = {"resolution": (resolution,) * 2, "resolutionunit": "inch", "metadata": None}
            writer.write(gray, compression="jpeg", **common)
            writer.write(gray, compression="zlib", **common)
            writer.write(gray.astype(np.uint16) * 257, **common)
    result = convert(file.getvalue(), "pdf")
    assert codes(result) == {"depth_reduced"}
    filters = [one.entries["/Filter"] for one in images(result.data)]
    assert filters == ["/DCTDecode", "/FlateDecode", "/FlateDecode"] * 2
    assert [round(page.rect.width) for page in pymupdf.open(stream=result.data)] == [360] * 3 + [180] * 3
    for page in range(6):
        assert np.abs(_drawn(result.data, _PHOTO.size, page)[..., 0] - gray).mean() < 2
    chosen = convert(file.getvalue(), "pdf", pages="2,4").data
    assert [one.entries["/Filter"] for one in images(chosen)] == ["/FlateDecode", "/DCTDecode"]
    assert [round(page.rect.width) for page in pymupdf.open(stream=chosen)] == [360, 180]


def test_profiles_are_kept_once() -> None:
    profile = srgb_profile()
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for _ in range(3):
            writer.write(np.asarray(_PHOTO), compression="jpeg", iccprofile=profile, metadata=None)
    with pikepdf.open(BytesIO(convert(file.getvalue(), "pdf").data)) as document:
        found = [one.ColorSpace[1] for page in document.pages for one in page.resources["/XObject"].values()]
        assert [*{stored.objgen: stored.read_bytes() for stored in found}.values()] == [profile]


def test_a_strip_beyond_the_end_of_the_file_is_not_embedded() -> None:
    data = _jpeg_tiff("L")
    with tifffile.TiffFile(file := BytesIO(data), mode="r+") as changed:
        changed.pages.first.tags["StripByteCounts"].overwrite(len(data))
    with pytest.raises(CorruptInput):
        convert(file.getvalue(), "pdf")


def test_options_of_pixels_decode() -> None:
    data = _jpeg_tiff("RGB", rowsperstrip=330)
    (image,) = images(convert(data, "pdf", rotate=90).data)
    assert image.size == (330, 500)
    small, large = (convert(data, "pdf", quality=quality).data for quality in (20, 90))
    assert len(small) < len(large) < len(convert(data, "pdf", rotate=180).data)
