"""PSD: color modes, saved channels, transparency, depth and metadata, read from built files and written."""

import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from psd_tools import PSDImage

from engine import ConversionError, CorruptInput, DeepPixels, TooLarge, pipeline
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from tests.support.results import readers
from tests.support.results.conversions import codes, opened
from tests.support.samples import psd_files
from tests.support.samples.corpus import format_files
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.psd_files import (
    CMYK,
    GRAY,
    LAB,
    RAW,
    RGB,
    RLE,
    ZIP,
    ZIP_WITH_PREDICTION,
    build,
    on_white,
    planes,
    samples,
)
from tests.support.samples.rasters import photo, raster_of, with_16_bits

_REGISTRY = load_registry()
_PSD = _REGISTRY.formats["psd"]
_TARGETS = ("png", "jpeg", "tiff", "webp", "avif", "heic", "gif", "bmp", "pdf", "eps", "psd")


def convert(data: bytes, target: str = "png") -> PipelineResult:
    source = _REGISTRY.identify_content(data)
    assert source.name == ("psb" if data[5] == 2 else "psd")
    return pipeline.run(_REGISTRY.plan([source], target), [data])


def decoded(data: bytes, target: str = "png") -> NDArray[Any]:
    """The samples of the result."""
    result = convert(data, target)
    assert not codes(result) - {"layers_flattened"}
    return _png(result.data)


def _png(data: bytes) -> NDArray[Any]:
    return np.asarray(imagecodecs.png_decode(data))


@pytest.mark.parametrize("compression", [RAW, RLE, ZIP, ZIP_WITH_PREDICTION])
@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("saved", [1, 2])
@pytest.mark.parametrize(("mode", "bands"), [(GRAY, 1), (RGB, 3)])
@pytest.mark.parametrize("layers", [0, 1])
def test_no_saved_channel_is_alpha(
    mode: int, bands: int, saved: int, depth: int, compression: int, layers: int
) -> None:
    array = samples(bands + saved, depth)
    data = build(planes(array), mode, compression=compression, layers=layers)

    np.testing.assert_array_equal(decoded(data), array[..., :bands].squeeze())


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("saved", [0, 1, 3])
@pytest.mark.parametrize(("mode", "bands"), [(CMYK, 4), (LAB, 3)])
def test_saved_channels_leave_other_colors_alone(mode: int, bands: int, saved: int, depth: int) -> None:
    array = samples(bands + saved, depth)

    with_saved = convert(build(planes(array), mode), "bmp").data

    assert with_saved == convert(build(planes(array[..., :bands]), mode), "bmp").data


@pytest.mark.parametrize("saved", [0, 1])
@pytest.mark.parametrize(
    ("depth", "marked"), [(8, {"layers": -1}), (16, {"layers": -2}), (16, {"transparency_block": True})]
)
@pytest.mark.parametrize(("mode", "bands"), [(GRAY, 1), (RGB, 3)])
def test_alpha_is_separated_from_white(mode: int, bands: int, depth: int, marked: dict[str, Any], saved: int) -> None:
    array = samples(bands + 1, depth)
    stored = np.dstack((on_white(array), samples(1, depth)[..., :saved]))

    found = decoded(build(planes(stored), mode, **marked))

    found = found[..., [0, -1]] if bands == 1 else found
    opaque = array[..., -1] > np.iinfo(array.dtype).max // 2
    np.testing.assert_array_equal(found[..., -1], array[..., -1])
    assert np.abs(found[opaque].astype(int) - array[opaque]).max() <= 1


@pytest.mark.parametrize("depth", [8, 16])
def test_transparency_that_is_not_blended_with_white_is_kept(depth: int) -> None:
    """As ImageMagick writes it."""
    array = samples(4, depth)

    np.testing.assert_array_equal(decoded(build(planes(array), RGB, layers=-1)), array)


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize(("mode", "bands"), [(CMYK, 4), (LAB, 3)])
def test_transparency_of_other_colors_is_kept(mode: int, bands: int, depth: int) -> None:
    array = samples(bands, depth)
    maximum = np.iinfo(array.dtype).max
    alpha = np.full(array.shape[:2], maximum, array.dtype)
    alpha[:, :10] = 0

    found = np.asarray(Image.open(BytesIO(convert(build(planes(np.dstack((array, alpha))), mode, layers=-1)).data)))
    opaque = np.asarray(Image.open(BytesIO(convert(build(planes(array), mode), "bmp").data)))

    np.testing.assert_array_equal(found[..., 3], alpha / maximum * 255)
    assert np.abs(found[:, 10:, :3].astype(int) - opaque[:, 10:]).max() <= 1


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 1), (1, 9), (20, 3)])
@pytest.mark.parametrize("compression", [RAW, RLE, ZIP])
@pytest.mark.parametrize("depth", [8, 16])
def test_small_and_odd_sizes(size: tuple[int, int], compression: int, depth: int) -> None:
    array = samples(4, depth, size)

    found = decoded(build(planes(array), RGB, compression=compression))

    np.testing.assert_array_equal(found.reshape(array[..., :3].shape), array[..., :3])


@pytest.mark.parametrize("width", [1, 8, 20])
@pytest.mark.parametrize("compression", [RAW, RLE])
def test_set_bits_are_black(width: int, compression: int) -> None:
    black = np.random.default_rng(0).integers(0, 2, (6, width)).astype(bool)
    data = build(np.packbits(black, axis=1)[None], psd_files.BITMAP, compression=compression, width=width)

    for target in ("png", "bmp"):
        image = Image.open(BytesIO(convert(data, target).data))
        np.testing.assert_array_equal(np.asarray(image.convert("L")), np.where(black, 0, 255))


@pytest.mark.parametrize("profile", [False, True])
def test_floats_are_linear_light_in_every_target(profile: bool) -> None:
    """Photoshop's floats are linear, with a linear profile or none."""
    linear, encoded = (0.0, 0.05, 0.2140, 0.5, 1.0, 1.7), (0, 63, 128, 188, 255, 255)
    values = np.repeat(np.array(linear, ">f4"), 16).reshape(1, 1, -1)
    array = np.broadcast_to(values, (3, 16, values.shape[2])).copy()
    resources = {psd_files.ICC_PROFILE: _linear_profile()} if profile else {}
    data = build(array, RGB, resources=resources)

    for target in ("png", "jpeg", "tiff", "bmp", "webp", "psd"):
        result = convert(data, target)
        pixels = readers.read(target, result.data).pixels
        assert pixels[8, 8::16, 1].tolist() == pytest.approx(encoded, abs=3), target
        assert codes(result) == {"depth_reduced"}


def _linear_profile() -> bytes:
    profile: bytes = imagecodecs.cms_profile(
        "rgb",
        gamma=1.0,
        whitepoint=(0.3127, 0.3290, 1.0),
        primaries=(0.64, 0.33, 1.0, 0.30, 0.60, 1.0, 0.15, 0.06, 1.0),
    )
    return profile


@pytest.mark.parametrize("depth", [8, 16])
def test_lab_is_converted(depth: int) -> None:
    """L 60, a 25, b 25 of Photoshop is a salmon."""
    lab = np.empty((3, 4, 6), "u1" if depth == 8 else ">u2")
    lab[0], lab[1], lab[2] = 0.6 * np.iinfo(lab.dtype).max, 153 * 256 ** (depth // 16), 153 * 256 ** (depth // 16)

    found = _png(convert(build(lab, LAB), "png").data)

    assert found[0, 0].tolist() == pytest.approx((196, 126, 101), abs=3)


def test_a_duotone_is_gray() -> None:
    array = samples(1)

    np.testing.assert_array_equal(decoded(build(planes(array), psd_files.DUOTONE, palette=b"curves")), array[..., 0])


def test_a_palette_has_a_transparent_color() -> None:
    colors = np.random.default_rng(3).integers(0, 256, (256, 3)).astype(np.uint8)
    array = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    resources = {psd_files.TRANSPARENT_INDEX: b"\0\7"}

    result = convert(build(array, psd_files.INDEXED, palette=colors.T.tobytes(), resources=resources))

    found = np.asarray(Image.open(BytesIO(result.data)).convert("RGBA"))
    np.testing.assert_array_equal(found[..., :3].reshape(-1, 3), colors)
    assert np.argwhere(found[..., 3].ravel() < 255).tolist() == [[7]]


@pytest.mark.parametrize(("channels", "expected"), [(1, (200, 200, 200)), (2, (200, 200, 200)), (3, (200, 150, 100))])
def test_multichannel_inks(channels: int, expected: tuple[int, int, int]) -> None:
    inks = np.array((200, 150, 100, 220), np.uint8)[:channels, None, None].repeat(4, 1).repeat(4, 2)

    found = np.asarray(Image.open(BytesIO(convert(build(inks, psd_files.MULTICHANNEL)).data)).convert("RGB"))

    assert tuple(found[0, 0]) == expected


def test_process_inks_of_multichannel_are_cmyk() -> None:
    array = samples(4)

    multichannel, cmyk = (convert(build(planes(array), mode), "bmp").data for mode in (psd_files.MULTICHANNEL, CMYK))

    assert multichannel == cmyk


def test_deep_inks_keep_their_depth() -> None:
    array = samples(4, 16)

    result = convert(build(planes(array), CMYK), "psd")

    document = PSDImage.open(BytesIO(result.data))
    assert (document.depth, codes(result)) == (16, set())
    np.testing.assert_allclose(document.numpy("color"), array / 65535, atol=1e-4)


@pytest.mark.parametrize("layers", [0, -1])
@pytest.mark.parametrize("depth", [8, 16])
def test_psb_is_read(layers: int, depth: int) -> None:
    array = samples(4, depth)
    array[..., 3] = np.iinfo(array.dtype).max

    found = decoded(build(planes(array), RGB, layers=layers, version=2))

    np.testing.assert_array_equal(found[..., :3], array[..., :3])
    assert found.shape[2] == 4 or not layers or depth == 8  # PNG has no alpha of 8 bits if the image is opaque


@pytest.mark.parametrize(
    ("mode", "deep"),
    [
        *((mode, False) for mode in ("1", "L", "P", "RGB", "RGBA", "CMYK")),
        *((mode, True) for mode in ("L", "RGB", "RGBA", "CMYK")),
    ],
)
def test_psb_is_written(mode: str, deep: bool) -> None:
    image = photo((37, 23), "RGB" if mode == "P" else mode)
    image = image.quantize(9) if mode == "P" else image
    raster = raster_of(with_16_bits(image) if deep else image)
    step = _REGISTRY.plan([_REGISTRY.formats["png"]], "psb").conversions[-1]

    data = step(raster)

    psb, psd = (PSDImage.open(BytesIO(one)) for one in (data, convert(data, "psd").data))
    assert (psb.version, psd.version, psb.depth) == (2, 1, 1 if mode == "1" else 16 if deep else 8)
    assert _REGISTRY.identify_content(data).name == "psb"
    np.testing.assert_allclose(psb.numpy(), psd.numpy(), atol=1e-4)  # colors without alpha are rounded twice
    if mode in ("L", "RGB") and not deep:
        np.testing.assert_array_equal(np.asarray(psb.topil()), np.asarray(image))
    if mode == "RGBA":
        assert len(psb) == 1
        shape = psb[0].numpy("shape")
        assert shape is not None
        np.testing.assert_allclose(shape[..., 0] * 255, np.asarray(image)[..., 3], atol=1)


@pytest.mark.parametrize("path", format_files("psb"), ids=lambda path: path.name)
def test_real_psb(path: Path) -> None:
    data = path.read_bytes()

    found = np.asarray(opened(convert(data, "png").data))

    planes_of_file = np.moveaxis(PSDImage.open(BytesIO(data)).numpy(), -1, 0)[:3] * 255
    np.testing.assert_allclose(np.moveaxis(found, -1, 0), planes_of_file, atol=0.5)


@pytest.mark.parametrize("target", _TARGETS)
def test_the_merged_image_is_upright_as_stored(target: str) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "Maker"
    resources = {psd_files.EXIF: exif.tobytes().removeprefix(b"Exif\0\0"), psd_files.XMP: b'<x tiff:Orientation="6"/>'}
    data = build(planes(np.asarray(photo((60, 40)))), RGB, resources=resources)

    result = convert(data, target).data

    assert readers.read(target, result).size[0] > readers.read(target, result).size[1]
    if target in ("png", "jpeg", "tiff", "webp"):
        tags = Image.open(BytesIO(result)).getexif()
        assert tags[0x010F] == "Maker"
        assert tags.get(0x0112, 1) == 1
    assert b'tiff:Orientation="6"' not in result


@pytest.mark.parametrize("target", ["psd", "tiff", "png"])
def test_resolution_and_profile_are_kept(target: str) -> None:
    fixed = struct.pack(">IHHIHH", 300 << 16, 1, 1, 150 << 16, 1, 1)
    profile = swapped_profile()
    resources = {psd_files.RESOLUTION: fixed, psd_files.ICC_PROFILE: profile}
    data = build(planes(samples(3)), RGB, resources=resources)

    result = convert(data, target).data

    if target == "psd":
        found = PSDImage.open(BytesIO(result)).image_resources
        assert found.get_data(psd_files.RESOLUTION).horizontal == 300 << 16
        assert found.get_data(psd_files.RESOLUTION).vertical == 150 << 16
        assert found.get_data(psd_files.ICC_PROFILE) == profile
        return
    image = Image.open(BytesIO(result))
    assert image.info["dpi"] == pytest.approx((300, 150), abs=0.5)
    assert image.info["icc_profile"] == profile


@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "CMYK"])
def test_written_files_keep_depth_and_transparency(mode: str, depth: int) -> None:
    """The merged image is blended with white, and its transparency is marked by a negative number of layers."""
    pixels = with_16_bits(photo((33, 21), mode)) if depth == 16 else photo((33, 21), mode)
    encode = next(step for step in _REGISTRY.plan([_REGISTRY.formats["png"]], "psd").steps if str(step.target) == "psd")

    data = encode(raster_of(pixels))

    document = PSDImage.open(BytesIO(data))
    array = (pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)).reshape(21, 33, -1)
    if mode == "LA":
        mode, array = "RGBA", array[..., [0, 0, 0, 1]]
    maximum = (1 << depth) - 1
    assert (document.depth, document.channels, len(document)) == (depth, len(mode), int(mode.endswith("A")))
    stored = PSDImage.open(BytesIO(data)).topil(apply_icc=False)
    if not mode.endswith("A"):
        ink = document.numpy("color").astype(float)
        np.testing.assert_allclose((1 - ink if mode == "CMYK" else ink) * maximum, array, atol=0.6)
        return
    assert stored is not None
    assert stored.mode == mode
    layer = document[0].numpy()
    assert layer is not None
    np.testing.assert_allclose(layer * maximum, array, atol=0.6)
    opaque = array[..., -1] > maximum // 2  # the other colors are imprecise in the merged image
    scaled = array * 255.0 / maximum
    np.testing.assert_allclose(np.asarray(stored)[opaque].astype(float), scaled[opaque], atol=2)
    np.testing.assert_allclose(np.asarray(stored)[..., -1].astype(float), scaled[..., -1], atol=1)
    found = decoded(data)
    np.testing.assert_allclose(found[opaque].astype(float), array[opaque], atol=1)


@pytest.mark.parametrize("kept", [0.0, 0.001, 0.003, 0.01, 0.02, 0.03, 0.05, 0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_refused(kept: float) -> None:
    resources = {psd_files.RESOLUTION: bytes(16), psd_files.XMP: b"x" * 31}
    data = build(planes(samples(4, 16)), RGB, layers=-2, resources=resources)

    with pytest.raises(CorruptInput):
        pipeline.run(_REGISTRY.plan([_PSD], "png"), [data[: int(len(data) * kept)]])


@pytest.mark.parametrize(
    ("offset", "field", "error"),
    [
        (4, b"\0\3", CorruptInput),  # version
        (12, b"\0\2", CorruptInput),  # fewer channels than colors
        (14, b"\0\0\0\0", CorruptInput),  # height
        (14, struct.pack(">II", 300_000, 300_000), TooLarge),
        (22, b"\0\7", CorruptInput),  # depth
        (24, b"\0\5", CorruptInput),  # color mode
        (26, b"\x7f\xff\xff\xff", CorruptInput),  # length of the palette
        (30, b"\x7f\xff\xff\xff", CorruptInput),  # length of the resources
        (34, b"\xff\xff\xff\xff", CorruptInput),  # length of the layers
        (38, b"\0\7", CorruptInput),  # compression
        (40, b"\xff\xff", CorruptInput),  # length of a row
    ],
)
def test_invalid_fields_are_refused(offset: int, field: bytes, error: type[ConversionError]) -> None:
    data = bytearray(build(planes(samples(3)), RGB))
    data[offset : offset + len(field)] = field

    with pytest.raises(error):
        pipeline.run(_REGISTRY.plan([_PSD], "png"), [bytes(data)])
