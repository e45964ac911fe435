"""AVIF and HEIC: depth, alpha, loops, damage, effort, and colors by code points, as Chromium shows them."""

import base64
import struct
import tracemalloc
from collections.abc import Callable
from io import BytesIO
from itertools import product
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
import pillow_heif
import pytest
import pyvips
from numpy.typing import NDArray
from PIL import Image, ImageCms

from engine import RASTER, DeepPixels, Frame, Raster, pipeline
from engine.registry import load_registry
from plugins.formats import avif, heic
from tests.support.browser import Screenshots, running_browser
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import associations, box, boxes, edited, with_property
from tests.support.samples.profiles import srgb_profile
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_LOOP_COUNT = """async data => {
    const file = await (await fetch("data:image/avif;base64," + data)).arrayBuffer();
    const decoder = new ImageDecoder({data: file, type: "image/avif"});
    await decoder.tracks.ready;
    return 1 + decoder.tracks.selectedTrack.repetitionCount;
}"""
CodePoints: TypeAlias = tuple[int, int, int]
_SRGB, _P3, _PQ, _HLG = (1, 13, 6), (12, 13, 6), (9, 16, 9), (9, 18, 9)
_HDR = (_PQ, _HLG, (12, 16, 6))
_OTHERS: dict[str, CodePoints] = {
    "Display P3": _P3,
    "Display P3 without transfer": (12, 2, 6),
    "Display P3 with the transfer of video": (12, 1, 6),
    "BT.2020 of 10 bits": (9, 14, 9),
    "BT.2020 of 12 bits": (9, 15, 9),
    "BT.2020 with sRGB": (9, 13, 9),
    "BT.709": (1, 1, 1),
    "BT.601": (6, 6, 6),
    "DCI P3": (11, 17, 6),
    "BT.470 M": (4, 4, 6),
    "gamma 2.8": (1, 5, 6),
    "SMPTE 240M": (7, 7, 7),
    "linear": (1, 8, 6),
    "unspecified": (2, 2, 6),
    "unknown": (3, 13, 6),
}
_COLORS = {"sRGB": _SRGB, "PQ": _PQ, "PQ of Display P3": (12, 16, 6), "HLG": _HLG, **_OTHERS}


def _pixels(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(convert(data, "png").data)).convert("RGBA"), int)


def _split_associations(changed: dict[bytes, bytes]) -> None:
    properties = dict(boxes(changed[b"iprp"]))
    lists = [struct.pack(">II", 0, 1) + entry for entry in associations(properties[b"ipma"])]
    changed[b"iprp"] = box(b"ipco", properties[b"ipco"]) + b"".join(box(b"ipma", each) for each in lists)


def _refer_to_item_0(changed: dict[bytes, bytes]) -> None:
    references = bytearray(changed[b"iref"])
    offset = references.index(b"auxl") + 8
    references[offset : offset + 2] = bytes(2)
    changed[b"iref"] = bytes(references)


def _with_aperture(*values: int) -> Callable[[dict[bytes, bytes]], None]:
    """Adds a clean aperture to all items."""
    return with_property(b"clap", struct.pack(">4I iI iI", *values))


def _animation(count: int = 3, **parameters: object) -> bytes:
    frames = [photo((60, 40), "RGBA").rotate(90 * index) for index in range(count)]
    return saved(frames[0], "AVIF", save_all=True, append_images=frames[1:], duration=100, **parameters)


@pytest.mark.parametrize("edit", [_split_associations, _refer_to_item_0])
@pytest.mark.parametrize("orientation", [1, 6])
def test_alpha_as_older_encoders_write_it(edit: Callable[[dict[bytes, bytes]], None], orientation: int) -> None:
    tags = Image.Exif()
    tags[0x0112] = orientation
    valid = saved(photo((90, 60), "RGBA"), "AVIF", exif=tags)

    assert np.array_equal(_pixels(edited(valid, edit)), _pixels(valid))
    assert len(np.unique(_pixels(valid)[..., 3])) > 1


def test_a_sequence_whose_alpha_belongs_to_no_item() -> None:
    valid = _animation()
    invalid = bytearray(valid)
    offset = invalid.index(b"auxl") + 8
    invalid[offset : offset + 2] = bytes(2)

    assert convert(bytes(invalid), "webp").data == convert(valid, "webp").data


@pytest.mark.parametrize("orientation", [1, 2, 6])
@pytest.mark.parametrize("bits", [8, 10])
def test_a_clean_aperture_crops_before_the_image_is_turned(orientation: int, bits: int) -> None:
    image = np.asarray(photo((90, 60)))
    data = bytes(imagecodecs.avif_encode(image.astype(np.uint16) << 2, 90, speed=8, bitspersample=10))
    if bits == 8:
        tags = Image.Exif()
        tags[0x0112] = orientation
        data = saved(photo((90, 60)), "AVIF", exif=tags, quality=90)
    # 41 x 30 pixels, 20 from the left and 10 from the top.
    cropped = edited(data, _with_aperture(41, 1, 30, 1, -9, 2, -10, 2))

    upright = Image.fromarray(image[10:40, 20:61])
    if bits == 8 and orientation != 1:
        turn = Image.Transpose.FLIP_LEFT_RIGHT if orientation == 2 else Image.Transpose.ROTATE_270
        upright = upright.transpose(turn)
    shown = _pixels(cropped)[..., :3]
    assert shown.shape == np.asarray(upright).shape
    assert np.abs(shown - np.asarray(upright, int)).mean() < 6
    assert convert(cropped, "png").outcome.warnings == ()


@pytest.mark.parametrize("values", [(41, 0, 30, 1, 0, 1, 0, 1), (80, 1, 60, 1, 30, 1, 0, 1)])
def test_an_invalid_clean_aperture_is_ignored(values: tuple[int, ...]) -> None:
    data = saved(photo((90, 60)), "AVIF")

    assert np.array_equal(_pixels(edited(data, _with_aperture(*values))), _pixels(data))


@pytest.mark.parametrize("loop", [0, 1, 3])
def test_loop_counts_are_written_and_read(loop: int) -> None:
    frames = [photo((60, 40)).rotate(90 * index) for index in range(3)]
    source = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=100, loop=loop)

    assert Image.open(BytesIO(convert(convert(source, "avif").data, "webp").data)).info["loop"] == loop


@pytest.mark.parametrize("target", ["png", "avif", "jxl"])
def test_a_sequence_can_play_for_longer_than_other_formats_can_say(target: str) -> None:
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "blue")]
    data = saved(frames[0], "AVIF", save_all=True, append_images=frames[1:], duration=100)
    header, edits = (data.index(kind) + 4 for kind in (b"tkhd", b"elst"))
    endless = bytearray(data)
    struct.pack_into(">Q", endless, header + 28, (1 << 64) - 2)  # the duration of the track
    endless[edits + 3] = 1  # it repeats

    result = convert(bytes(endless), target).data

    reader = _REGISTRY.path(_REGISTRY.identify_content(result), RASTER)[0]
    assert reader(result).loop_count == (1 << 31) - 1


def test_a_browser_plays_an_animation_as_often_as_its_source() -> None:
    gif = saved(Image.new("L", (40, 30)), "GIF", save_all=True, append_images=[Image.new("L", (40, 30), 255)], loop=4)
    data = convert(gif, "avif").data

    with running_browser() as browser:
        page = browser.new_page()
        page.goto("file:///")
        assert page.evaluate(_LOOP_COUNT, base64.b64encode(data).decode()) == 5  # a GIF counts repeats


def test_an_animation_with_ten_bits_is_reduced_with_a_warning() -> None:
    frames = np.stack([np.asarray(photo((60, 40)).rotate(90 * index)) for index in range(2)]).astype(np.uint16) << 2
    data = bytes(imagecodecs.avif_encode(frames, 80, speed=8, bitspersample=10))

    assert [warned.code for warned in convert(data, "png").outcome.warnings] == ["depth_reduced"]


@pytest.mark.parametrize("source", ["L", "RGB"])
def test_a_monochrome_image_keeps_the_meaning_of_its_profile(source: str) -> None:
    profile = srgb_profile()
    gray = photo((90, 60), "L")
    data = saved(gray.convert(source), "AVIF", subsampling="4:0:0", icc_profile=profile, quality=95)

    with Image.open(BytesIO(convert(data, "jpeg", quality=95).data)) as image:
        assert image.info["icc_profile"] == profile
        assert np.abs(np.asarray(image.convert("L"), int) - np.asarray(gray, int)).mean() < 3


@pytest.mark.parametrize(
    ("size", "efforts", "equal"),
    [((4100, 3200), (4, 5), True), ((1000, 800), (4, 5), False), ((1700, 1200), (8, 9), True)],
)
def test_large_images_take_less_effort(size: tuple[int, int], efforts: tuple[int, int], equal: bool) -> None:
    image = Image.new("RGB", size)
    image.paste(photo((240, 160)))  # the rest is encoded quickly
    slow, fast = (avif.encode.run(Raster([Frame(image)], sizes=[size]), effort=effort) for effort in efforts)

    assert (slow == fast) is equal


@pytest.mark.parametrize("source", ["png", "tiff"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_a_deep_image_keeps_twelve_bits(source: str, mode: str) -> None:
    deep = np.asarray(photo((90, 60), mode)).astype(np.uint16) * 257
    png = bytes(imagecodecs.png_encode(deep))
    data = png if source == "png" else convert(png, "tiff").data

    result = convert(data, "avif", quality=95)

    seen = imagecodecs.avif_decode(result.data)
    seen = seen[..., 0] if mode == "L" and seen.ndim == 3 else seen
    assert seen.dtype == np.uint16
    assert seen.max() > 1023
    assert np.abs(seen.astype(int) - (deep >> 4)).mean() < 60


def _heic(mode: str, array: NDArray[np.uint16]) -> bytes:
    file = BytesIO()
    height, width = array.shape[:2]
    image = pillow_heif.from_bytes(f"{mode};16", (width, height), array.tobytes())
    image.save(file, quality=95, enc_params={"preset": "ultrafast"})
    return file.getvalue()


def _deep(mode: str, size: tuple[int, int] = (96, 64)) -> NDArray[np.uint16]:
    return np.asarray(photo(size, mode)).astype(np.uint16) * 257


def _first_deep(data: bytes) -> DeepPixels:
    frames = heic.decode.run(data).deep_frames
    assert frames is not None
    (frame,) = frames
    assert isinstance(frame.pixels, DeepPixels)
    return frame.pixels


def test_premultiplied_colors_of_deep_images_are_divided_by_alpha() -> None:
    straight = _deep("RGB")
    alpha = np.linspace(20_000, 60_000, straight.shape[1]).astype(np.uint32)[None, :, None]
    alpha = np.broadcast_to(alpha, (*straight.shape[:2], 1))
    premultiplied = np.dstack((straight * alpha // 65535, alpha)).astype(np.uint16)

    pixels = _first_deep(_heic("RGBa", premultiplied))

    assert pixels.mode == "RGBA"
    assert np.abs(pixels.array[..., :3].astype(int) - straight).mean() < 2500
    assert np.abs(pixels.array[..., 3:].astype(int) - alpha).mean() < 100


def test_a_deep_image_is_decoded_in_little_more_memory_than_its_samples() -> None:
    data = _heic("RGB", _deep("RGB", (1200, 900)))
    tracemalloc.start()

    pixels = _first_deep(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2.7 * pixels.array.nbytes


@pytest.mark.parametrize("maximum", [255, 1023, 4095])
def test_samples_scale_to_sixteen_bits_and_back(maximum: int) -> None:
    bits = maximum.bit_length()
    samples = np.arange(maximum + 1, dtype=np.uint16)[:, None].repeat(3, axis=1)

    widened = DeepPixels.from_bits(samples, bits, "L")

    assert (widened.array[0, 0], widened.array[-1, 0]) == (0, 65535)
    assert np.array_equal(widened.to_bits(bits), samples)
    assert np.abs(widened.array - samples * (65535 / maximum)).max() <= 0.5


@pytest.mark.parametrize(("source", "target"), [("heic", "avif"), ("avif", "heic")])
def test_ten_bits_stay_ten(source: str, target: str) -> None:
    deep = _deep("RGB")
    avif = imagecodecs.avif_encode(deep >> 6, 95, speed=8, bitspersample=10)
    data = _heic("RGB", deep) if source == "heic" else bytes(avif)
    registry = load_registry()

    result = pipeline.run(registry.plan([registry.formats[source]], target), [data], {"quality": 95})

    assert result.outcome.warnings == ()
    if target == "heic":
        image = pillow_heif.open_heif(BytesIO(result.data), convert_hdr_to_8bit=False, hdr_to_16bit=False)
        seen = np.asarray(image)
        assert image.info["bit_depth"] == 10
    else:
        seen = imagecodecs.avif_decode(result.data)
    assert 255 < seen.max() <= 1023
    assert np.abs(seen.astype(int) - (deep >> 6)).mean() < 30


@pytest.mark.parametrize(
    ("size", "efforts", "equal"),
    [((3000, 2700), (1, 5), True), ((1000, 800), (1, 5), False), ((2100, 2000), (5, 9), True)],
)
@pytest.mark.long
def test_large_images_take_less_effort_in_heic(size: tuple[int, int], efforts: tuple[int, int], equal: bool) -> None:
    ramp = Image.linear_gradient("L").resize(size)
    image = Image.merge("RGB", (ramp, ramp.transpose(Image.Transpose.FLIP_LEFT_RIGHT), ramp))
    slow, fast = (heic.encode.run(Raster([Frame(image)], sizes=[size]), effort=effort) for effort in efforts)

    assert (slow == fast) is equal


@pytest.mark.parametrize("handler", [b"pict", b"vide"])
def test_a_sequence_beside_the_primary_image_is_told(handler: bytes) -> None:
    frames = [photo((64, 64)).rotate(90 * turn) for turn in range(3)]
    sequence = dict(boxes(saved(frames[0], "AVIF", save_all=True, append_images=frames[1:], duration=100)))
    data = _heic("RGB", _deep("RGB")) + box(b"moov", sequence[b"moov"].replace(b"pict", handler))

    messages = {one.code: one.message for one in convert(data, "png").outcome.warnings}

    expected = {"frames_dropped": "Only the first of 3 frames was converted."}
    assert messages == (expected if handler == b"pict" else {})


"""Primaries, transfer and matrix."""


def _avif_of(points: CodePoints, bits: int = 8, mode: str = "RGB") -> bytes:
    array = np.asarray(photo((120, 80), mode))
    samples = array if bits == 8 else array.astype(np.uint16) << (bits - 8)
    primaries, transfer, matrix = points
    encodable = 2 if primaries == 3 else primaries  # imagecodecs refuses what the standard reserves
    colors: dict[str, Any] = {"primaries": encodable, "transfer": transfer, "matrix": matrix}
    encoded = imagecodecs.avif_encode(samples, 95, speed=8, bitspersample=bits, pixelformat="yuv444", **colors)
    return bytes(encoded).replace(struct.pack(">4sH", b"nclx", encodable), struct.pack(">4sH", b"nclx", primaries))


def _heic_of(points: CodePoints, bits: int = 8) -> bytes:
    primaries, transfer, matrix = points
    names = {"color_primaries": primaries, "transfer_characteristics": transfer, "matrix_coefficients": matrix}
    image = photo((120, 80))
    if bits == 8:
        source = pillow_heif.from_pillow(image)
    else:
        deep = np.asarray(image).astype(np.uint16) * 257
        source = pillow_heif.from_bytes("RGB;16", image.size, deep.tobytes())
    file = BytesIO()
    source.save(file, quality=95, chroma=444, **names)
    return file.getvalue()


def _convert(data: bytes, target: str) -> tuple[bytes, set[str]]:
    result = convert(data, target)
    return result.data, codes(result)


def _difference(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """The mean of CIEDE2000."""
    images = (pyvips.Image.new_from_array(array.astype(np.uint8), interpretation="srgb") for array in (one, other))
    first, second = (image.colourspace("lab") for image in images)
    return float(first.dE00(second).avg())


@pytest.mark.parametrize("bits", [pytest.param(8, marks=pytest.mark.long), 10])
def test_colors_are_those_of_a_browser(screenshots: Screenshots, bits: int) -> None:
    files = []
    for name, points in _COLORS.items():
        data = _avif_of(points, bits)
        (bmp, codes), (png, _) = (_convert(data, target) for target in ("bmp", "png"))
        assert ("hdr_reduced" in codes) is (points in _HDR), name
        files += [data, bmp, png]

    shown = screenshots(*files)

    for name, expected, *seen in zip(_COLORS, shown[::3], shown[1::3], shown[2::3], strict=True):
        for image in seen:
            assert _difference(image, expected) < 0.5, name


def test_grey_and_transparent_images(screenshots: Screenshots) -> None:
    cases = list(product((_P3, (1, 5, 6), (1, 16, 6)), ("L", "RGBA")))
    originals = [_avif_of(points, 10, mode) for points, mode in cases]

    shown = screenshots(*originals, *(_convert(data, "png")[0] for data in originals))

    for case, expected, seen in zip(cases, shown[: len(cases)], shown[len(cases) :], strict=True):
        assert _difference(seen, expected) < 1, case


def test_the_light_level_of_hdr_counts(screenshots: Screenshots) -> None:
    plain = _avif_of(_PQ, 10)
    data = edited(plain, with_property(b"clli", struct.pack(">HH", 4000, 400)))
    png = _convert(data, "png")[0]

    expected, seen = screenshots(data, png)

    assert _difference(seen, expected) < 0.5
    assert png != _convert(plain, "png")[0]


@pytest.mark.parametrize("bits", [8, 10])
@pytest.mark.parametrize("points", [_SRGB, _P3, _PQ, _HLG, (9, 14, 9)])
def test_heic_has_the_colors_of_avif(bits: int, points: CodePoints) -> None:
    (heic, codes), (avif, others) = (_convert(make(points, bits), "bmp") for make in (_heic_of, _avif_of))

    images = [np.asarray(Image.open(BytesIO(data)).convert("RGB"), np.int64) for data in (heic, avif)]
    assert _difference(*images) < 2
    assert codes == others


@pytest.mark.parametrize("make", [_avif_of, _heic_of])
@pytest.mark.parametrize("bits", [pytest.param(8, marks=pytest.mark.long), 10])
def test_wide_colors_are_kept_where_the_target_holds_a_profile(make: Callable[..., bytes], bits: int) -> None:
    for target in ("jpeg", "png", "webp", "avif", "heic", "tiff"):
        with Image.open(BytesIO(_convert(make(_P3, bits), target)[0])) as image:
            space = ImageCms.ImageCmsProfile(BytesIO(image.info["icc_profile"])).profile
        assert space.red_colorant
        assert space.red_colorant[0] == pytest.approx((0.51512, 0.24120, -0.00105), abs=0.001)


def test_an_animation_has_the_colors_of_its_primary_image(screenshots: Screenshots) -> None:
    both = np.stack([np.asarray(photo((120, 80))), np.asarray(photo((120, 80)).rotate(180))])
    data = bytes(imagecodecs.avif_encode(both, 95, speed=8, pixelformat="yuv444", primaries=12, transfer=13, matrix=6))
    still = _avif_of(_P3)

    expected, seen = screenshots(still, _convert(data, "bmp")[0])

    assert _difference(seen, expected) < 1


def test_a_profile_precedes_code_points() -> None:
    profile = srgb_profile()
    data = edited(_avif_of(_PQ), with_property(b"colr", b"prof" + profile))

    png, codes = _convert(data, "png")

    assert Image.open(BytesIO(png)).info["icc_profile"] == profile
    assert not codes


def test_a_description_of_srgb_adds_no_profile() -> None:
    for data in (saved(photo(), "AVIF"), _avif_of((1, 1, 1)), _heic_of(_SRGB)):
        assert "icc_profile" not in Image.open(BytesIO(_convert(data, "png")[0])).info
