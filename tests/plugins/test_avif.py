"""AVIF files as other encoders write them, loop counts, and the effort for large images."""

import base64
import struct
from collections.abc import Callable
from io import BytesIO

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from engine import Frame, Raster
from engine.registry import load_registry
from plugins.formats import avif
from tests.support.browser import running_browser
from tests.support.results.conversions import convert
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

    data = convert(source, "avif").data

    assert Image.open(BytesIO(convert(data, "webp").data)).info["loop"] == loop


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
