"""CMYK stays CMYK where the target holds it, with its profile; other conversions of CMYK and Lab are told."""

import warnings

import imagecodecs
import numpy as np
import pymupdf
import pytest
from PIL import Image, ImageCms

from engine import DeepPixels, Frame, Raster
from engine.registry import load_registry
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import srgb_profile

_REGISTRY = load_registry()
_SIZE = 48, 32
_COLOR_CODES = {"color_converted", "profile_dropped"}


def _inks() -> Image.Image:
    """Gradients of cyan and magenta with some yellow, half of them with black."""
    samples = np.zeros((*_SIZE[::-1], 4), np.uint8)
    samples[..., 0] = np.linspace(0, 255, _SIZE[0])[None]
    samples[..., 1] = np.linspace(0, 255, _SIZE[1])[:, None]
    samples[..., 2], samples[:, : _SIZE[0] // 2, 3] = 40, 90
    return Image.fromarray(samples, "CMYK")


@pytest.fixture(scope="module")
def profile() -> bytes:
    """The profile of MuPDF for CMYK."""
    document = pymupdf.open()
    page = document.new_page()
    page.insert_image(page.rect, stream=saved(_inks(), "TIFF"))
    for xref in range(1, document.xref_length()):
        if document.xref_is_stream(xref) and document.xref_get_key(xref, "N") == ("int", "4"):
            stream: bytes = document.xref_stream(xref)
            return stream
    raise AssertionError


def _source(kind: str, profile: bytes | None) -> bytes:
    if kind == "jpeg":
        return saved(_inks(), "JPEG", quality=98, icc_profile=profile)
    tiff = saved(_inks(), "TIFF", icc_profile=profile)
    return tiff if kind == "tiff" else convert(tiff, kind).data


@pytest.mark.parametrize("with_profile", [False, True])
@pytest.mark.parametrize("source", ["jpeg", "tiff", "psd"])
@pytest.mark.parametrize("target", ["jpeg", "tiff", "psd"])
def test_inks_and_profile_stay(source: str, target: str, with_profile: bool, profile: bytes) -> None:
    given = profile if with_profile else None

    result = convert(_source(source, given), target)

    image = opened(result.data)
    assert (image.mode, image.info.get("icc_profile")) == ("CMYK", given)
    assert np.abs(np.asarray(image, int) - np.asarray(_inks(), int)).max() <= 6
    assert not codes(result) & _COLOR_CODES


def test_inks_stay_in_tiff_with_jpeg(profile: bytes) -> None:
    result = convert(_source("psd", profile), "tiff", compression="jpeg", quality=98)

    image = opened(result.data)
    assert (image.mode, image.info["icc_profile"]) == ("CMYK", profile)
    assert np.abs(np.asarray(image, int) - np.asarray(_inks(), int)).max() <= 6
    assert not codes(result)


@pytest.mark.parametrize(("mode", "bands"), [("L", 1), ("LA", 2)])
@pytest.mark.parametrize("target", ["avif", "tiff", "psd", "png"])
def test_deep_gray_has_the_colors_of_its_profile(target: str, mode: str, bands: int) -> None:
    """In targets without gray, too, whose pixels cannot have a gray profile."""
    linear = bytes(imagecodecs.cms_profile("gray", transferfunction=np.linspace(0, 1, 256).astype(np.float32)))
    samples = np.full((16, 16, bands), 65_535, np.uint16)
    samples[..., 0] = 14_000  # of 65,535 in linear light: 0.5 in sRGB
    raster = Raster([], deep_frames=[Frame(DeepPixels(samples if bands > 1 else samples[..., 0], mode), linear)])
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], target)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AVIF has 12 bits
        data = plan.steps[plan.encoder_position](raster, {"quality": 95} if target == "avif" else {})

    srgb = convert(data, "png", color_space="srgb", bit_depth=8).data
    assert np.asarray(opened(srgb).convert("RGB"))[8, 8].tolist() == pytest.approx([128] * 3, abs=3)


@pytest.mark.parametrize("source", ["jpeg", "tiff", "psd"])
def test_inks_without_their_profile_are_told(source: str, profile: bytes) -> None:
    plain, profiled = (convert(_source(source, given), "eps") for given in (None, profile))

    assert not codes(plain) & _COLOR_CODES
    assert codes(profiled) & _COLOR_CODES == {"profile_dropped"}
    for result in (plain, profiled):
        assert b"/DeviceCMYK setcolorspace" in result.data


def test_a_pdf_has_the_inks_and_the_profile(profile: bytes) -> None:
    result = convert(_source("tiff", profile), "pdf")

    document = pymupdf.open(stream=result.data)
    (image,) = document[0].get_images()
    pixels = pymupdf.Pixmap(document, image[0])
    assert (pixels.n, codes(result) & _COLOR_CODES) == (4, set())
    assert np.array_equal(np.frombuffer(pixels.samples, np.uint8).reshape(*_SIZE[::-1], 4), np.asarray(_inks()))
    assert any(document.xref_stream(xref) == profile for xref in range(1, document.xref_length()))


@pytest.mark.parametrize("quality", [60, 95])
def test_a_cmyk_jpeg_is_what_other_readers_read(quality: int) -> None:
    data = convert(_source("tiff", None), "jpeg", quality=quality).data

    stored = imagecodecs.jpeg8_decode(data, outcolorspace="CMYK")  # inverted, as in all files with Adobe's marker
    assert np.abs(255 - stored.astype(int) - np.asarray(_inks(), int)).max() < 16
    shown = pymupdf.Pixmap(pymupdf.csRGB, pymupdf.Pixmap(data))
    expected = np.asarray(opened(convert(_source("tiff", None), "png").data), int)
    assert np.abs(np.frombuffer(shown.samples, np.uint8).reshape(expected.shape) - expected).max() < 16


@pytest.mark.parametrize("target", ["png", "webp", "bmp", "gif", "avif"])
@pytest.mark.parametrize("source", ["jpeg", "tiff", "psd"])
def test_inks_that_become_rgb_are_told(source: str, target: str) -> None:
    result = convert(_source(source, None), target)

    assert codes(result) & _COLOR_CODES == {"color_converted"}


def test_lab_that_becomes_rgb_is_told() -> None:
    lab = ImageCms.createProfile("LAB")
    image = ImageCms.profileToProfile(
        Image.new("RGB", _SIZE, (90, 120, 140)), ImageCms.createProfile("sRGB"), lab, outputMode="LAB"
    )
    assert image is not None

    result = convert(saved(image, "TIFF"), "png")

    assert codes(result) == {"color_converted"}
    assert np.abs(readers.read("png", result.data).pixels.astype(int) - (90, 120, 140)).max() <= 4


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB"])
@pytest.mark.parametrize("space", ["keep", "srgb", "gray"])
def test_other_colors_are_not_told(mode: str, space: str) -> None:
    image = Image.linear_gradient("L").convert(mode)
    profile = srgb_profile()

    for target in ("png", "bmp", "eps"):
        result = convert(saved(image, "PNG", icc_profile=profile), target, color_space=space)
        assert not codes(result) & _COLOR_CODES


def test_a_requested_conversion_is_not_told() -> None:
    for space in ("srgb", "gray"):
        assert not codes(convert(_source("tiff", None), "png", color_space=space)) & _COLOR_CODES
