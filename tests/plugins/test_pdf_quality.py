"""The options `quality` and `max_bytes` of PDF: images become JPEG, everything else stays."""

from functools import partial
from io import BytesIO

import imagecodecs
import numpy as np
import pikepdf
import pytest
from PIL import Image

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples.generated import saved as encoded
from tests.support.samples.rasters import photo

_PHOTO = photo((400, 300))
_CMYK = encoded(_PHOTO.convert("CMYK"), "JPEG", quality=95)


def _transparent() -> Image.Image:
    image = _PHOTO.copy()
    image.putalpha(Image.linear_gradient("L").resize(image.size))
    return image


def _document(*images: bytes, **saving: object) -> bytes:
    """A page for each image, with text on it."""
    document = pymupdf.open()
    for number, image in enumerate(images, 1):
        page = document.new_page(width=200, height=150)
        page.insert_image(page.rect, stream=image)
        page.insert_text((10, 20), f"page {number}")
    return bytes(document.tobytes(garbage=3, deflate=True, **saving))


def _images(data: bytes) -> list[tuple[str, bytes]]:
    """The filter and the compressed data of each image."""
    document = pymupdf.open(stream=data)
    found = [image for page in document for image in page.get_images()]
    return [(image[8], bytes(document.xref_stream_raw(image[0]))) for image in found]


def _filters(data: bytes) -> list[str]:
    return [name for name, _ in _images(data)]


_drawn = partial(drawn_pages, scale=1, mode="RGB")
_PHOTOS = [encoded(_PHOTO, "PNG"), encoded(_PHOTO.convert("L"), "PNG"), _CMYK, encoded(_transparent(), "PNG")]
_OTHERS = [
    encoded(_PHOTO.convert("1"), "PNG"),
    encoded(_PHOTO, "JPEG", quality=5),
    encoded(Image.new("RGB", (90, 90)), "PNG"),
]


def test_images_of_a_document_become_jpeg() -> None:
    data = _document(*_PHOTOS, *_OTHERS)
    result = convert(data, "pdf", quality=60)
    assert codes(result) == set()
    assert _filters(result.data) == ["DCTDecode"] * 4 + ["FlateDecode", "DCTDecode", "FlateDecode"]
    assert len(result.data) < len(data) / 3
    for found, expected in zip(_drawn(result.data), _drawn(data), strict=True):
        assert np.abs(found - expected).mean() < 8
    texts = [page.get_text().strip() for page in pymupdf.open(stream=result.data)]
    assert texts == [f"page {number}" for number in range(1, 8)]


def test_other_images_keep_their_pixels() -> None:
    data = _document(*_OTHERS)
    result = convert(data, "pdf", quality=60).data
    assert all(np.array_equal(*pair) for pair in zip(_drawn(result), _drawn(data), strict=True))


def test_without_a_quality_no_image_changes() -> None:
    data = _document(*_PHOTOS)
    assert _images(convert(data, "pdf").data) == _images(data)


def test_a_higher_quality_is_larger() -> None:
    data = _document(*_PHOTOS)
    sizes = [len(convert(data, "pdf", quality=quality).data) for quality in (10, 50, 90)]
    assert sizes[0] < sizes[1] < sizes[2]


def test_a_size_limit() -> None:
    data = _document(*_PHOTOS)
    whole = convert(data, "pdf", max_bytes=len(data) + 1000)
    assert (whole.outcome.quality_used, _images(whole.data)) == (None, _images(data))
    limit = len(data) // 5
    found = convert(data, "pdf", max_bytes=limit)
    quality = found.outcome.quality_used
    assert quality is not None
    assert len(found.data) <= limit < len(convert(data, "pdf", quality=quality + 1).data)
    assert _images(found.data) == _images(convert(data, "pdf", quality=quality).data)
    with pytest.raises(ConversionError) as caught:
        convert(data, "pdf", max_bytes=1000)
    assert caught.value.reason == "target_unreachable"


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK", "P"])
def test_images_as_pages(mode: str) -> None:
    image = _transparent() if mode == "RGBA" else _PHOTO.convert(mode)
    data = encoded(image, "TIFF" if mode == "CMYK" else "PNG")
    exact, small = convert(data, "pdf"), convert(data, "pdf", quality=50)
    assert codes(exact) == codes(small) == set()
    assert (_filters(exact.data), _filters(small.data)) == (["FlateDecode"], ["DCTDecode"])
    (found,), (expected,) = _drawn(small.data), _drawn(exact.data)
    assert np.abs(found - expected).mean() < 8
    limited = convert(data, "pdf", max_bytes=len(exact.data) // 4)
    assert len(limited.data) <= len(exact.data) // 4
    assert convert(data, "pdf", max_bytes=len(exact.data)).data[:9] == exact.data[:9]
    assert _filters(convert(data, "pdf", max_bytes=len(exact.data) + 100).data) == ["FlateDecode"]


def test_a_quality_that_changes_nothing_is_told() -> None:
    text = pymupdf.open()
    text.new_page().insert_text((50, 50), "text")
    assert codes(convert(bytes(text.tobytes()), "pdf", quality=50)) == {"quality_ignored"}
    assert codes(convert(encoded(_PHOTO.convert("1"), "PNG"), "pdf", quality=50)) == {"quality_ignored"}


def test_encryption_stays() -> None:
    encryption = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "owner_pw": "owner", "user_pw": "secret"}
    result = convert(_document(*_PHOTOS, **encryption), "pdf", quality=50, password="secret")
    document = pymupdf.open(stream=result.data)
    assert document.needs_pass
    assert document.authenticate("secret")
    assert document[0].get_images()[0][8] == "DCTDecode"


def test_a_damaged_image_stays() -> None:
    compressed = bytes(imagecodecs.zlib_encode(_PHOTO.tobytes()))
    with pikepdf.open(BytesIO(_document(encoded(_PHOTO, "PNG"), encoded(_PHOTO, "PNG")))) as document:
        (image,) = document.pages[0].get_images().values()
        image.write(compressed[: len(compressed) // 2], filter=pikepdf.Name.FlateDecode)
        document.save(file := BytesIO())
    data = convert(file.getvalue(), "pdf", quality=50).data
    assert _filters(data)[0] == "FlateDecode"
