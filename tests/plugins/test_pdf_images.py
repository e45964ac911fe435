"""Images that become a PDF, and images that are extracted from one."""

import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pypdfium2
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream
from PIL import Image

from engine import ConversionError, CorruptInput, pipeline
from tests.support.results.tools import run_tool
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as image_file
from tests.support.samples.pdf_documents import REGISTRY, document, opened, saved

_WIDE = image_file(Image.new("RGB", (192, 96), "red"), "PNG")
_TALL = image_file(Image.new("RGB", (48, 96), "blue"), "PNG")
_PHOTO = Image.fromarray(np.random.default_rng(1).integers(0, 255, (40, 60, 3), np.uint8))


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
