"""Images in PDFs of all kinds: pdf-compress and the options `quality` and `max_bytes` reduce them alone."""

import zlib
from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import imagecodecs
import numpy as np
import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream, String
from PIL import Image, ImageCms

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import codes, convert
from tests.support.results.pdf_checks import drawn_pages
from tests.support.samples.generated import saved as encoded
from tests.support.samples.pdf_documents import compress, saved
from tests.support.samples.pdf_images import (
    BILEVEL,
    GRAY,
    PHOTO,
    POINTS,
    SIDE,
    add_page,
    drawn,
    flate,
    group4,
    image_document,
    image_stream,
    images,
    jbig2,
    plain,
)
from tests.support.samples.rasters import photo

_PHOTO = photo((400, 300))
_CMYK = encoded(_PHOTO.convert("CMYK"), "JPEG", quality=95)


def _icc(document: Pdf, profile: str) -> Array:
    data = ImageCms.ImageCmsProfile(ImageCms.createProfile(profile)).tobytes()  # type: ignore[arg-type]
    return Array([Name.ICCBased, document.make_stream(data, N=3)])


def _tint(document: Pdf, count: int, alternate: Name, program: bytes) -> Any:
    """A color space of one or four inks."""
    domain, ranges = [0, 1] * count, [0, 1] * (4 if alternate == Name.DeviceCMYK else 3)
    function = document.make_stream(program, FunctionType=4, Domain=domain, Range=ranges)
    if count == 1:
        return Array([Name.Separation, Name.Spot, alternate, function])
    names = Array([Name(f"/Ink{number}") for number in range(count)])
    return Array([Name.DeviceN, names, alternate, function])


def _palette(document: Pdf, bits: int) -> Stream:
    image = PHOTO.quantize(1 << bits, Image.Quantize.FASTOCTREE)
    samples = np.asarray(image)
    shifts = range(8 - bits, -1, -bits)
    packed = sum((samples[:, start :: len(shifts)] << shift for start, shift in enumerate(shifts)), np.uint8(0))
    lookup = String(bytes(image.getpalette() or ())[: 3 << bits])
    space = Array([Name.Indexed, Name.DeviceRGB, (1 << bits) - 1, lookup])
    data = zlib.compress(packed.astype(np.uint8).tobytes())
    return image_stream(document, data, space, bits, Filter=Name.FlateDecode)


def _jpeg(document: Pdf, mode: str, space: Name, **entries: Any) -> Stream:
    data = encoded(PHOTO.convert(mode), "JPEG", quality=95)
    return image_stream(document, data, space, Filter=Name.DCTDecode, **entries)


def _fax(document: Pdf) -> Stream:
    parameters = Dictionary(K=-1, Columns=SIDE, Rows=SIDE)
    data = group4(BILEVEL.point(lambda value: 255 - value))
    return image_stream(document, data, Name.DeviceGray, 1, Filter=Name.CCITTFaxDecode, DecodeParms=parameters)


def _jbig2(document: Pdf) -> Stream:
    return image_stream(document, jbig2(BILEVEL), Name.DeviceGray, 1, Filter=Name.JBIG2Decode)


_SPOT = b"{ dup 0.3 mul exch 0.9 mul 0 0 }"


_DEEP = b"".join(bytes((level, 7)) for level in GRAY.tobytes())


_HALF = Image.linear_gradient("L").resize((SIDE, SIDE))


# Each image with the bits per sample and the color space of the result.
_KINDS: dict[str, tuple[Callable[[Pdf], Stream], int, str]] = {
    "gray": (lambda made: flate(made, GRAY, Name.DeviceGray), 8, "/DeviceGray"),
    "RGB": (lambda made: flate(made, PHOTO, Name.DeviceRGB), 8, "/DeviceRGB"),
    "CMYK": (lambda made: flate(made, PHOTO.convert("CMYK"), Name.DeviceCMYK), 8, "/DeviceCMYK"),
    "inverted gray": (lambda made: flate(made, GRAY, Name.DeviceGray, Decode=[1, 0]), 8, "/DeviceGray"),
    "inverted CMYK": (
        lambda made: flate(made, PHOTO.convert("CMYK"), Name.DeviceCMYK, Decode=[1, 0] * 4),
        8,
        "/DeviceCMYK",
    ),
    "range": (lambda made: flate(made, PHOTO, Name.DeviceRGB, Decode=[0, 0.5, 0, 1, 1, 0.5]), 8, "/DeviceRGB"),
    "profile": (lambda made: flate(made, PHOTO, _icc(made, "sRGB")), 8, "/ICCBased"),
    "calibrated": (
        lambda made: flate(made, GRAY, Array([Name.CalGray, Dictionary(WhitePoint=[0.95, 1, 1.09], Gamma=2.2)])),
        8,
        "/CalGray",
    ),
    "Lab": (
        lambda made: flate(
            made, PHOTO, Array([Name.Lab, Dictionary(WhitePoint=[0.95, 1, 1.09], Range=[-50, 50, -50, 50])])
        ),
        8,
        "/Lab",
    ),
    "spot color": (lambda made: flate(made, GRAY, _tint(made, 1, Name.DeviceCMYK, _SPOT)), 8, "/Separation"),
    "four inks": (
        lambda made: flate(made, PHOTO.convert("CMYK"), _tint(made, 4, Name.DeviceCMYK, b"{ }")),
        8,
        "/DeviceN",
    ),
    "palette": (lambda made: _palette(made, 8), 8, "/DeviceRGB"),
    "palette of 16": (lambda made: _palette(made, 4), 8, "/DeviceRGB"),
    "palette of 2": (lambda made: _palette(made, 1), 1, "/Indexed"),
    "16 bits": (
        lambda made: image_stream(made, zlib.compress(_DEEP), Name.DeviceGray, 16, Filter=Name.FlateDecode),
        8,
        "/DeviceGray",
    ),
    "bilevel": (lambda made: flate(made, BILEVEL, Name.DeviceGray, 1), 1, "/DeviceGray"),
    "inverted bilevel": (lambda made: flate(made, BILEVEL, Name.DeviceGray, 1, Decode=[1, 0]), 1, "/DeviceGray"),
    "fax": (_fax, 1, "/DeviceGray"),
    "JBIG2": (_jbig2, 1, "/DeviceGray"),
    "stencil": (lambda made: flate(made, BILEVEL, None, 1, ImageMask=True), 1, "None"),
    "inverted stencil": (lambda made: flate(made, BILEVEL, None, 1, ImageMask=True, Decode=[1, 0]), 1, "None"),
    "JPEG": (lambda made: _jpeg(made, "RGB", Name.DeviceRGB), 8, "/DeviceRGB"),
    "gray JPEG": (lambda made: _jpeg(made, "L", Name.DeviceGray, Decode=[1, 0]), 8, "/DeviceGray"),
    "CMYK JPEG": (lambda made: _jpeg(made, "CMYK", Name.DeviceCMYK, Decode=[1, 0] * 4), 8, "/DeviceCMYK"),
    "JPEG 2000": (
        lambda made: image_stream(made, encoded(PHOTO, "JPEG2000"), None, Filter=Name.JPXDecode),
        8,
        "/DeviceRGB",
    ),
    "compressed JPEG": (
        lambda made: image_stream(
            made,
            zlib.compress(encoded(PHOTO, "JPEG", quality=95)),
            Name.DeviceRGB,
            Filter=Array([Name.FlateDecode, Name.DCTDecode]),
        ),
        8,
        "/DeviceRGB",
    ),
}


@pytest.mark.parametrize("name", _KINDS)
def test_images_are_reduced_and_look_the_same(name: str) -> None:
    make, bits, space = _KINDS[name]
    data = image_document(make)
    result = compress(data)
    assert codes(result) == set()
    (image,) = images(result.data)
    assert image.entries.get("/ColorSpace", "None") == space
    assert int(image.entries.get("/BitsPerComponent", 1)) == bits
    side = POINTS * 300 // 72 if bits == 1 else POINTS * 150 // 72
    assert image.size == (side, side)
    assert np.abs(drawn(result.data) - drawn(data)).mean() < 2.5
    assert len(result.data) < len(data)


def _with_mask(mask: Callable[[Pdf], Stream], key: str) -> Callable[[Pdf], Stream]:
    def make(made: Pdf) -> Stream:
        masked = flate(made, PHOTO, Name.DeviceRGB)
        masked[f"/{key}"] = mask(made)
        return masked

    return make


_MASKS: dict[str, tuple[Callable[[Pdf], Stream], int, int]] = {
    "soft": (_with_mask(lambda made: flate(made, _HALF, Name.DeviceGray), "SMask"), 50, 50),
    "stencil": (_with_mask(lambda made: flate(made, BILEVEL, None, 1, ImageMask=True), "Mask"), 50, 100),
    "matte": (_with_mask(lambda made: flate(made, _HALF, Name.DeviceGray, Matte=[0, 0, 0]), "SMask"), SIDE, SIDE),
}


@pytest.mark.parametrize("name", _MASKS)
def test_masks_are_reduced_with_their_image(name: str) -> None:
    make, side, mask_side = _MASKS[name]
    data = image_document(make)
    result = compress(data).data
    sides = {("/SMask" in one.entries or "/Mask" in one.entries): one.width for one in images(result)}
    assert sides == {True: side, False: mask_side}
    assert np.abs(drawn(result) - drawn(data)).mean() < 2.5


def test_transparent_pixels_do_not_bleed_into_others() -> None:
    visible = Image.new("L", (SIDE, SIDE))
    visible.paste(255, (0, 0, 101, SIDE))
    color = Image.new("RGB", (SIDE, SIDE), "#00ff00")
    color.paste("#ffffff", (0, 0, 101, SIDE))
    data = image_document(lambda made: flate(made, color, Name.DeviceRGB, SMask=flate(made, visible, Name.DeviceGray)))
    (image,) = (one for one in images(compress(data, quality=100).data) if "/SMask" in one.entries)
    assert np.asarray(image.image)[:, 25].min() > 230


def test_transparent_colors_stay_exact() -> None:
    data = image_document(lambda made: flate(made, PHOTO, Name.DeviceRGB, Mask=[250, 255, 250, 255, 250, 255]))
    (before,), (after,) = images(data), images(compress(data).data)
    assert zlib.decompress(after.raw) == zlib.decompress(before.raw)


@pytest.mark.parametrize(("space", "name"), [("gray", "/DeviceGray"), ("srgb", "/DeviceRGB")])
@pytest.mark.parametrize("kind", ["CMYK", "inverted gray", "spot color", "palette", "profile", "JPEG 2000"])
def test_a_color_space(kind: str, space: str, name: str) -> None:
    data = image_document(_KINDS[kind][0])
    result = compress(data, color_space=space)
    (image,) = images(result.data)
    assert image.entries["/ColorSpace"] == name
    expected = drawn(data)
    found = drawn(result.data)
    difference = np.abs(found - expected) if space == "srgb" else np.abs(found.mean(2) - expected @ [0.3, 0.59, 0.11])
    assert difference.mean() < 12


_BROKEN: dict[str, Callable[[Pdf], Stream]] = {
    "no size": lambda made: flate(made, GRAY, Name.DeviceGray, Width=0),
    "huge": lambda made: flate(made, GRAY, Name.DeviceGray, Width=1 << 30, Height=1 << 30),
    "short": lambda made: image_stream(made, zlib.compress(b"abc" * 999), Name.DeviceRGB, Filter=Name.FlateDecode),
    "damaged": lambda made: image_stream(made, b"\0" * 999, Name.DeviceRGB, Filter=Name.FlateDecode),
    "damaged JPEG": lambda made: image_stream(made, b"\xff\xd8\xff" + bytes(99), Name.DeviceRGB, Filter=Name.DCTDecode),
    "damaged JPEG 2000": lambda made: image_stream(made, bytes(999), None, Filter=Name.JPXDecode),
    "damaged JBIG2": lambda made: image_stream(made, bytes(999), Name.DeviceGray, 1, Filter=Name.JBIG2Decode),
    "unknown space": lambda made: flate(made, GRAY, Name.Unknown),
    "space of itself": lambda made: flate(made, GRAY, Array([Name.Indexed, Array([Name.Indexed]), 1, String("a")])),
    "wrong profile": lambda made: flate(made, GRAY, Array([Name.ICCBased, Array([])])),
    "wrong types": lambda made: flate(made, GRAY, Dictionary(), Decode=Name.A, SMask=Name.B, Mask=Dictionary()),
    "unknown filter": lambda made: image_stream(made, bytes(999), Name.DeviceGray, Filter=Name.Unknown),
}


@pytest.mark.parametrize("name", _BROKEN)
def test_broken_images_stay(name: str) -> None:
    document = Pdf.new()
    broken = _BROKEN[name](document)
    before = broken.read_raw_bytes()
    add_page(document, broken, b"40 0 0 40 0 0 cm /P Do")
    (after,) = images(compress(saved(document)).data)
    assert plain(after.raw) == plain(before)


@pytest.mark.parametrize(
    "content", [b"1 /x cm /P Do", b"Q Q Q 9 0 0 9 0 0 cm /P Do (", b"/P Do /P", b"[ /P Do", b"<< >> cm"]
)
def test_images_in_broken_content_stay_large_enough(content: bytes) -> None:
    document = Pdf.new()
    add_page(document, flate(document, GRAY, Name.DeviceGray), content)
    data = saved(document)
    assert np.abs(drawn(compress(data).data) - drawn(data)).mean() < 2.5


def test_a_broken_mask_does_not_matter() -> None:
    def make(document: Pdf) -> Stream:
        mask = document.make_stream(b"x", Subtype=Name.Image, Width=Name.A)
        return flate(document, PHOTO, Name.DeviceRGB, Mask=mask)

    data = image_document(make)
    assert np.abs(drawn(compress(data).data) - drawn(data)).mean() < 2.5


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
    data = encoded(image, "PNG" if mode == "RGBA" else "TIFF")
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
    assert _filters(convert(file.getvalue(), "pdf", quality=50).data)[0] == "FlateDecode"
