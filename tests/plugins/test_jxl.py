"""JPEG XL: samples, colors, timing and metadata, also as the tools of Debian's libjxl read and write them."""

import struct
import subprocess
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageCms

from engine import ConversionError, DeepPixels, Frame, HdrColors, ImageSource, Raster
from engine.registry import load_registry
from engine.verification import verify
from plugins._jxl import library
from plugins.formats import jxl
from tests.support.results.conversions import codes, convert, opened
from tests.support.results.readers import decode_jxl
from tests.support.samples.corpus import CORPUS
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.profiles import ink_profile, swapped_profile
from tests.support.samples.rasters import only, photo, raster_of, with_16_bits

_REGISTRY = load_registry()
_FILES = sorted((CORPUS.parent / "formats" / "jxl").glob("*.jxl"))


def _cjxl(data: bytes, folder: Path, *options: str, extension: str = "png") -> bytes:
    source, result = folder / f"in.{extension}", folder / "out.jxl"
    source.write_bytes(data)
    subprocess.run(["cjxl", source, result, *options], check=True, capture_output=True)
    return result.read_bytes()


def _samples(png: bytes) -> NDArray[np.int64]:
    return np.asarray(imagecodecs.png_decode(png)).astype(np.int64).squeeze()


@pytest.mark.parametrize("file", _FILES, ids=[file.name for file in _FILES])
def test_real_files_are_decoded_as_by_djxl(file: Path, tmp_path: Path) -> None:
    data = file.read_bytes()

    result = convert(data, "png", metadata="all")

    assert np.abs(_samples(result.data) - _samples(decode_jxl(data))).max() <= 1
    assert codes(result) == set()


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("bits", [8, 10, 12, 16])
def test_lossless_keeps_every_sample(mode: str, bits: int, tmp_path: Path) -> None:
    image = photo((9, 7), mode)
    pixels: Image.Image | DeepPixels = image
    if bits > 8:
        pixels = DeepPixels.from_bits(with_16_bits(image).to_bits(bits), bits, mode)
    raster = raster_of(pixels, source=ImageSource(bit_depth=bits))

    data = jxl.encode(raster, {"lossless": True})

    back = jxl.decode(data)
    expected = pixels.to_bits(bits) if isinstance(pixels, DeepPixels) else np.asarray(pixels)
    assert back.sample is not None
    read = only(back).pixels
    assert back.sample.pixels.mode == read.mode == mode
    assert np.array_equal(read.to_bits(bits) if isinstance(read, DeepPixels) else np.asarray(read), expected)
    assert not back.source.lossy
    assert back.source.bit_depth == (bits if bits > 8 else 16)
    if bits in (8, 16):
        assert np.array_equal(_samples(decode_jxl(data)), expected)


@pytest.mark.parametrize("width", [1, 2, 7, 9])
@pytest.mark.parametrize("height", [1, 3, 8])
def test_small_images_of_any_size(width: int, height: int) -> None:
    for mode in ("LA", "RGBA"):
        image = photo((width, height), mode)
        expected = np.asarray(image.convert("RGBA").convert("RGBa"), int)
        for lossless in (True, False):
            read = only(jxl.decode(jxl.encode(raster_of(image), {"lossless": lossless}))).image
            assert (read.size, read.mode) == (image.size, mode)
            seen = np.asarray(read.convert("RGBA").convert("RGBa"), int)
            assert np.abs(seen - expected).mean() <= (0 if lossless else 12)
            assert np.array_equal(np.asarray(read)[..., -1], np.asarray(image)[..., -1])  # alpha is always exact


def test_quality_and_effort_change_the_size() -> None:
    image = saved(photo((240, 160)), "PNG")

    sizes = [len(convert(image, "jxl", **options).data) for options in ({"quality": 30}, {}, {"quality": 95})]

    assert sizes == sorted(set(sizes))
    assert len(convert(image, "jxl", lossless=True, effort=9).data) < len(
        convert(image, "jxl", lossless=True, effort=1).data
    )
    limited = convert(image, "jxl", max_bytes=3000)
    assert len(limited.data) <= 3000
    assert limited.outcome.quality_used


def test_a_file_keeps_its_class_in_its_own_format() -> None:
    lossless = convert(saved(photo((60, 40)), "PNG"), "jxl", lossless=True).data

    again = convert(lossless, "jxl").data

    assert np.array_equal(np.asarray(only(jxl.decode(again)).image), np.asarray(photo((60, 40))))


def test_palettes_and_two_levels() -> None:
    palette = quadrants().quantize(4)
    for image in (palette, palette.convert("1")):
        back = convert(convert(saved(image, "PNG"), "jxl", lossless=True).data, "png").data
        assert np.array_equal(np.asarray(opened(back).convert("RGB")), np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("lossless", [True, False])
def test_profiles_are_kept_and_colors_stay_in_them(lossless: bool, tmp_path: Path) -> None:
    profile = swapped_profile()
    data = convert(saved(quadrants(), "PNG", icc_profile=profile), "jxl", lossless=lossless, quality=95).data

    back = only(jxl.decode(data))

    # The encoder writes what the profile says as numbers, if it needs to understand it.
    assert back.icc_profile == profile if lossless else back.icc_profile
    assert np.abs(np.asarray(back.image, int) - np.asarray(quadrants(), int)).mean() < 3
    assert opened(decode_jxl(data)).info["icc_profile"]


@pytest.mark.parametrize(
    "space",
    [
        "RGB_D65_DCI_Rel_SRG",
        "RGB_D65_SRG_Rel_Lin",
        "RGB_D65_202_Rel_709",
        "RGB_DCI_DCI_Rel_DCI",
        "RGB_D65_SRG_Rel_g0.5",
    ],
)
def test_colors_by_code_points_become_a_profile(space: str, tmp_path: Path) -> None:
    data = _cjxl(saved(quadrants(), "PNG"), tmp_path, "-d", "0", "-x", f"color_space={space}")

    result = convert(data, "jpeg", quality=100, subsampling="4:4:4")

    with Image.open(BytesIO(decode_jxl(data))) as image:
        assert image.info["icc_profile"]
        expected = ImageCms.profileToProfile(
            image.convert("RGB"),
            ImageCms.ImageCmsProfile(BytesIO(image.info["icc_profile"])),
            ImageCms.createProfile("sRGB"),
        )
    read = opened(result.data)
    shown = ImageCms.profileToProfile(
        read, ImageCms.ImageCmsProfile(BytesIO(read.info["icc_profile"])), ImageCms.createProfile("sRGB")
    )
    assert expected is not None
    assert shown is not None
    assert np.abs(np.asarray(expected, int) - np.asarray(shown, int)).max() < 12


@pytest.mark.parametrize("transfer", [16, 18])
@pytest.mark.parametrize("primaries", [1, 9, 12])
def test_hdr_is_kept(transfer: int, primaries: int, tmp_path: Path) -> None:
    pixels = with_16_bits(photo((40, 30)))
    colors = HdrColors(primaries, transfer, (800.0, 200.0))
    data = jxl.encode(raster_of(pixels, hdr=colors), {"lossless": True})

    back = jxl.decode(data)

    assert back.hdr is not None
    assert (back.hdr.primaries, back.hdr.transfer, back.hdr.peak) == (primaries, transfer, 800)
    assert np.array_equal(only(back).pixels.to_bits(16), pixels.array)  # type: ignore[union-attr]
    assert codes(convert(data, "png")) == set()
    assert codes(convert(data, "webp")) == {"hdr_reduced", "depth_reduced"}
    (tmp_path / "in.jxl").write_bytes(data)
    told = subprocess.run(["jxlinfo", "-v", tmp_path / "in.jxl"], capture_output=True, text=True, check=True)
    assert ("PQ" if transfer == 16 else "HLG") in told.stdout


def test_inks_are_kept_without_loss() -> None:
    profile = ink_profile()
    image = photo((40, 30)).convert("CMYK")
    source = saved(image, "TIFF", icc_profile=profile)

    kept, converted = convert(source, "jxl", lossless=True), convert(source, "jxl")

    back = only(jxl.decode(kept.data))
    assert (back.image.mode, back.icc_profile) == ("CMYK", profile)
    assert np.array_equal(np.asarray(back.image), np.asarray(image))
    assert (codes(kept), codes(converted)) == (set(), {"color_converted"})
    assert only(jxl.decode(converted.data)).image.mode == "RGB"
    without = convert(saved(image, "TIFF"), "jxl", lossless=True)
    assert codes(without) == {"color_converted"}
    assert only(jxl.decode(without.data)).image.mode == "RGB"


def test_floats_are_reduced_to_16_bits(tmp_path: Path) -> None:
    samples = np.linspace(0, 1, 30 * 20 * 3, dtype="<f4").reshape(20, 30, 3)
    pfm = b"PF\n30 20\n-1.0\n" + samples[::-1].tobytes()
    data = _cjxl(pfm, tmp_path, "-d", "0", extension="pfm")

    result = convert(data, "png")

    assert codes(result) == {"depth_reduced"}
    assert np.abs(_samples(result.data) - samples * 65535).max() <= 1


@pytest.mark.parametrize(("name", "fits"), [("0.11.2", True), ("0.12.0", False), ("0.8.2", False)])
def test_only_known_versions_of_the_library_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, *, fits: bool
) -> None:
    file = tmp_path / "imagecodecs.libs" / f"libjxl-0a1b.so.{name}"
    for path in (tmp_path / "imagecodecs" / "__init__.py", file, file.with_name(f"libjxl_cms-0a1b.so.{name}")):
        path.parent.mkdir(exist_ok=True)
        path.touch()
    spec = ModuleSpec("imagecodecs", None)
    spec.submodule_search_locations = [str(tmp_path / "imagecodecs")]
    monkeypatch.setattr(library, "find_spec", {"imagecodecs": spec}.get)

    assert library.find() == (file if fits else None)


@pytest.mark.parametrize(("kind", "bands"), [("PF", 3), ("Pf", 1)])
def test_floats_above_white_are_linear_light(tmp_path: Path, kind: str, bands: int) -> None:
    light = np.linspace(0, 7, 30 * 20 * bands, dtype="<f4").reshape(20, 30, bands)
    pfm = f"{kind}\n30 20\n-1.0\n".encode() + light[::-1].tobytes()
    data = _cjxl(pfm, tmp_path, "-d", "0", extension="pfm")

    kept = convert(data, "pfm")

    assert codes(kept) == set()
    np.testing.assert_allclose(np.frombuffer(kept.data[-4 * light.size :], "<f4"), light[::-1].ravel(), atol=1e-5)
    assert codes(convert(data, "png")) == {"tone_mapped"}


@pytest.mark.parametrize("loop", [0, 1, 5])
def test_animations_keep_frames_timing_and_loops(loop: int, tmp_path: Path) -> None:
    frames = [photo((30, 20), "RGBA").rotate(90 * index) for index in range(4)]
    times = [30, 170, 40, 1000]
    source = saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=times, loop=loop, lossless=True)

    data = convert(source, "jxl", lossless=True).data

    back = jxl.decode(data)
    assert (back.count, back.animated, back.loop_count) == (4, True, loop)
    for frame, drawn, duration in zip(back.frames, frames, times, strict=True):
        assert frame.duration == duration
        assert np.array_equal(np.asarray(frame.image)[..., 3], np.asarray(drawn)[..., 3])
    animation = opened(decode_jxl(data, "apng"))
    assert animation.n_frames == 4  # type: ignore[attr-defined]
    again = opened(convert(data, "webp").data)
    assert (again.n_frames, again.info["loop"]) == (4, loop)  # type: ignore[attr-defined]


def test_selected_frames_of_an_animation() -> None:
    frames = [Image.new("RGB", (20, 10), (60 * index, 0, 0)) for index in range(4)]
    source = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    data = convert(source, "jxl", lossless=True).data

    (second,) = jxl.decode(data, {"pages": "2"}).frames
    third, fourth = jxl.decode(data, {"pages": "3-4"}).frames

    assert [frame.image.getpixel((0, 0)) for frame in (second, third, fourth)] == [(60, 0, 0), (120, 0, 0), (180, 0, 0)]
    assert codes(convert(data, "jpeg")) == {"frames_dropped"}
    with pytest.raises(ConversionError) as refused:
        convert(data, "png", pages="5")
    assert refused.value.details["page_count"] == 4


def test_frames_of_different_modes_and_without_duration() -> None:
    raster = raster_of(photo((9, 9), "L"), photo((9, 9), "RGBA"), animated=True)
    raster.frames = [Frame(frame.pixels, None, 0.0) for frame in raster.frames]

    back = jxl.decode(jxl.encode(raster, {"lossless": True}))

    assert [frame.image.mode for frame in back.frames] == ["RGBA", "RGBA"]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientation_is_applied_and_reset(orientation: int, tmp_path: Path) -> None:
    tags = Image.Exif()
    tags[0x0112], tags[0x010F] = orientation, "Maker"
    jpeg = saved(photo((48, 32)), "JPEG", exif=tags, quality=95)
    data = _cjxl(jpeg, tmp_path, extension="jpg")

    result = convert(data, "png", metadata="all")

    assert np.abs(_samples(result.data) - _samples(decode_jxl(data))).max() <= 1
    assert jxl.decode(data).source.turned == (orientation > 1)
    read = opened(result.data).getexif()
    assert (read.get(0x0112, 1), read[0x010F]) == (1, "Maker")


def test_metadata_is_written_and_read(tmp_path: Path) -> None:
    tags = Image.Exif()
    tags[0x010F], tags.get_ifd(0x8825)[1] = "Maker", "N"
    source = saved(quadrants(), "PNG", exif=tags)

    kept, safe = convert(source, "jxl", metadata="all"), convert(source, "jxl")

    (tmp_path / "in.jxl").write_bytes(kept.data)
    told = subprocess.run(
        ["exiftool", "-G", "-Make", "-GPSLatitudeRef", tmp_path / "in.jxl"], capture_output=True, text=True, check=True
    )
    assert "Maker" in told.stdout
    assert "North" in told.stdout
    assert opened(convert(kept.data, "png", metadata="all").data).getexif()[0x010F] == "Maker"
    assert "location_removed" in codes(safe)
    assert not opened(convert(safe.data, "png", metadata="all").data).getexif().get_ifd(0x8825)


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def _container(data: bytes, *boxes: bytes) -> bytes:
    return _box(b"JXL ", b"\r\n\x87\n") + _box(b"ftyp", b"jxl \0\0\0\0jxl ") + b"".join(boxes) + _box(b"jxlc", data)


_CODESTREAM = jxl.encode(Raster([Frame(photo((200, 150)))]), {"lossless": True}).partition(b"jxlc")[2]
_BROKEN: dict[str, Callable[[], bytes]] = {
    "signature": lambda: _CODESTREAM[:2],
    "truncated": lambda: _CODESTREAM[: len(_CODESTREAM) // 2],
    "last byte": lambda: _CODESTREAM[:-1],
    "truncated container": lambda: _container(_CODESTREAM)[:-500],
    "no codestream": lambda: _container(b"")[:-8],
    "empty codestream": lambda: _container(b""),
    "header": lambda: _CODESTREAM[:4] + bytes(len(_CODESTREAM) - 4),
    "body": lambda: _CODESTREAM[:200] + bytes(len(_CODESTREAM) - 200),
    "size of a box": lambda: _container(_CODESTREAM, struct.pack(">I4s", 0xFFFFFFF0, b"Exif")),
}


def test_compressed_metadata_is_read() -> None:
    tags = Image.Exif()
    tags[0x010F] = "Maker" * 50
    exif = b"Exif" + imagecodecs.brotli_encode(bytes(4) + tags.tobytes().removeprefix(b"Exif\0\0"))

    result = convert(_container(_CODESTREAM, _box(b"brob", exif)), "png", metadata="all")

    assert opened(result.data).getexif()[0x010F] == "Maker" * 50


def test_metadata_that_is_too_large_is_refused() -> None:
    bomb = b"xml " + imagecodecs.brotli_encode(bytes(200 << 20), level=1)

    with pytest.raises(ConversionError) as refused:
        convert(_container(_CODESTREAM, _box(b"brob", bomb)), "png")

    assert (refused.value.code, refused.value.reason) == ("file_too_large", "bytes")


@pytest.mark.parametrize("name", _BROKEN)
@pytest.mark.parametrize("target", ["png", "jpeg"])
def test_broken_files_are_refused(name: str, target: str) -> None:
    with pytest.raises(ConversionError) as refused:
        convert(_BROKEN[name](), target)

    assert refused.value.reason == "corrupt_input"


def test_too_many_pixels_are_refused_before_decoding() -> None:
    # A size header of 2 ** 18 x 2 ** 18 pixels, in the order of bits of the format: no multiple of 8, 18 bits, ratio 1.
    side = (1 << 18) - 1
    bits = 0 | 2 << 1 | side << 3 | 1 << 21 | 1 << 24 | 1 << 25
    data = b"\xff\x0a" + bits.to_bytes(8, "little")

    with pytest.raises(ConversionError) as refused:
        convert(data, "png")

    assert refused.value.reason == "pixels"


def test_a_truncated_result_is_refused() -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], "jxl")
    result = convert(saved(quadrants(), "PNG"), "jxl")
    verify(_REGISTRY, plan, result.file)

    assert jxl.JXL.is_complete is not None
    assert not jxl.JXL.is_complete(_container(_CODESTREAM)[:-1])
