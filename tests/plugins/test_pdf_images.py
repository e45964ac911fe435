"""Images that become a PDF, images that are extracted from one, and pages that are one image."""

import zlib
from io import BytesIO
from typing import Any

import imagecodecs
import numpy as np
import pikepdf
import pypdfium2
import pytest
import tifffile
from pikepdf import Array, Dictionary, Name, Pdf, Stream
from PIL import Image

from engine import ConversionError, CorruptInput, pipeline
from engine.mupdf import pymupdf
from plugins._pixels import png_chunks
from plugins._pixels.pillow import apply_orientation
from tests.support.results.conversions import codes, convert, run_tool
from tests.support.results.conversions import opened as opened_image
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_documents import REGISTRY, document, opened, saved
from tests.support.samples.pdf_images import images, jbig2
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo

_WIDE = image_file(Image.new("RGB", (192, 96), "red"), "PNG")
_TALL = image_file(Image.new("RGB", (48, 96), "blue"), "PNG")
_PHOTO = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8))
_PAGE_PHOTO = photo((300, 200))
_SIZE = (72.0, 48.0)  # points: 300 dpi
_PROFILE = srgb_profile()


def _sizes(data: bytes) -> list[tuple[int, int]]:
    return [(round(page.get_width()), round(page.get_height())) for page in pypdfium2.PdfDocument(data)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(144, 72), (36, 72)]),
        ({"margin": 25.4}, [(288, 216), (180, 216)]),
        ({"page_size": "a4"}, [(842, 595), (595, 842)]),
        ({"page_size": "letter", "orientation": "portrait"}, [(612, 792)] * 2),
        ({"page_size": "a5", "orientation": "landscape", "margin": 10}, [(595, 420)] * 2),
    ],
)
def test_sizes_of_pages(options: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    data = run_tool("pdf-from-images", _WIDE, _TALL, **options).data

    assert _sizes(data) == expected
    opened(data)


@pytest.mark.parametrize(
    ("fit", "box"), [("inside", (72, 198, 540, 432)), ("cover", (72, 72, 540, 558)), ("fill", (72, 72, 540, 558))]
)
def test_images_fit_the_frame(fit: str, box: tuple[int, int, int, int]) -> None:
    """The frame of a page of 612 x 630 points with margins of an inch; the image is twice as wide as high."""
    striped = Image.new("RGB", (200, 100), "red")
    striped.paste("blue", (50, 0, 150, 100))
    options: dict[str, Any] = {"page_size": "letter", "orientation": "portrait", "margin": 25.4, "fit": fit}

    data = run_tool("pdf-from-images", image_file(striped, "PNG"), **options).data

    pixels = np.asarray(pypdfium2.PdfDocument(data)[0].render(scale=1).to_pil())
    rows, columns = np.nonzero((pixels < 250).any(axis=2))
    width, height = columns.max() + 1 - columns.min(), rows.max() + 1 - rows.min()
    expected = {"inside": (468, 234), "cover": (468, 648), "fill": (468, 648)}[fit]
    assert (width, height) == (pytest.approx(expected[0], abs=2), pytest.approx(expected[1], abs=2))
    red = (pixels[396, 72:540, 0] > 200).mean()
    assert red == pytest.approx(0 if fit == "cover" else 0.5, abs=0.02)


def test_jpeg_files_stay_as_they_are() -> None:
    camera = image_file(_PHOTO, "JPEG", exif=_gps(), dpi=(300, 300))

    data = run_tool("pdf-from-images", camera, sample("jpeg")).data

    read = opened(data)
    streams = [item.read_raw_bytes() for item in read.objects if isinstance(item, Stream)]
    assert {camera, sample("jpeg")} <= {*streams}
    assert _sizes(data)[0] == (round(60 * 72 / 300), round(40 * 72 / 300))


def _gps() -> Image.Exif:
    exif = Image.Exif()
    exif[0x8825] = {1: "N"}
    return exif


def test_frames_transparency_and_orientation() -> None:
    frames = [Image.new("RGB", (20, 10), color) for color in ("red", "green", "blue")]
    animation = image_file(frames[0], "GIF", save_all=True, append_images=frames[1:])
    turned = Image.Exif()
    turned[0x112] = 6
    half = image_file(Image.new("RGBA", (20, 10), (255, 0, 0, 128)), "PNG")

    data = run_tool("pdf-from-images", animation, image_file(_PHOTO, "JPEG", exif=turned, dpi=(96, 96)), half).data

    assert _sizes(data) == [(15, 8)] * 3 + [(30, 45)] + [(15, 8)]
    assert pypdfium2.PdfDocument(data)[4].render().to_pil().getpixel((5, 3)) == (255, 127, 127)


@pytest.mark.parametrize(("count", "options"), [(101, {}), (1, {"margin": 200, "page_size": "a4"})])
def test_refused_images(count: int, options: dict[str, Any]) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-from-images", *[_TALL] * count, **options)

    assert raised.value.reason == "out_of_range"


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "CMYK"])
def test_images_without_loss_are_stored_as_in_png(mode: str) -> None:
    bands = [Image.linear_gradient("L").rotate(turn).resize((90, 70)) for turn in (0, 90, 180, 270)]
    original = Image.merge(mode, bands[: len(Image.new(mode, (1, 1)).getbands())]) if mode != "L" else bands[0]
    source = image_file(original, "TIFF" if mode == "CMYK" else "PNG")

    data = pipeline.run(REGISTRY.plan([REGISTRY.identify_content(source)], "pdf"), [source]).data

    pdf = opened(data)
    (image,) = pdf.pages[0].get_images().values()
    assert isinstance(image, Stream)
    colors = original.convert("RGB") if mode == "RGBA" else original
    assert pikepdf.PdfImage(image).as_pil_image().tobytes() == original.tobytes()
    assert len(image.read_raw_bytes()) < len(zlib.compress(colors.tobytes())) / 2
    assert (mode == "RGBA") == ("/SMask" in image)


def _png(mode: str, size: tuple[int, int] = (90, 70), **parameters: Any) -> bytes:
    bands = [Image.linear_gradient("L").rotate(turn).resize(size) for turn in (0, 90, 180)]
    gradients = Image.merge("RGB", bands)
    image = gradients.convert("L").convert("I;16") if mode == "I;16" else gradients.convert(mode)
    return image_file(image, "PNG", **parameters)


def _rows(png: bytes) -> bytes:
    """The compressed rows of a PNG."""
    chunks = png_chunks.read_chunks(memoryview(png))
    return b"".join(chunk[8:-4] for kind, chunk in chunks if kind == b"IDAT")


@pytest.mark.parametrize(
    ("mode", "parameters"),
    [("L", {}), ("RGB", {"icc_profile": _PROFILE}), ("P", {}), ("P", {"bits": 4}), ("I;16", {})],
)
def test_the_rows_of_a_png_are_embedded_as_they_are(mode: str, parameters: dict[str, Any]) -> None:
    source = _png(mode, dpi=(300, 300), **parameters)

    for data in (convert(source, "pdf").data, run_tool("pdf-from-images", source).data):
        (image,) = images(data)
        assert image.raw == _rows(source)
        assert ("ICCBased" in str(image.entries["/ColorSpace"])) == ("icc_profile" in parameters)
        shown = pymupdf.open(stream=data)
        pixels = pymupdf.Pixmap(shown, shown[0].get_images()[0][0])
        expected = opened_image(convert(source, "png", bit_depth=8).data).convert("L" if pixels.n == 1 else "RGB")
        drawn = np.frombuffer(pixels.samples, np.uint8).astype(int)
        assert np.abs(drawn - np.asarray(expected).ravel()).max() <= (mode == "I;16")  # MuPDF does not round


def test_the_rows_of_a_png_are_shown_turned() -> None:
    exif = Image.Exif()
    exif[0x112] = 6
    source = _png("RGB", exif=exif)

    data = convert(source, "pdf", rotate=180, flip="horizontal").data

    assert images(data)[0].raw == _rows(source)
    page = pypdfium2.PdfDocument(data)[0]
    expected = apply_orientation(np.asarray(Image.open(BytesIO(source))), 6)[::-1, ::-1][:, ::-1]
    drawn = np.asarray(page.render(scale=96 / 72).to_pil().convert("RGB"), int)[:90, :70]
    assert np.abs(drawn - expected).mean() < 4


@pytest.mark.parametrize("kind", ["interlaced", "transparent", "two colors", "filter"])
def test_other_rows_of_a_png_are_decoded(kind: str) -> None:
    parameters: dict[str, Any] = {"transparency": 0} if kind == "transparent" else {}
    source = _png("1" if kind == "two colors" else "P", **parameters)
    if kind == "interlaced":
        source = convert(source, "png", progressive=True).data
    if kind == "filter":
        rows = bytearray(zlib.decompress(_rows(source)))
        rows[0] = 9
        chunks = [(one, bytes(chunk)) for one, chunk in png_chunks.read_chunks(memoryview(source))]
        damaged = png_chunks.chunk(b"IDAT", zlib.compress(rows))
        source = b"".join([png_chunks.SIGNATURE, *(damaged if one == b"IDAT" else chunk for one, chunk in chunks)])
        with pytest.raises(CorruptInput):
            convert(source, "pdf")
        return

    assert _rows(source) not in [image.raw for image in images(convert(source, "pdf").data)]


def test_documents_are_no_images() -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-from-images", _TALL, document("A", 1))

    assert (raised.value.code, raised.value.reason) == ("invalid_file_type", "not_a_picture")
    assert raised.value.details["index"] == 1


def _stored(made: Pdf, data: bytes, mode: str = "/DeviceRGB", **keys: Any) -> Stream:
    """An image of 60 x 40 pixels."""
    entries = {"Type": Name.XObject, "Subtype": Name.Image, "Width": 60, "Height": 40, "BitsPerComponent": 8}
    return made.make_stream(data, **{**entries, "ColorSpace": Name(mode), **keys})


def _drawing(images: list[Stream], made: Pdf) -> bytes:
    """A page for each image."""
    for image in images:
        page = made.add_blank_page(page_size=(100, 100)).obj
        page.Resources = Dictionary(XObject=Dictionary(P=image))
        page.Contents = made.make_stream(b"q 60 0 0 40 0 0 cm /P Do Q")
    return saved(made)


def test_images_are_extracted_in_their_own_encodings() -> None:
    made = Pdf.new()
    jpeg, jp2 = image_file(_PHOTO, "JPEG"), image_file(_PHOTO, "JPEG2000")
    cmyk = Image.merge("CMYK", [*_PHOTO.split(), _PHOTO.getchannel(0)])
    bits = np.packbits(np.arange(40 * 60).reshape(40, 60) % 2, axis=1).tobytes()
    images = [
        _stored(made, jpeg, Filter=Name.DCTDecode),
        _stored(made, jp2, Filter=Name.JPXDecode),
        _stored(made, _PHOTO.tobytes()),
        _stored(made, cmyk.tobytes(), "/DeviceCMYK"),
        _stored(made, bits, "/DeviceGray", BitsPerComponent=1),
        _stored(made, jpeg, Filter=Name.DCTDecode, Decode=Array([1, 0, 1, 0, 1, 0])),
    ]

    result = run_tool("pdf-extract-images", _drawing(images, made))

    assert [*result.files] == ["01.jpg", "02.jp2", "03.png", "04.tiff", "05.png", "06.png"]
    first, second, *others = result.files.values()
    assert (first, second) == (jpeg, jp2)
    shown = [Image.open(BytesIO(data)) for data in others]
    assert [image.mode for image in shown] == ["RGB", "CMYK", "1", "RGB"]
    assert (shown[0].tobytes(), shown[1].tobytes()) == (_PHOTO.tobytes(), cmyk.tobytes())
    assert shown[2].tobytes() == bits
    difference = np.asarray(shown[3]).astype(int) + np.asarray(Image.open(BytesIO(jpeg)))
    assert np.abs(difference - 255).mean() < 20
    assert (result.outcome.container, result.outcome.file_count) == ("zip", 6)
    assert result.outcome.output_format == "png"


def test_a_result_has_the_format_of_its_files_if_it_is_the_same() -> None:
    made = Pdf.new()
    photos = [_stored(made, image_file(image, "JPEG"), Filter=Name.DCTDecode) for image in (_PHOTO, _PHOTO.rotate(180))]

    result = run_tool("pdf-extract-images", _drawing(photos, made))

    assert ([*result.files], result.outcome.output_format) == (["01.jpg", "02.jpg"], "jpeg")


def test_each_image_is_extracted_once_and_masks_are_none() -> None:
    made = Pdf.new()
    mask = _stored(made, _PHOTO.convert("L").tobytes(), "/DeviceGray")
    photo = _stored(made, _PHOTO.tobytes(), SMask=mask)
    stencil = made.make_stream(bytes(320), Subtype=Name.Image, Width=60, Height=40, ImageMask=True, BitsPerComponent=1)
    form = made.make_stream(b"/Inner Do", Subtype=Name.Form, BBox=Array([0, 0, 1, 1]))
    form.Resources = Dictionary(XObject=Dictionary(Inner=photo, Unused=_stored(made, bytes(7200))))

    data = _drawing([photo, stencil, form, _stored(made, _PHOTO.tobytes())], made)

    assert len(run_tool("pdf-extract-images", data).files) == 1


@pytest.mark.parametrize("options", [{"pages": "2"}, {"min_pixels": 2401}])
def test_without_images_there_is_an_error(options: dict[str, Any]) -> None:
    made = Pdf.new()
    data = _drawing([_stored(made, _PHOTO.tobytes())], made)
    with pikepdf.open(BytesIO(data)) as longer:
        longer.add_blank_page()
        data = saved(longer)

    assert len(run_tool("pdf-extract-images", data, pages="1", min_pixels=2400).files) == 1
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-extract-images", data, **options)
    assert (raised.value.code, raised.value.reason) == ("invalid_parameter", "nothing_found")


def test_damaged_images_are_told() -> None:
    made = Pdf.new()
    broken = _stored(made, b"no picture", Filter=Name.DCTDecode)
    only_broken = _drawing([broken], made)

    result = run_tool("pdf-extract-images", _drawing([_stored(made, _PHOTO.tobytes())], made))

    assert ([*result.files], result.codes) == (["02.png"], {"pictures_dropped"})
    with pytest.raises(CorruptInput):
        run_tool("pdf-extract-images", only_broken)


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
    image = _PAGE_PHOTO.convert(mode)
    result = convert(_document((image, "PNG")), "tiff")
    found = opened_image(result.data)
    assert codes(result) == set()
    assert (found.mode, _resolution(result.data)) == (mode, (300, 300))
    np.testing.assert_array_equal(np.asarray(found), np.asarray(image))


def test_cmyk() -> None:
    image = _PAGE_PHOTO.convert("CMYK")
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
    image = _PAGE_PHOTO.convert("1")
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
    document = pikepdf.open(BytesIO(_raw(_PAGE_PHOTO.tobytes(), 8, Name.DeviceRGB, _DRAW)))
    profile = document.make_stream(_PROFILE, N=3)
    document.pages[0].Resources.XObject.P.ColorSpace = Array([Name.ICCBased, document.make_indirect(profile)])
    document.save(file := BytesIO())
    found = opened_image(convert(file.getvalue(), "tiff").data)
    assert found.info["icc_profile"] == _PROFILE
    np.testing.assert_array_equal(np.asarray(found), np.asarray(_PAGE_PHOTO))


@pytest.mark.parametrize(("matrix", "turn"), [("-72 0 0 48 72 0", 2), ("-72 0 0 -48 72 48", 3), ("72 0 0 -48 0 48", 4)])
def test_a_mirrored_image(matrix: str, turn: int) -> None:
    data = _raw(_PAGE_PHOTO.tobytes(), 8, Name.DeviceRGB, f"q {matrix} cm /P Do Q")
    found = np.asarray(opened_image(convert(data, "tiff").data))
    np.testing.assert_array_equal(found, apply_orientation(np.asarray(_PAGE_PHOTO), turn))


@pytest.mark.parametrize(("rotation", "orientation"), [(90, 6), (180, 3), (270, 8)])
def test_a_rotated_page(rotation: int, orientation: int) -> None:
    document = pymupdf.open(stream=_document((_PAGE_PHOTO, "PNG")))
    document[0].set_rotation(rotation)
    data = bytes(document.tobytes())
    upright = apply_orientation(np.asarray(_PAGE_PHOTO), orientation)
    np.testing.assert_array_equal(np.asarray(opened_image(convert(data, "tiff").data)), upright)
    turned = opened_image(convert(data, "tiff", rotate=(360 - rotation) % 360).data)
    np.testing.assert_array_equal(np.asarray(turned), np.asarray(_PAGE_PHOTO))


@pytest.mark.parametrize("rows", [64, 16])
def test_strips_are_one_image(rows: int) -> None:
    """Strips in the order from the bottom to the top, with edges that are no whole points."""
    document = pymupdf.open()
    page = document.new_page(width=_SIZE[0], height=_SIZE[1])
    for top in reversed(range(0, 200, rows)):
        strip = _PAGE_PHOTO.crop((0, top, 300, min(top + rows, 200)))
        area = pymupdf.Rect(0, top * 0.24, 72, (top + strip.height) * 0.24)
        page.insert_image(area, stream=image_file(strip, "PNG"), keep_proportion=False)
    result = convert(bytes(document.tobytes()), "tiff").data
    np.testing.assert_array_equal(np.asarray(opened_image(result)), np.asarray(_PAGE_PHOTO))
    assert _resolution(result) == (300, 300)


@pytest.mark.parametrize("tile", [None, (128, 128)])
def test_a_tiff_comes_back(tile: tuple[int, int] | None) -> None:
    file = BytesIO()
    gray = np.asarray(_PAGE_PHOTO.convert("L"))
    tifffile.imwrite(
        file, gray, compression="jpeg", tile=tile, resolution=(200, 100), resolutionunit="inch", metadata=None
    )
    result = convert(convert(file.getvalue(), "pdf").data, "tiff").data
    np.testing.assert_array_equal(tifffile.imread(BytesIO(result)), tifffile.imread(BytesIO(file.getvalue())))
    assert _resolution(result) == (200, 100)


def test_text_to_search_is_no_drawing() -> None:
    document = pymupdf.open(stream=_document((_PAGE_PHOTO, "PNG")))
    document[0].insert_text((5, 20), "recognized", fontsize=8, render_mode=3)
    found = opened_image(convert(bytes(document.tobytes()), "tiff").data)
    np.testing.assert_array_equal(np.asarray(found), np.asarray(_PAGE_PHOTO))


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
    document = pymupdf.open(
        stream=_document((_PAGE_PHOTO, "PNG"), (_PAGE_PHOTO.convert("1"), "PNG"), (_PAGE_PHOTO, "JPEG"))
    )
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
    image = _PAGE_PHOTO.convert("L").point(lambda value: 255 * (value > 128)).convert("1")
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
    compressed = bytes(imagecodecs.zlib_encode(_PAGE_PHOTO.tobytes()))
    data = _raw(compressed[: len(compressed) // 2], 8, Name.DeviceRGB, _DRAW, Filter=Name.FlateDecode)
    assert codes(convert(data, "png")) == codes(convert(data, "tiff")) == {"repaired"}
