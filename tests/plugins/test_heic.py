"""HEIC: depth, premultiplied alpha, memory of deep images, and the effort for large images."""

import tracemalloc
from io import BytesIO

import imagecodecs
import numpy as np
import pillow_heif
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import DeepPixels, Frame, Raster, pipeline
from engine.registry import load_registry
from plugins.formats import heic
from tests.support.results.conversions import convert
from tests.support.samples.generated import saved
from tests.support.samples.heif_files import box, boxes
from tests.support.samples.rasters import photo


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
    data = (
        _heic("RGB", deep)
        if source == "heic"
        else bytes(imagecodecs.avif_encode(deep >> 6, 95, speed=8, bitspersample=10))
    )
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
def test_large_images_take_less_effort(size: tuple[int, int], efforts: tuple[int, int], equal: bool) -> None:
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
