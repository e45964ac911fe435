"""JPEG to JPEG, the resolution of colors, and sizes of lossy files at the default quality and by effort."""

import subprocess
from functools import cache
from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
import pillow_heif
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image, JpegImagePlugin

from benchmarks import workloads
from engine import CorruptInput, InvalidOption, pipeline
from engine.options import OptionValue
from engine.registry import load_registry
from plugins._jpeg.segments import read_segments
from plugins._pixels import pillow
from plugins.formats import webp
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import ink_profile, srgb_profile
from tests.support.samples.rasters import photo, raster_of

_ROTATIONS = {90: 6, 180: 3}  # the EXIF orientations with the same effect
_FLIPPED = 4  # vertically
_BLOCKS = (192, 128)  # a size in whole blocks, of any sampling
_SCANS = (0xDB, 0xC4, 0xC0, 0xC1, 0xC2, 0xDA, 0xDD)  # markers of tables, frames, scans and restarts
_STRIPES = Image.fromarray(np.tile(np.array([[[200, 0, 0], [0, 0, 200]]], np.uint8), (64, 32, 1)))
_REGISTRY = load_registry()


@cache
def _photo(mode: str = "RGB", size: tuple[int, int] = _BLOCKS) -> Image.Image:
    return photo(size).convert(mode)


def _jpeg(image: Image.Image | None = None, **parameters: Any) -> bytes:
    return saved(image or _photo(), "JPEG", **{"quality": 95, "subsampling": "4:4:4", **parameters})


def _pixels(data: bytes) -> NDArray[np.int64]:
    return np.asarray(opened(data), np.int64)


def _tables(data: bytes) -> dict[int, list[int]]:
    image = opened(data)
    assert isinstance(image, JpegImagePlugin.JpegImageFile)
    return image.quantization


def _sampling(data: bytes) -> int:
    return JpegImagePlugin.get_sampling(opened(data))


def _image(data: bytes) -> bytes:
    """All segments of a JPEG but its metadata, and the scans."""
    parts, position = [], 2
    for code, start, end in read_segments(data):
        parts.append(data[position:start])
        parts.append(data[start:end] if code in _SCANS else b"")
        position = end
    return b"".join(parts)


def _transposed(table: list[int]) -> list[int]:
    return np.array(table).reshape(8, 8).T.ravel().tolist()


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
@pytest.mark.parametrize(
    ("options", "inverse", "orientation"),
    [
        ({"rotate": 90}, {"rotate": 270}, 6),
        ({"rotate": 180}, {"rotate": 180}, 3),
        ({"rotate": 270}, {"rotate": 90}, 8),
        ({"flip": "horizontal"}, {"flip": "horizontal"}, 2),
        ({"flip": "vertical"}, {"flip": "vertical"}, 4),
    ],
)
def test_turned_coefficients_are_those_of_the_file(
    mode: str, options: dict[str, OptionValue], inverse: dict[str, OptionValue], orientation: int
) -> None:
    data = _jpeg(_photo(mode))

    result = convert(data, "jpeg", **options).data

    # Decoders calculate columns before rows: turned by 90 degrees, the same coefficients are rounded in another order.
    expected = pillow.apply_orientation(_pixels(data), orientation)
    assert np.abs(_pixels(result) - expected).max() <= (3 if orientation >= 5 else mode == "CMYK")
    assert opened(result).mode == mode
    np.testing.assert_array_equal(_pixels(convert(result, "jpeg", **inverse).data), _pixels(data))


@pytest.mark.parametrize(
    "parameters",
    [
        {"subsampling": "4:2:0", "quality": 60},
        {"subsampling": "4:2:2"},
        {"progressive": True},
        {"optimize": True},
        {"restart_marker_blocks": 3},
    ],
    ids=str,
)
def test_turning_there_and_back_changes_nothing(parameters: dict[str, Any]) -> None:
    data = _jpeg(**parameters)
    turned = convert(data, "jpeg", rotate=90).data

    assert len(turned) <= len(data) * 1.02
    np.testing.assert_array_equal(_pixels(convert(turned, "jpeg", rotate=270).data), _pixels(data))


@pytest.mark.parametrize("orientation", range(2, 9))
@pytest.mark.parametrize("rotate", [0, 90])
def test_orientation_is_applied_to_coefficients(orientation: int, rotate: int) -> None:
    tags = Image.Exif()
    tags[ExifTags.Base.Orientation] = orientation
    data = _jpeg(exif=tags.tobytes())

    result = convert(data, "jpeg", rotate=rotate).data

    expected = pillow.apply_orientation(_pixels(data), orientation)
    expected = pillow.apply_orientation(expected, _ROTATIONS[rotate]) if rotate else expected
    assert np.abs(_pixels(result) - expected).max() <= 3
    assert opened(result).getexif().get(ExifTags.Base.Orientation, 1) == 1


@pytest.mark.parametrize(("subsampling", "block"), [("4:4:4", 8), ("4:2:0", 16)])
def test_a_crop_on_borders_of_blocks_keeps_coefficients(subsampling: str, block: int) -> None:
    data = _jpeg(subsampling=subsampling)

    # The right and the bottom need not be on borders.
    result = convert(data, "jpeg", crop=f"{block},{2 * block},101,51").data

    difference = np.abs(_pixels(result) - _pixels(data)[2 * block : 2 * block + 51, block : block + 101])
    inner = difference if subsampling == "4:4:4" else difference[2:-2, 2:-2]  # decoders interpolate colors at edges
    assert inner.max() == 0


@pytest.mark.parametrize("crop", ["16,32,64,48", "0,16,96,80"])
@pytest.mark.parametrize("rotate", [90, 180])
def test_crop_rotate_and_flip_together(crop: str, rotate: int) -> None:
    data = _jpeg()
    x, y, width, height = map(int, crop.split(","))

    result = convert(data, "jpeg", crop=crop, rotate=rotate, flip="vertical").data

    cut = pillow.apply_orientation(_pixels(data)[y : y + height, x : x + width], _ROTATIONS[rotate])
    assert np.abs(_pixels(result) - pillow.apply_orientation(cut, _FLIPPED)).max() <= 3


@pytest.mark.parametrize(
    ("size", "options", "orientation"),
    [
        (_BLOCKS, {"crop": "3,5,100,80"}, 1),
        ((189, 123), {"rotate": 90}, 6),
        ((189, 123), {"rotate": 180}, 3),
        (_BLOCKS, {"width": 96}, 1),
        (_BLOCKS, {"color_space": "gray"}, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize(("quality", "subsampling"), [(95, "4:4:4"), (60, "4:2:0")])
def test_other_changes_keep_tables_and_sampling(
    size: tuple[int, int], options: dict[str, OptionValue], orientation: int, quality: int, subsampling: str
) -> None:
    data = _jpeg(_photo(size=size), quality=quality, subsampling=subsampling)
    original = opened(data)

    result = convert(data, "jpeg", **options)

    tables = _tables(data)
    kept = {number: _transposed(table) for number, table in tables.items()} if orientation >= 5 else tables
    gray = "color_space" in options
    assert _tables(result.data) == ({0: kept[0]} if gray else kept)
    assert gray or _sampling(result.data) == JpegImagePlugin.get_sampling(original)
    if size != _BLOCKS:
        expected = pillow.apply_orientation(_pixels(data), orientation)
        error = np.mean((_pixels(result.data) - expected) ** 2)
        assert 10 * np.log10(255**2 / error) > (38 if quality == 95 else 30)
        assert len(result.data) < len(data) * 1.05


def test_a_crop_outside_of_the_image_is_refused() -> None:
    with pytest.raises(InvalidOption) as caught:
        convert(_jpeg(), "jpeg", crop="100,0,100,10")

    assert caught.value.param == "crop"


@pytest.mark.parametrize("options", [{}, {"width": 1000}, {"crop": "0,0,192,128"}, {"effort": 9}], ids=str)
@pytest.mark.parametrize("metadata", ["none", "safe", "all"])
def test_metadata_is_filtered_beside_untouched_scans(options: dict[str, OptionValue], metadata: str) -> None:
    tags = Image.Exif()
    tags[ExifTags.Base.Artist] = "Somebody"
    tags.get_ifd(ExifTags.IFD.GPSInfo)[1] = "N"
    data = _jpeg(exif=tags.tobytes(), comment=b"A comment", restart_marker_rows=1, dpi=(300, 300)) + b"after the end"

    result = convert(data, "jpeg", metadata=metadata, **options)

    assert _image(result.data) == _image(data)
    found = opened(result.data)
    assert found.info["dpi"] == (300, 300)
    assert found.getexif().get(ExifTags.Base.Artist) == (None if metadata == "none" else "Somebody")
    assert bool(found.getexif().get_ifd(ExifTags.IFD.GPSInfo)) == (metadata == "all")
    assert ("location_removed" in codes(result)) == (metadata == "safe")
    assert result.data.endswith(b"\xff\xd9")


@pytest.mark.parametrize("name", ["quality", "max_bytes"])
def test_a_quality_replaces_the_encoding(name: str) -> None:
    result = convert(_jpeg(), "jpeg", **{name: 20 if name == "quality" else 6000})

    assert _sampling(result.data) == 2
    assert _tables(result.data) != _tables(_jpeg())


def test_a_subsampling_keeps_the_tables() -> None:
    result = convert(_jpeg(), "jpeg", subsampling="4:2:0")

    assert (_sampling(result.data), _tables(result.data)) == (2, _tables(_jpeg()))


@pytest.mark.parametrize(
    ("size", "options", "progressive"),
    [
        ((480, 320), {}, True),
        ((480, 320), {"progressive": False}, False),
        ((480, 320), {"effort": 1}, False),
        ((240, 160), {}, False),
        ((240, 160), {"progressive": True}, True),
    ],
)
def test_large_images_are_progressive(size: tuple[int, int], options: dict[str, int], progressive: bool) -> None:
    result = convert(saved(photo(size), "PNG"), "jpeg", **options).data

    assert ("progressive" in opened(result).info) is progressive
    if "effort" not in options:
        command = ["jpegtran", "-optimize", *(["-progressive"] if progressive else [])]
        smaller = subprocess.run(command, input=result, check=True, capture_output=True).stdout
        assert len(smaller) >= 0.995 * len(result)


@pytest.mark.parametrize("progressive", [True, False])
@pytest.mark.parametrize("options", [{}, {"rotate": 180}], ids=str)
def test_progressive_is_a_change_of_the_coding_only(options: dict[str, OptionValue], progressive: bool) -> None:
    source = _jpeg(progressive=not progressive)

    result = convert(source, "jpeg", progressive=progressive, **options)

    assert ("progressive" in opened(result.data).info) is progressive
    np.testing.assert_array_equal(_pixels(result.data), _pixels(convert(source, "jpeg", **options).data))


def test_a_file_of_a_camera_is_untouched() -> None:
    """It has the resolution in EXIF, and no JFIF header."""
    tags = Image.Exif()
    tags[ExifTags.Base.XResolution] = tags[ExifTags.Base.YResolution] = 300.0
    tags[ExifTags.Base.ResolutionUnit] = 2
    written = _jpeg(exif=tags.tobytes())
    _, start, end = next(segment for segment in read_segments(written) if segment[0] == 0xE0)
    data = written[:start] + written[end:]

    result = convert(data, "jpeg", metadata="all")
    assert (result.data, codes(result)) == (data, set())
    assert opened(convert(data, "jpeg", metadata="none").data).info["dpi"] == (300, 300)


def test_components_without_a_color_transform_stay_red_green_and_blue() -> None:
    """Their file has no JFIF header, which would state that they are YCbCr."""
    data = _jpeg(keep_rgb=True)
    assert "jfif" not in opened(data).info

    for options in ({}, {"rotate": 180}):
        result = convert(data, "jpeg", **options).data
        np.testing.assert_array_equal(_pixels(convert(result, "jpeg", **options).data), _pixels(data))
        assert "jfif" not in opened(result).info


@pytest.mark.parametrize("options", [{}, {"rotate": 90}, {"crop": "16,16,64,64"}, {"metadata": "all"}], ids=str)
def test_truncated_files_are_refused(options: dict[str, OptionValue]) -> None:
    data = _jpeg()

    with pytest.raises(CorruptInput):
        convert(data[: len(data) // 2], "jpeg", **options)


def test_a_missing_component_is_refused() -> None:
    data = _jpeg()
    frame = data.index(b"\xff\xc0\0\x11")

    with pytest.raises(CorruptInput):
        convert(data[: frame + 3] + b"\x0e" + data[frame + 4 : frame + 16] + data[frame + 19 :], "jpeg")


def test_the_profile_stays() -> None:
    profile = srgb_profile()
    data = _jpeg(icc_profile=profile)

    for options in ({}, {"rotate": 90}, {"crop": "3,3,50,50"}):
        assert opened(convert(data, "jpeg", **options).data).info["icc_profile"] == profile


@pytest.mark.parametrize("options", [{}, {"color_space": "keep", "rotate": 90}, {"crop": "3,5,100,80"}], ids=str)
def test_inks_and_their_profile_stay(options: dict[str, OptionValue]) -> None:
    data = _jpeg(_photo("CMYK"), icc_profile=ink_profile())

    result = opened(convert(data, "jpeg", **options).data)

    assert (result.mode, result.info["icc_profile"]) == ("CMYK", ink_profile())


@pytest.mark.parametrize("encoder", ["TIFF", "JPEG"])
def test_inks_of_other_files_stay(encoder: str) -> None:
    parameters = {"compression": "tiff_lzw"} if encoder == "TIFF" else {"quality": 98, "subsampling": 0}
    data = saved(_photo("CMYK"), encoder, icc_profile=ink_profile(), **parameters)

    result = convert(data, "jpeg", quality=90)

    found = opened(result.data)
    assert (found.mode, found.info["icc_profile"], codes(result)) == ("CMYK", ink_profile(), set())
    assert np.abs(_pixels(result.data) - _pixels(data)).mean() < 4


@pytest.mark.parametrize("edit", [{"rotate": 90}, {"rotate": 180, "flip": "vertical"}, {"flip": "horizontal"}], ids=str)
@pytest.mark.parametrize("orientation", [1, 6])
def test_a_pdf_shows_the_unchanged_jpeg_turned(edit: dict[str, OptionValue], orientation: int) -> None:
    tags = Image.Exif()
    tags[ExifTags.Base.Orientation] = orientation
    data = _jpeg(exif=tags.tobytes(), dpi=(72, 36))

    result = convert(data, "pdf", **edit).data

    with pikepdf.open(BytesIO(result)) as document:
        (image,) = document.pages[0].get_images().values()
        assert _image(image.read_raw_bytes()) == _image(data)
    shown = readers.read("pdf", result)
    turned = convert(data, "png", **edit).data
    assert shown.size == tuple(round(side / dpi * 72) for side, dpi in zip(*_size_and_dpi(turned), strict=True))
    expected = opened(turned).resize((shown.pixels.shape[1], shown.pixels.shape[0]), Image.Resampling.BOX)
    assert np.abs(np.asarray(expected, int) - shown.pixels).mean() < 6


def _size_and_dpi(data: bytes) -> tuple[tuple[int, int], tuple[float, float]]:
    image = opened(data)
    return image.size, image.info["dpi"]


def test_all_parts_of_a_large_profile_are_embedded() -> None:
    """Parts have at most 65,519 bytes of the profile."""
    profile = ink_profile() + bytes(18 * 65_519 - len(ink_profile()) - 100)
    data = _jpeg(_photo("CMYK"), icc_profile=profile)

    with pikepdf.open(BytesIO(convert(data, "pdf").data)) as document:
        (image,) = document.pages[0].get_images().values()
        assert opened(image.read_raw_bytes()).info["icc_profile"] == profile
    assert opened(convert(data, "jpeg").data).info["icc_profile"] == profile


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_better_quality_gives_a_larger_and_more_similar_image(mode: str) -> None:
    drawn = _photo(mode)
    png = saved(drawn, "PNG")
    qualities = (1, 10, 30, 49, 50, 70, 80, 89, 90, 95, 100)

    results = [convert(png, "jpeg", quality=quality).data for quality in qualities]

    errors = [float(np.mean((_pixels(data) - np.asarray(drawn, np.int64)) ** 2)) for data in results]
    assert errors == sorted(errors, reverse=True)
    sizes = [len(data) for data in results]
    assert sizes == sorted(sizes)


def test_the_tables_of_the_default_quality_give_files_as_those_of_the_standard() -> None:
    drawn = photo((768, 576))
    result = convert(saved(drawn, "PNG"), "jpeg").data
    standard = saved(drawn, "JPEG", quality=80, subsampling="4:2:0")

    assert len(result) < len(standard) * 1.12  # the colors of the drawing are noisy, unlike those of photos
    errors = [np.mean((_pixels(data) - np.asarray(drawn, np.int64)) ** 2) for data in (result, standard)]
    assert errors[0] < errors[1]
    assert _sampling(result) == 2


def _chroma(target: str, data: bytes) -> str:
    if target == "jpeg":
        return ("4:4:4", "4:2:2", "4:2:0")[JpegImagePlugin.get_sampling(Image.open(BytesIO(data)))]
    chroma = str(pillow_heif.open_heif(BytesIO(data)).info["chroma"])
    return ":".join(chroma)


@pytest.mark.parametrize("target", ["jpeg", "avif", "heic"])
@pytest.mark.parametrize("deep", [False, True])
def test_colors_have_the_resolution_that_is_asked_for(target: str, deep: bool) -> None:
    depth = {"bit_depth": 10} if deep and target != "jpeg" else {}
    data = saved(_STRIPES, "PNG")
    errors = {}
    for sampling in ("4:2:0", "4:2:2", "4:4:4"):
        result = convert(data, target, subsampling=sampling, quality=80, **depth)
        assert _chroma(target, result.data) == sampling
        assert not codes(result)
        seen = opened(convert(result.data, "png", bit_depth=8).data).convert("RGB")
        errors[sampling] = np.abs(np.asarray(seen, float) - np.asarray(_STRIPES, float)).mean()
    assert errors["4:4:4"] < errors["4:2:2"] / 2  # the stripes are one pixel wide
    assert _chroma(target, convert(data, target, quality=80, **depth).data) == "4:2:0"


@pytest.mark.parametrize("target", ["avif", "heic"])
def test_without_loss_colors_have_the_full_resolution(target: str) -> None:
    result = convert(saved(_STRIPES, "PNG"), target, lossless=True, subsampling="4:2:2")

    assert codes(result) == {"option_ignored"}
    assert _chroma(target, result.data) == "4:4:4"


def test_animations_have_the_resolution_that_is_asked_for() -> None:
    frames = [photo((64, 64)), photo((64, 64)).transpose(Image.Transpose.ROTATE_180)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)

    small, large = (convert(data, "avif", subsampling=sampling).data for sampling in ("4:2:0", "4:4:4"))

    assert small != large
    assert Image.open(BytesIO(large)).n_frames == 2  # type: ignore[attr-defined]


def test_the_quality_of_transparency() -> None:
    image = photo((240, 160), "RGBA")
    noise = np.random.default_rng(1).integers(0, 255, (160, 240), np.uint8)
    image.putalpha(Image.fromarray(noise))
    data = saved(image, "PNG")

    exact, reduced = (convert(data, "webp", alpha_quality=quality) for quality in (100, 10))

    alphas = [np.asarray(opened(one.data))[..., 3].astype(int) for one in (exact, reduced)]
    np.testing.assert_array_equal(alphas[0], noise)
    assert 1 < np.abs(alphas[1] - noise).mean() < 64
    assert len(reduced.data) < len(exact.data)
    assert codes(convert(data, "webp", lossless=True, alpha_quality=10)) == {"option_ignored"}


def _with_detail(size: tuple[int, int]) -> Image.Image:
    """A plain image with a photo in its corner."""
    image = Image.new("RGB", size, "gray")
    image.paste(photo())
    return image


def _webp(image: Image.Image, method: int) -> bytes:
    return saved(image, "WEBP", quality=80, method=method)


@pytest.mark.parametrize(
    ("height", "effort", "method"),
    [
        pytest.param(1000, 5, 4, id="small"),
        pytest.param(5001, 1, 2, id="large-fast", marks=pytest.mark.long),
        pytest.param(5001, 5, 2, id="large"),
    ],
)
def test_large_images_have_the_webp_method_that_needs_one_pass(height: int, effort: int, method: int) -> None:
    image = _with_detail((5200, height))

    made = webp.encode(raster_of(image), {"effort": effort, "quality": 80})

    assert made == _webp(image, method)
    assert len({_webp(photo(), used) for used in (0, 2, 4)}) == 3


@pytest.mark.parametrize(("target", "quality"), [("jpeg", 88), ("webp", 88), ("avif", 75), ("heic", 75)])
def test_a_jpeg_does_not_grow_at_the_default_quality(target: str, quality: int) -> None:
    original = saved(workloads.photo((870, 578)), "JPEG", quality=quality)
    plan = _REGISTRY.plan([_REGISTRY.formats["jpeg"]], target)

    assert len(pipeline.run(plan, [original]).data) <= len(original)


@pytest.mark.parametrize("effort", [5, 9])
@pytest.mark.parametrize("progressive", [False, True])
def test_noise_is_written_as_jpeg_of_the_best_quality(effort: int, progressive: bool) -> None:
    noise = Image.fromarray(np.random.default_rng(1).integers(0, 256, (256, 256, 3), np.uint8))
    options = {"quality": 100, "effort": effort, "progressive": progressive}
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], "jpeg", options=options)

    assert pipeline.run(plan, [saved(noise, "PNG")], options).data
