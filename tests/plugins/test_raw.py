"""Camera RAW: brightness next to the camera's own image, film scans, and images that are larger than decoded."""

import struct
from io import BytesIO
from typing import Any

import numpy as np
import pytest
import rawpy
import tifffile
from imagecodecs import png_decode
from numpy.typing import NDArray
from PIL import Image, ImageOps

from engine import ConversionError, pipeline
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.generated import saved
from tests.support.samples.rasters import photo
from tests.support.samples.raw_parts import Shot, preview_jpeg
from tests.support.samples.raw_samples import raw_sample

_REGISTRY = load_registry()
_SHOT = Shot(420, 300, 1)
_RGB: NDArray[np.uint8] = np.asarray(photo((320, 240)))


def _converted(data: bytes, target: str = "png", source: str = "") -> Image.Image:
    found = _REGISTRY.identify_content(data)
    assert not source or found.name == source
    return Image.open(BytesIO(bytes(pipeline.run(_REGISTRY.plan([found], target), [data], {}).data)))


def _developed(data: bytes) -> NDArray[np.uint8]:
    with rawpy.imread(BytesIO(data)) as raw:
        return raw.postprocess(use_camera_wb=True)


def _brightness(image: Image.Image) -> float:
    return float(np.asarray(image.convert("L")).mean())


def _with_preview(exponent: float, *, bars: int = 0) -> tuple[bytes, Image.Image]:
    """A DNG whose preview is the scene to a power, with black bars above and below, and the preview without them."""
    data = raw_sample("dng", width=_SHOT.width, height=_SHOT.height)
    stored = preview_jpeg(_SHOT)
    scene = Image.open(BytesIO(stored)).convert("RGB")
    changed = scene.point([round(255 * (value / 255) ** exponent) for value in range(256)] * 3).resize((126, 90))
    framed = Image.new("RGB", (changed.width, changed.height + 2 * bars))
    framed.paste(changed, (0, bars))
    preview = saved(framed, "JPEG", quality=50)
    assert data.count(stored) == 1
    assert len(preview) <= len(stored)
    return data.replace(stored, preview.ljust(len(stored), b"\0")), changed


@pytest.mark.parametrize("exponent", [0.85, 1.0])
@pytest.mark.parametrize("target", ["png", "jpeg"])
def test_a_image_is_no_brighter_than_the_cameras(exponent: float, target: str) -> None:
    data, preview = _with_preview(exponent)

    result = _converted(data, target, "dng")

    assert _brightness(Image.fromarray(_developed(data))) / _brightness(preview) > 1.11
    assert _brightness(result) == pytest.approx(_brightness(preview), rel=0.05)


def test_a_bright_preview_clips_no_highlights() -> None:
    data, preview = _with_preview(0.2)

    result, developed = np.asarray(_converted(data)), _developed(data)

    assert _brightness(preview) > 1.2 * _brightness(Image.fromarray(developed))
    assert (result.max(axis=2) == 255).mean() < (developed.max(axis=2) == 255).mean() + 0.01


@pytest.mark.parametrize("entry", [entry for entry in load_corpus() if entry.name.startswith("raw/")], ids=str)
def test_real_images_are_as_bright_as_the_cameras(entry: Entry) -> None:
    data = entry.path.read_bytes()
    with rawpy.imread(BytesIO(data)) as raw:
        try:
            stored = raw.extract_thumb().data
        except rawpy.LibRawNoThumbnailError:
            return
    preview = Image.open(BytesIO(stored)) if isinstance(stored, bytes) else Image.fromarray(stored)
    result = _converted(data, "bmp")
    without_bars = ImageOps.fit(preview, (preview.width, round(preview.width * result.height / result.width)))

    assert min(preview.size) < 64 or _brightness(result) == pytest.approx(_brightness(without_bars), rel=0.15)


def test_black_bars_of_a_preview_do_not_count() -> None:
    data = raw_sample("dng", width=_SHOT.width, height=_SHOT.height)
    mean = _brightness(Image.fromarray(_developed(data)))
    exponent = min(np.arange(0.5, 1.5, 0.05), key=lambda power: abs(_brightness(_with_preview(power)[1]) - mean))

    framed, _ = _with_preview(exponent, bars=10)

    np.testing.assert_array_equal(np.asarray(_converted(framed)), _developed(framed))


def test_a_damaged_preview_is_ignored() -> None:
    data = raw_sample("dng", width=_SHOT.width, height=_SHOT.height)
    stored = preview_jpeg(_SHOT)
    damaged = data.replace(stored, stored[:300].ljust(len(stored), b"\0"))

    np.testing.assert_array_equal(np.asarray(_converted(damaged)), _developed(damaged))


def _scan(bits: int, *, linear: bool, byteorder: str) -> bytes:
    """The file of a film scanner: a thumbnail, and the image in a sub-directory."""
    encoded = _RGB / 255
    samples = np.where(encoded < 0.081, encoded / 4.5, ((encoded + 0.099) / 1.099) ** (1 / 0.45)) if linear else encoded
    stored = np.rint(samples * ((1 << bits) - 1)).astype(np.uint8 if bits == 8 else np.uint16)
    camera: list[Any] = [(271, 2, 0, "Nikon", True), (272, 2, 0, "Nikon SUPER COOLSCAN 5000 ED", True)]
    file = BytesIO()
    with tifffile.TiffWriter(file, byteorder="<" if byteorder == "<" else ">") as writer:
        thumbnail = np.ascontiguousarray(_RGB[::4, ::4])
        common: dict[str, Any] = {"photometric": "rgb", "metadata": None}
        writer.write(thumbnail, subfiletype=1, subifds=1, extratags=camera, software="Nikon Scan 4.0.2", **common)
        writer.write(stored, subfiletype=0, **common)
    return file.getvalue()


@pytest.mark.parametrize("byteorder", ["<", ">"])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("bits", [8, 16])
def test_a_film_scan_is_developed_in_full(bits: int, linear: bool, byteorder: str) -> None:
    data = _scan(bits, linear=linear, byteorder=byteorder)

    for target in ("png", "jpeg", "tiff"):
        result = _converted(data, target, "nef")
        assert result.size == (320, 240)
        assert np.abs(np.asarray(result.convert("RGB"), float) - _RGB).mean() < (4 if target == "jpeg" else 1)


def test_a_image_that_is_larger_than_decoded_is_refused() -> None:
    data = raw_sample("dng", width=168, height=120)
    (first,) = struct.unpack_from("<I", data, 4)
    (count,) = struct.unpack_from("<H", data, first)
    larger = struct.pack("<HHHIHHHHIHHI", 2, 256, 3, 1, 4000, 0, 257, 3, 1, 3000, 0, 0)
    end = first + 2 + 12 * count
    data = data[:end] + struct.pack("<I", len(data)) + data[end + 4 :] + larger

    with pytest.raises(ConversionError):
        _converted(data, source="dng")


@pytest.mark.parametrize("camera", ["dng", "cr2"])
def test_every_depth_is_a_development(camera: str) -> None:
    data = raw_sample(camera)

    for target in ("jpeg", "webp", "avif", "heic", "bmp", "pdf"):
        assert codes(convert(data, target, metadata="none")) == set()
    for target in ("png", "tiff"):
        for options, expected in (({}, np.uint16), ({"bit_depth": 16}, np.uint16), ({"bit_depth": 8}, np.uint8)):
            result = convert(data, target, **options)
            seen = png_decode(result.data) if target == "png" else tifffile.imread(BytesIO(result.data))
            assert not codes(result)
            assert seen.dtype == expected


def test_a_film_scan_of_16_bits_is_reduced_with_a_warning() -> None:
    assert codes(convert(_scan(16, linear=False, byteorder="<"), "jpeg")) == {"depth_reduced"}
