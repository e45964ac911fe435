"""Fidelity of results: orientation, color, depth, transparency, timing, EXIF and XMP."""

import re
from io import BytesIO

import imagecodecs
import numpy as np
import pikepdf
import pytest
import tifffile
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageOps

from engine.registry import load_registry
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import SIZE, quadrants, sample, saved
from tests.support.samples.profiles import srgb_profile, swapped_profile

_REGISTRY = load_registry()
_XMP = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"/></x:xmpmeta>'
_HOLD_EXIF = ("jpeg", "png", "webp", "avif", "heic", "tiff")


def _tags(orientation: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112], tags[0x010F], tags[0x0110] = orientation, "Maker", "Model"
    tags.get_ifd(0x8769)[0x9003] = "2024:05:01 12:00:00"
    tags.get_ifd(0x8825)[1] = "N"
    return tags


_POLICIES = ("none", "safe", "all")
_PATHS = (
    "png",
    "jpeg",
    "pdf",
    "heic",
    "tiff",
    "bmp",
    "eps",
    "jxl",
    "jxl jpeg",
    "webp",
    "avif",
    "jp2",
    "gif",
    "psd",
    "qoi",
    "tga",
)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("repeated", [False, pytest.param(True, marks=pytest.mark.long)])
def test_orientation_is_applied_once(orientation: int, path: str, *, repeated: bool) -> None:
    stored = quadrants()
    upright = ImageOps.exif_transpose(opened(saved(stored, "JPEG", exif=_tags(orientation).tobytes(), quality=95)))
    expected = np.asarray(upright.convert("RGB").resize((8, 8), Image.Resampling.BOX), int)
    first = (orientation + _PATHS.index(path)) % len(_POLICIES)
    for metadata in _POLICIES if repeated else _POLICIES[first : first + 1]:
        data = saved(stored, "JPEG", exif=_tags(orientation).tobytes(), quality=95, dpi=(72, 72))
        for target in path.split():
            data = convert(data, target, metadata=metadata).data

        reading = readers.read(target, data)

        assert reading.size == upright.size
        middle = np.asarray(Image.fromarray(reading.pixels).resize((8, 8), Image.Resampling.BOX), int)
        assert np.abs(middle - expected).mean() < (12 if target == "gif" else 6)


@pytest.mark.parametrize("target", _HOLD_EXIF)
def test_exif_and_xmp_are_kept(target: str) -> None:
    data = saved(quadrants(), "JPEG", exif=_tags(6).tobytes(), xmp=_XMP)

    image = opened(convert(data, target, metadata="all").data)

    tags = image.getexif()
    assert tags.get(0x0112, 1) == 1
    assert (tags[0x010F], tags[0x0110]) == ("Maker", "Model")
    assert tags.get_ifd(0x8769)[0x9003] == "2024:05:01 12:00:00"
    assert tags.get_ifd(0x8825)[1] == "N"
    assert b"xmpmeta" in (image.info["xmp"] if isinstance(image.info["xmp"], bytes) else image.info["xmp"].encode())


@pytest.mark.parametrize("raw", ["arw", "cr2", "dng", "nef", "orf", "raf", "rw2"])
@pytest.mark.parametrize("target", ["jpeg", "tiff"])
def test_the_exif_of_raw_is_kept(raw: str, target: str) -> None:
    tags = opened(convert(sample(raw), target).data).getexif()

    assert tags[0x010F]
    assert tags[0x0110]
    assert tags.get_ifd(0x8769)[0x9003] == "2024:05:01 12:00:00"


@pytest.mark.parametrize("target", ["jpeg", "png", "webp", "avif", "heic", "tiff", "psd"])
def test_profiles_are_kept_if_supported(target: str) -> None:
    profile = swapped_profile()
    data = saved(quadrants(), "PNG", icc_profile=profile)

    assert opened(convert(data, target).data).info["icc_profile"] == profile


@pytest.mark.parametrize("target", ["bmp", "gif"])
def test_profiles_are_applied_if_not_supported(target: str) -> None:
    data = saved(quadrants(), "PNG", icc_profile=swapped_profile())

    image = opened(convert(data, target).data).convert("RGB")

    red, green, _ = image.getpixel((10, 10))  # type: ignore[misc]
    assert green > red


@pytest.mark.parametrize("target", ["jpeg", "png", "webp", "avif", "heic", "bmp", "gif"])
def test_cmyk_is_converted_to_rgb(target: str) -> None:
    inks = Image.new("CMYK", SIZE, (0, 255, 255, 0))
    reading = readers.read(target, convert(saved(inks, "TIFF"), target).data)

    red, green, blue = reading.pixels[60, 80]
    assert red > 200
    assert green < 80
    assert blue < 80


@pytest.mark.parametrize("source", ["TIFF", "JPEG"])
@pytest.mark.parametrize("target", ["tiff", "psd", "pdf", "eps"])
def test_cmyk_is_kept_if_supported(source: str, target: str) -> None:
    inks = Image.new("CMYK", SIZE, (0, 255, 255, 0))
    data = convert(saved(inks, source), target).data

    red, green, blue = readers.read(target, data).pixels[30, 40]
    assert red > 200
    assert max(green, blue) < 90
    if target in ("tiff", "psd"):
        assert opened(data).mode == "CMYK"
        assert opened(data).getpixel((5, 5)) == pytest.approx((0, 255, 255, 0), abs=4)


def _ramp(bands: int = 3) -> NDArray[np.uint16]:
    """A gradient over the full 16-bit range."""
    row = np.linspace(0, 65535, 256).astype(np.uint16)
    return np.ascontiguousarray(np.repeat(np.tile(row, (16, 1))[..., None], bands, axis=2))


@pytest.mark.parametrize("source", ["png", "tiff"])
@pytest.mark.parametrize("target", ["png", "tiff"])
@pytest.mark.parametrize("bands", [1, 3, 4])
def test_sixteen_bits_are_kept(source: str, target: str, bands: int) -> None:
    ramp = _ramp(bands) if bands > 1 else _ramp(1)[..., 0]
    data = _deep_png(ramp) if source == "png" else _deep_tiff(ramp)

    result = convert(data, target).data

    seen = tifffile.imread(BytesIO(result)) if target == "tiff" else imagecodecs.png_decode(result)
    np.testing.assert_array_equal(seen, ramp)


def _deep_png(array: NDArray[np.uint16]) -> bytes:
    return bytes(imagecodecs.png_encode(array))


def _deep_tiff(array: NDArray[np.uint16]) -> bytes:
    buffer = BytesIO()
    color = "rgb" if array.ndim == 3 else "minisblack"
    extra = ["unassalpha"] if array.ndim == 3 and array.shape[2] == 4 else None
    tifffile.imwrite(buffer, array, photometric=color, extrasamples=extra)
    return buffer.getvalue()


@pytest.mark.parametrize("target", ["jpeg", "bmp", "webp", "gif"])
@pytest.mark.parametrize("bands", [1, 3])
def test_sixteen_bits_scale_to_eight(target: str, bands: int) -> None:
    ramp = _ramp(3) if bands == 3 else _ramp(1)[..., 0]
    result = convert(_deep_png(ramp), target)

    row = readers.read(target, result.data).pixels[8, :, 0].astype(int)

    assert "depth_reduced" in codes(result)
    assert np.abs(row - np.linspace(0, 255, 256)).max() < 14  # clipping would be off by 250
    assert row[0] < 8
    assert row[-1] > 247


def test_floats_are_read() -> None:
    ramp = np.repeat(np.linspace(0, 1, 64, dtype=np.float32)[None, :, None], 3, axis=2).repeat(8, axis=0)
    buffer = BytesIO()
    tifffile.imwrite(buffer, ramp, photometric="rgb")

    image = opened(convert(buffer.getvalue(), "bmp").data)

    assert image.getpixel((0, 4)) == (0, 0, 0)
    assert image.getpixel((63, 4)) == (255, 255, 255)
    assert image.getpixel((32, 4)) == pytest.approx((130, 130, 130), abs=2)


@pytest.mark.parametrize("target", ["jpeg", "bmp", "eps"])
def test_transparency_is_flattened_onto_white(target: str) -> None:
    image = Image.new("RGBA", SIZE, (255, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 84, 120))
    result = convert(saved(image, "PNG"), target)

    pixels = readers.read(target, result.data).pixels

    assert codes(result) == {"alpha_flattened"}
    assert tuple(pixels[60, 140]) == pytest.approx((255, 255, 255), abs=3)
    assert tuple(pixels[60, 20]) == pytest.approx((0, 0, 255), abs=6)


@pytest.mark.parametrize("target", ["png", "webp", "avif", "heic", "tiff", "gif", "psd"])
def test_transparency_is_kept_if_supported(target: str) -> None:
    image = Image.new("RGBA", SIZE, (0, 0, 0, 0))
    image.paste((0, 0, 255, 255), (0, 0, 84, 120))
    result = convert(saved(image, "PNG"), target)

    alpha = np.asarray(opened(result.data).convert("RGBA"))[..., 3]

    assert "alpha_flattened" not in codes(result)
    assert alpha[60, 20] == 255
    assert alpha[60, 140] == 0


def test_opaque_alpha_causes_no_warning() -> None:
    assert not convert(saved(quadrants().convert("RGBA"), "PNG"), "jpeg").outcome.warnings


@pytest.mark.parametrize("target", ["gif", "png", "webp", "tiff", "jpeg", "bmp"])
def test_a_palette_with_partial_alpha_converts(target: str) -> None:
    image = Image.new("P", SIZE)
    image.putpalette([value for index in range(16) for value in (16 * index, 255 - 16 * index, 40)])
    image.putdata([(x // 10) % 16 for _ in range(SIZE[1]) for x in range(SIZE[0])])
    source = opened(saved(image, "PNG", transparency=bytes(17 * index for index in range(16))))
    expected = np.asarray(source.convert("RGBA"), int)

    result = convert(saved(image, "PNG", transparency=bytes(17 * index for index in range(16))), target)

    seen = np.asarray(opened(result.data).convert("RGBA"), int)
    if target in ("jpeg", "bmp"):
        alpha = expected[..., 3:] / 255
        assert np.abs(seen[..., :3] - (expected[..., :3] * alpha + 255 * (1 - alpha))).mean() < 4
    elif target == "gif":
        np.testing.assert_array_equal(seen[..., 3] > 0, expected[..., 3] >= 128)
        np.testing.assert_array_equal(seen[seen[..., 3] > 0], [[*one[:3], 255] for one in expected[seen[..., 3] > 0]])
    else:
        assert np.abs(seen[..., 3] - expected[..., 3]).max() == 0


def test_all_pages_of_a_tiff_become_pages() -> None:
    pages = [Image.new("L", (60 + 10 * index, 40), 50 * index) for index in range(3)]
    data = saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])

    assert readers.read("pdf", convert(data, "pdf").data).count == 3
    assert codes(convert(data, "jpeg")) == {"pages_dropped"}


def test_a_pdf_contains_the_jpeg_unchanged() -> None:
    data = sample("jpeg")

    with pikepdf.open(BytesIO(convert(data, "pdf").data)) as document:
        (image,) = document.pages[0].get_images().values()
        assert image.read_raw_bytes() == data


_VECTOR_PAIRS = [("svg", "pdf"), ("eps", "pdf"), ("pdf", "svg"), ("eps", "svg"), ("pdf", "eps"), ("svg", "eps")]


@pytest.mark.parametrize(("source", "target"), _VECTOR_PAIRS)
def test_vectors_stay_vectors(source: str, target: str) -> None:
    data = convert(sample(source), target).data

    assert b"<image" not in data
    if target == "pdf":
        with pikepdf.open(BytesIO(data)) as document:
            assert not document.pages[0].get_images()
    if target == "eps":
        assert len(re.findall(rb" re\s+f", data.partition(b"%%EndPageSetup")[2])) == 4  # the boxes


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA"])
def test_a_png_has_about_the_size_of_pillows_and_the_same_pixels(mode: str) -> None:
    drawn = quadrants((400, 300)).effect_spread(3).convert(mode)
    made = convert(saved(drawn, "TIFF"), "png").data
    assert np.array_equal(np.asarray(opened(made).convert("RGBA")), np.asarray(drawn.convert("RGBA")))
    assert len(made) < 1.03 * len(saved(drawn, "PNG"))


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_drawing_is_smaller_than_with_filters(mode: str, progressive: bool) -> None:
    drawn = Image.new("RGB", (800, 600), "white")
    for line in range(50):
        text = f"{line % 7}: The quick brown fox jumps over the lazy dog. " * 4
        ImageDraw.Draw(drawn).text((5, 12 * line), text, fill=(0, 40, 90))
    data = saved(drawn.convert(mode), "PNG")

    result = convert(saved(drawn.convert(mode), "TIFF"), "png", progressive=progressive).data

    assert len(result) < (0.5 if progressive else 0.3) * len(data)
    np.testing.assert_array_equal(np.asarray(opened(result).convert(mode)), np.asarray(opened(data)))


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_an_avif_without_metadata_has_the_same_pixels_as_one_with_a_profile(mode: str) -> None:
    drawn = quadrants((400, 300)).effect_spread(3).convert(mode)
    if mode == "RGBA":
        drawn.putalpha(Image.linear_gradient("L").resize(drawn.size))
    profile = srgb_profile()
    plain, profiled = (convert(saved(drawn, "PNG", icc_profile=icc), "avif").data for icc in (None, profile))
    difference = np.asarray(opened(plain), float) - np.asarray(opened(profiled), float)
    assert abs(difference).mean() < 1
    assert 0.9 < len(plain) / (len(profiled) - len(profile)) < 1.1
