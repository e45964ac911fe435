"""The option `dpi` as the resolution of images."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo

_EXIF_RESOLUTION = (0x011A, 0x011B, 0x0128)


def _source(encoder: str, **parameters: Any) -> bytes:
    return saved(photo((96, 64)), encoder, **parameters)


def _exif(**tags: Any) -> bytes:
    exif = Image.Exif()
    exif[0x010F] = "Maker"
    exif[0x011A], exif[0x011B], exif[0x0128] = 72.0, 72.0, 3
    block: bytes = exif.tobytes()
    return block


@pytest.mark.parametrize("target", ["jpeg", "png", "tiff", "bmp", "jp2", "jxr", "psd", "pcx"])
@pytest.mark.parametrize("exif", [False, True])
def test_the_resolution_is_written(target: str, exif: bool) -> None:
    data = _source("JPEG", dpi=(90, 45), **({"exif": _exif()} if exif else {}))

    result = convert(data, target, dpi=200)

    back = convert(result.data, "tiff").data if target in ("jp2", "jxr", "psd") else result.data
    assert opened(back).info["dpi"] == pytest.approx((200, 200), abs=0.5)
    assert not codes(result) - {"metadata_dropped", "colors_reduced"}
    assert "resolution" not in str(result.outcome.warnings)
    if exif and target in ("jpeg", "png"):
        block = opened(result.data).getexif()
        assert [block[tag] for tag in _EXIF_RESOLUTION] == [200, 200, 2]
        assert block[0x010F] == "Maker"


@pytest.mark.parametrize("target", ["webp", "avif", "heic", "jxl"])
@pytest.mark.parametrize("exif", [False, True])
def test_the_resolution_is_in_exif_where_there_is_no_other_place(target: str, exif: bool) -> None:
    result = convert(_source("PNG", **({"exif": _exif()} if exif else {})), target, dpi=200)

    assert not codes(result)
    block = opened(convert(result.data, "jpeg", metadata="all").data).getexif()
    assert [block[tag] for tag in _EXIF_RESOLUTION] == [200, 200, 2]


@pytest.mark.parametrize("target", ["gif", "qoi", "tga"])
def test_a_target_without_resolution_is_told(target: str) -> None:
    result = convert(_source("PNG"), target, dpi=200)

    (message,) = [one.message for one in result.outcome.warnings if one.code == "metadata_dropped"]
    assert "resolution" in message


@pytest.mark.parametrize("metadata", ["safe", "all", "none"])
@pytest.mark.parametrize("parameters", [{}, {"dpi": (30, 30)}, {"exif": _exif()}], ids=["none", "jfif", "exif"])
@pytest.mark.parametrize("over", ["jpeg", "jxl"])
def test_the_coefficients_of_a_jpeg_stay(over: str, parameters: dict[str, Any], metadata: str) -> None:
    data = _source("JPEG", quality=60, **parameters)

    made = convert(data, over, dpi=200, metadata=metadata)
    result = made if over == "jpeg" else convert(made.data, "jpeg", metadata="all")

    assert not codes(made)
    image = opened(result.data)
    assert image.tobytes() == opened(data).tobytes()
    assert image.info["dpi"] == pytest.approx((200, 200))
    assert opened(convert(convert(data, "jxl").data, "jpeg", dpi=150).data).info["dpi"] == pytest.approx((150, 150))


@pytest.mark.parametrize("encoder", ["JPEG", "PNG", "TIFF"])
def test_the_resolution_is_that_of_a_page(encoder: str) -> None:
    result = convert(_source(encoder), "pdf", dpi=48)

    document = pymupdf.open(stream=result.data)
    assert (document[0].rect.width, document[0].rect.height) == pytest.approx((144, 96), abs=0.1)
    if encoder == "JPEG":
        assert document.extract_image(document[0].get_images()[0][0])["ext"] == "jpeg"
        assert (
            opened(document.xref_stream_raw(document[0].get_images()[0][0])).tobytes()
            == opened(_source(encoder)).tobytes()
        )


def test_all_pages_get_it() -> None:
    file = BytesIO()
    with tifffile.TiffWriter(file) as writer:
        for dots in (50, 300):
            writer.write(np.asarray(photo((40, 30))), photometric="rgb", resolution=(dots, dots), resolutionunit="inch")

    pages = tifffile.TiffFile(BytesIO(convert(file.getvalue(), "tiff", dpi=120).data)).pages

    assert [page.aspage().get_resolution(unit=2) for page in pages] == [(120, 120)] * 2


def test_a_drawing_still_has_the_size_of_its_resolution() -> None:
    drawing = b'<svg xmlns="http://www.w3.org/2000/svg" width="96" height="48"><rect width="96" height="48"/></svg>'

    image = opened(convert(drawing, "png", dpi=192).data)
    wide = opened(convert(drawing, "png", dpi=192, width=384).data)

    assert (image.size, image.info["dpi"]) == ((192, 96), pytest.approx((192, 192), abs=0.1))
    assert wide.info["dpi"] == pytest.approx((384, 384), abs=0.1)
