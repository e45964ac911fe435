"""Conversions to profiles by name and from files, compared with libvips; CMYK stays CMYK where the target holds it."""

import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pymupdf
import pytest
import pyvips
from PIL import Image, ImageCms

from engine import CorruptInput, DeepPixels, Frame, InvalidOption, OptionValue, Raster, UnknownFormat
from engine.registry import load_registry
from plugins._color import profiles
from plugins.operations import colors
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, convert_with, opened
from tests.support.results.readers import decode_jxl
from tests.support.samples.generated import saved
from tests.support.samples.profiles import ink_profile, srgb_profile, swapped_profile
from tests.support.samples.rasters import photo, raster_of

_SRGB = srgb_profile()
_INK = (Path(profiles.__file__).parents[1] / "_icc" / "ISOcoated_v2_300_bas.icc").read_bytes()
_REGISTRY = load_registry()
_SIZE = 48, 32
_COLOR_CODES = {"color_converted", "profile_dropped"}


def _deep(image: Image.Image, profile: bytes | None = None) -> bytes:
    original = pyvips.Image.new_from_array(np.asarray(image, np.uint16) * 257).copy(interpretation="rgb16")
    if profile:
        original.set_type(pyvips.GValue.blob_type, "icc-profile-data", profile)
    data: bytes = original.tiffsave_buffer()
    return data


def _transformed(
    image: Any, source: bytes, target: bytes, folder: Path, interpretation: str = "srgb", **options: Any
) -> Any:
    """What libvips makes of samples in a profile, from 0 to 1."""
    (folder / "source.icc").write_bytes(source)
    (folder / "target.icc").write_bytes(target)
    original = pyvips.Image.new_from_array(np.asarray(image)).copy(interpretation=interpretation)
    files = {"input_profile": str(folder / "source.icc"), "embedded": False}
    return original.icc_transform(str(folder / "target.icc"), depth=16, **files, **options).numpy() / 65535


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize(
    ("name", "mode"), [("srgb", "RGB"), ("p3", "RGB"), ("adobe-rgb", "RGB"), ("fogra39", "CMYK"), ("swop", "CMYK")]
)
def test_colors_are_those_of_libvips(name: str, mode: str, deep: bool, tmp_path: Path) -> None:
    image, source = photo(), swapped_profile()
    data = _deep(image, source) if deep else saved(image, "PNG", icc_profile=source)

    result = convert(data, "tiff", output_profile=name)

    original = pyvips.Image.tiffload_buffer(result.data)
    samples, profile = original.numpy(), original.get("icc-profile-data")
    assert samples.dtype == (np.uint16 if deep else np.uint8)
    assert profile == profiles.named(name).data
    assert (samples.shape[2], codes(result)) == (len(mode), set())
    expected = _transformed(image, source, profile, tmp_path, intent="relative", black_point_compensation=True)
    assert np.sqrt(((samples / np.iinfo(samples.dtype).max - expected) ** 2).mean()) < 0.01  # 40 dB


@pytest.mark.parametrize("intent", ["perceptual", "saturation", "absolute"])
def test_intents_are_those_of_libvips(intent: str, tmp_path: Path) -> None:
    result = convert(saved(photo(), "PNG"), "tiff", color_space="cmyk", intent=intent)

    samples = np.asarray(opened(result.data)) / 255
    assert np.sqrt(((samples - _transformed(photo(), _SRGB, _INK, tmp_path, intent=intent)) ** 2).mean()) < 0.01
    converted = opened(convert(saved(photo(), "PNG"), "tiff", color_space="cmyk").data)
    assert np.abs(samples - np.asarray(converted) / 255).max() > 0.02


@pytest.mark.parametrize(
    ("name", "red", "green"),
    [
        ("srgb", (0.64, 0.33), (0.3, 0.6)),
        ("p3", (0.68, 0.32), (0.265, 0.69)),
        ("adobe-rgb", (0.64, 0.33), (0.21, 0.71)),
    ],
)
def test_named_profiles_have_their_primaries(name: str, red: Any, green: Any) -> None:
    profile = ImageCms.getOpenProfile(BytesIO(profiles.named(name).data)).profile

    chromaticity = {color: getattr(profile, f"{color}_primary")[1][:2] for color in ("red", "green")}
    adapted = {"red": red, "green": green}  # to the white of profiles, D50, which moves them a little
    assert all(chromaticity[color] == pytest.approx(adapted[color], abs=0.05) for color in adapted)


@pytest.mark.parametrize("target", ["png", "jpeg", "webp", "avif", "tiff"])
def test_colors_come_back_from_p3(target: str) -> None:
    quality: dict[str, OptionValue] = (
        {"quality": 95, "subsampling": "4:4:4"}
        if target in ("jpeg", "avif")
        else {"lossless": True}
        if target == "webp"
        else {}
    )
    wide = convert(saved(photo(), "PNG"), target, color_space="p3", **quality).data

    assert opened(wide).info["icc_profile"] == profiles.named("p3").data
    difference = np.asarray(opened(convert(wide, "png", color_space="srgb").data).convert("RGB"), int) - np.asarray(
        photo(), int
    )
    assert np.sqrt((difference**2).mean()) < 5
    plain = np.asarray(opened(wide).convert("RGB"), int)
    assert np.abs(plain - np.asarray(photo(), int)).mean() > 4  # the samples are others


def test_pixels_of_an_animation_have_the_profile() -> None:
    frames = [Image.new("RGB", (20, 20), color) for color in ("red", "lime", "blue")]
    data = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], lossless=True)

    result = opened(convert(data, "webp", color_space="p3", lossless=True).data)

    seen = []
    for index in range(3):
        result.seek(index)
        seen.append(result.convert("RGB").getpixel((5, 5)))
    assert result.info["icc_profile"] == profiles.named("p3").data
    assert np.abs(np.array(seen) - [(234, 51, 35), (117, 251, 76), (0, 0, 245)]).max() <= 3


@pytest.mark.parametrize("deep", [False, True])
def test_inks_are_laid_on_the_background(deep: bool) -> None:
    image = Image.new("RGBA", (8, 8), (255, 0, 0, 0))
    data = saved(image, "PNG")
    data = convert(data, "png", bit_depth=16).data if deep else data

    white, blue = (convert(data, "tiff", color_space="cmyk", **options) for options in ({}, {"background": "#0000ff"}))

    assert codes(white) == codes(blue) == {"alpha_flattened"}
    seen = [pyvips.Image.tiffload_buffer(result.data).numpy()[4, 4] for result in (white, blue)]
    unit = 65535 if deep else 255
    assert seen[0].max() <= unit * 0.02
    assert seen[1][:2].min() >= unit * 0.7


def test_an_opaque_image_loses_nothing_in_inks() -> None:
    opaque = saved(photo().convert("RGBA").convert("RGB").convert("RGBA"), "PNG")
    assert codes(convert(opaque, "jpeg", color_space="cmyk")) == set()


@pytest.mark.parametrize("profile", [None, ink_profile()])
def test_inks_stay_as_they_are(profile: bytes | None) -> None:
    inks = photo().convert("CMYK")
    data = saved(inks, "TIFF", icc_profile=profile)

    for options in ({}, {"color_space": "cmyk"}):
        result = opened(convert(data, "tiff", **options).data)
        assert result.info.get("icc_profile") == profile
        assert np.array_equal(np.asarray(result), np.asarray(inks))
    other = opened(convert(data, "tiff", output_profile="swop").data)
    assert other.mode == "CMYK"
    assert not np.array_equal(np.asarray(other), np.asarray(inks))


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("options", [{"color_space": "p3"}, {"output_profile": "p3"}])
def test_inks_become_p3(options: dict[str, OptionValue], deep: bool, tmp_path: Path) -> None:
    inks = opened(convert(saved(photo(), "PNG"), "tiff", color_space="cmyk").data)
    data = saved(inks, "TIFF", icc_profile=_INK)
    data = convert(data, "tiff", bit_depth=16).data if deep else data

    image = pyvips.Image.tiffload_buffer(convert(data, "tiff", **options).data)

    samples, profile = image.numpy(), image.get("icc-profile-data")
    assert (samples.shape[2], profile) == (3, profiles.named("p3").data)
    assert samples.dtype == (np.uint16 if deep else np.uint8)
    expected = _transformed(inks, _INK, profile, tmp_path, "cmyk", intent="relative", black_point_compensation=True)
    assert np.sqrt(((samples / np.iinfo(samples.dtype).max - expected) ** 2).mean()) < 0.01


@pytest.mark.parametrize(("target", "space"), [("png", "cmyk"), ("bmp", "cmyk"), ("bmp", "p3"), ("gif", "p3")])
def test_color_spaces_that_the_target_does_not_hold_are_refused(target: str, space: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        convert(saved(photo(), "PNG"), target, color_space=space)

    assert (caught.value.param, space in caught.value.details["available"]) == ("color_space", False)


def test_a_target_without_profiles_ignores_one() -> None:
    data = saved(photo(), "PNG")
    result = convert(data, "bmp", output_profile="p3")

    assert codes(result) == {"option_ignored"}
    assert result.data == convert(data, "bmp").data


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"color_space": "gray", "output_profile": "p3"}, "exclusive"),
        ({"color_space": "srgb", "output_profile": "p3"}, "exclusive"),
        ({"color_space": "p3", "output_profile": "adobe-rgb"}, "exclusive"),
        ({"color_space": "cmyk", "output_profile": "srgb"}, "exclusive"),
        ({"color_space": "gray", "output_profile": "fogra39"}, "exclusive"),
        ({"output_profile": "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"}, "no_file"),
    ],
)
def test_profiles_of_another_color_space_or_file_are_refused(options: dict[str, OptionValue], reason: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        convert(saved(photo(), "PNG"), "tiff", **options)

    assert (caught.value.param, caught.value.reason) == ("output_profile", reason)


def test_an_intent_without_a_profile_is_told() -> None:
    assert codes(convert(saved(photo(), "PNG"), "png", intent="absolute")) == {"option_ignored"}
    assert codes(convert(saved(photo(), "PNG"), "png", color_space="gray", intent="absolute")) == {"option_ignored"}
    inks = saved(photo().convert("CMYK"), "TIFF")
    assert codes(convert(inks, "tiff", color_space="cmyk", intent="absolute")) == {"option_ignored"}


def test_a_profile_can_be_a_file() -> None:
    gray = bytes(imagecodecs.cms_profile("gray", transferfunction=np.linspace(0, 1, 256).astype(np.float32)))
    for profile, mode in ((swapped_profile(), "RGB"), (_INK, "CMYK"), (gray, "L")):
        result = opened(convert_with(saved(photo(), "PNG"), "tiff", {"output_profile": profile}).data)
        assert (result.mode, result.info["icc_profile"]) == (mode, profile)
    swapped = opened(convert_with(saved(photo(), "PNG"), "png", {"output_profile": swapped_profile()}).data)
    assert np.abs(np.asarray(swapped, int)[..., [1, 0, 2]] - np.asarray(photo(), int)).max() <= 2


def test_files_that_are_no_profile_of_results_are_refused() -> None:
    with pytest.raises(UnknownFormat) as refused:
        convert_with(saved(photo(), "PNG"), "tiff", {"output_profile": saved(photo(), "PNG")})
    assert refused.value.param == "output_profile"
    for damaged in (_INK[:300], ink_profile(), ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()):
        with pytest.raises(CorruptInput) as caught:
            convert_with(saved(photo(), "PNG"), "tiff", {"output_profile": damaged})
        assert (caught.value.param, caught.value.details["index"]) == ("output_profile", 1)


def test_the_header_shows_no_more_than_the_pixels() -> None:
    """A dry run looks at a transparent pixel of the mode; inks would lose its transparency."""
    raster = raster_of(photo(mode="RGBA"))

    assert colors.color_space.run(raster, color_space="cmyk").sample is None


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
    assert codes(convert(_source(source, None), target)) & _COLOR_CODES == {"color_converted"}


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


def _file_of_a_camera(space: int = 65535, index: str = "R03", mode: str = "RGB") -> bytes:
    """A JPEG whose EXIF has a color space and an index of interoperability, without a profile."""
    tags = Image.Exif()
    tags.get_ifd(0x8769).update({0xA001: space, 0xA005: {1: index}})
    return saved(Image.new(mode, _SIZE, "#3cc83c"), "JPEG", exif=tags, quality=100)


def _profile_of(data: bytes) -> str | None:
    profile = opened(data).info.get("icc_profile")
    return profile and ImageCms.getProfileDescription(ImageCms.ImageCmsProfile(BytesIO(profile))).strip()


@pytest.mark.parametrize("metadata", ["none", "safe", "all"])
@pytest.mark.parametrize("target", ["png", "webp", "tiff", "jxl", "pdf", "bmp"])
def test_adobe_rgb_is_stated_by_exif_alone(target: str, metadata: str) -> None:
    data = _file_of_a_camera()

    result = convert(data, target, metadata=metadata)

    assert not codes(result) - {"metadata_dropped"}
    if target in ("pdf", "bmp"):
        pixel = readers.read(target, result.data).pixels[8, 8].astype(int)
        assert np.abs(pixel - (0, 201, 37)).max() <= 4
    else:
        shown = decode_jxl(result.data) if target == "jxl" else result.data
        assert _profile_of(shown) == "Adobe RGB (1998)"
        assert np.abs(np.asarray(opened(shown).convert("RGB"), int)[8, 8] - (60, 200, 60)).max() <= 3
    if target == "jxl":
        assert _profile_of(convert(result.data, "jpeg").data) == "Adobe RGB (1998)"
        assert (convert(result.data, "jpeg", metadata="all").data == data) == (metadata == "all")


@pytest.mark.parametrize("options", [{}, {"metadata": "none"}, {"width": 20}, {"quality": 50}, {"rotate": 90}])
def test_a_jpeg_in_adobe_rgb_gets_its_profile(options: dict[str, OptionValue]) -> None:
    assert _profile_of(convert(_file_of_a_camera(), "jpeg", **options).data) == "Adobe RGB (1998)"


def test_a_jpeg_that_becomes_srgb_does_not_state_adobe_rgb() -> None:
    result = convert(_file_of_a_camera(), "jpeg", color_space="srgb", metadata="all")

    assert _profile_of(result.data) is None
    assert _profile_of(convert(result.data, "png").data) is None
    assert opened(result.data).getexif().get_ifd(0xA005)[1] == "R98"


@pytest.mark.parametrize(("space", "index", "mode"), [(1, "R03", "RGB"), (65535, "R98", "RGB"), (65535, "R03", "L")])
def test_other_color_spaces_of_exif_are_srgb(space: int, index: str, mode: str) -> None:
    data = _file_of_a_camera(space, index, mode)

    for target in ("png", "jpeg"):
        assert _profile_of(convert(data, target).data) is None


def test_profiles_have_the_names_of_their_colors() -> None:
    names = {"srgb": "sRGB", "p3": "Display P3", "adobe-rgb": "Adobe RGB (1998)"}
    data = saved(photo(), "PNG")

    assert {name: _profile_of(convert(data, "png", output_profile=name).data) for name in names} == names
    assert _profile_of(convert(data, "jpeg", color_space="p3").data) == "Display P3"
