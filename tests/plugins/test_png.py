"""PNG: colors by cICP, gAMA and cHRM, as Chromium shows them, and palettes: dithering, quality and size."""

import struct
import zlib
from io import BytesIO
from itertools import cycle
from typing import Any, TypeAlias

import imagecodecs
import numpy as np
import pytest
import pyvips
from PIL import Image, ImageCms, ImageDraw, ImageSequence

from engine import InvalidOption
from engine.errors import ConversionError
from engine.registry import load_registry
from plugins._pixels.png_chunks import SIGNATURE, chunk, read_chunks
from tests.support.browser import Screenshots
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.generated import saved
from tests.support.samples.profiles import srgb_profile, swapped_profile
from tests.support.samples.rasters import photo

Chunk: TypeAlias = tuple[bytes, bytes]
_REGISTRY = load_registry()
_HEADER_END = 33
_SRGB, _P3 = (0.64, 0.33, 0.3, 0.6, 0.15, 0.06), (0.68, 0.32, 0.265, 0.69, 0.15, 0.06)
_ADOBE = (0.64, 0.33, 0.21, 0.71, 0.15, 0.06)
_SMPTE_428, _HLG, _PQ = 17, 18, 16
_PHOTO = saved(photo((320, 240)), "PNG")


def _cicp(primaries: int, transfer: int, matrix: int = 0) -> Chunk:
    return b"cICP", bytes((primaries, transfer, matrix, 1))


def _gama(value: int) -> Chunk:
    return b"gAMA", struct.pack(">I", value)


def _chrm(*colors: float) -> Chunk:
    return b"cHRM", struct.pack(">8I", *(round(100_000 * value) for value in (0.3127, 0.329, *colors)))


def _clli(peak: int) -> Chunk:
    return b"cLLI", struct.pack(">II", 10_000 * peak, 10_000 * peak // 4)


def _iccp() -> Chunk:
    return b"iCCP", b"ICC\0\0" + zlib.compress(swapped_profile())


def _png(image: Image.Image, *chunks: Chunk, bits: int = 8) -> bytes:
    """A PNG with these chunks after its header."""
    data = saved(image, "PNG") if bits == 8 else imagecodecs.png_encode(np.asarray(image).astype(np.uint16) * 257)
    added = (
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )
    return b"".join([data[:_HEADER_END], *added, data[_HEADER_END:]])


def _convert(data: bytes, target: str, **options: Any) -> tuple[bytes, set[str]]:
    result = convert(data, target, **options)
    return result.data, codes(result)


_DESCRIPTIONS: dict[str, list[Chunk]] = {
    "PQ": [_cicp(9, _PQ)],
    "PQ of 4000 cd/m²": [_cicp(9, _PQ), _clli(4000)],
    "PQ of a screen of 400 cd/m²": [_cicp(12, _PQ), (b"mDCV", struct.pack(">8H2I", *[0] * 8, 4_000_000, 50))],
    "HLG": [_cicp(9, _HLG)],
    "Display P3": [_cicp(12, 13)],
    "BT.709": [_cicp(1, 1)],
    "BT.2020": [_cicp(9, 14)],
    "DCI P3": [_cicp(11, _SMPTE_428)],
    "BT.470 M": [_cicp(4, 4)],
    "SMPTE 240M": [_cicp(7, 7)],
    "linear": [_gama(100_000)],
    "gamma 1.8": [_gama(55_556)],
    "Adobe RGB": [_gama(45_455), _chrm(*_ADOBE)],
    "P3 without gamma": [_chrm(*_P3)],
    "invalid": [_gama(70_000), (b"cHRM", bytes(32))],
    "cICP before gAMA": [_cicp(12, 13), _gama(100_000)],
    "cICP before iCCP": [_cicp(12, 13), _iccp()],
    "iCCP before gAMA": [_iccp(), _gama(100_000)],
    "sRGB before gAMA": [(b"sRGB", b"\0"), _gama(100_000)],
    "unknown code points before gAMA": [_cicp(3, 13), _gama(100_000)],
}


_HDR = [_cicp(9, _PQ), _cicp(12, _PQ), _cicp(9, _HLG)]


_KINDS = [("RGBA", 8), ("L", 8), ("LA", 8), ("P", 8), ("RGB", 16), ("L", 16)]


def test_colors_are_those_of_a_browser(screenshots: Screenshots) -> None:
    cases, files = [], []
    for (name, chunks), kind in zip(_DESCRIPTIONS.items(), cycle(_KINDS)):
        for mode, bits in (("RGB", 8), kind):
            data = _png(photo((120, 80), mode), *chunks, bits=bits)
            (bmp, codes), (png, _) = (_convert(data, target) for target in ("bmp", "png"))
            assert ("hdr_reduced" in codes) == any(chunk in chunks for chunk in _HDR), name
            cases.append((name, mode, bits))
            files += [data, bmp, png]

    shown = screenshots(*files)

    for case, expected, *seen in zip(cases, shown[::3], shown[1::3], shown[2::3], strict=True):
        for difference in (np.abs(image - expected) for image in seen):
            assert difference.mean() < 0.6, case


def test_colors_beyond_srgb_are_kept_where_the_target_holds_a_profile() -> None:
    data = _png(photo(), _cicp(12, 13))

    for target in ("jpeg", "png", "webp", "avif", "tiff"):
        profile = Image.open(BytesIO(_convert(data, target, rotate=90)[0])).info["icc_profile"]
        space = ImageCms.ImageCmsProfile(BytesIO(profile)).profile
        assert space.red_colorant
        assert space.green_colorant
        assert space.red_colorant[0] == pytest.approx((0.51512, 0.24120, -0.00105), abs=0.001)  # as Apple's
        assert space.green_colorant[0] == pytest.approx((0.29198, 0.69225, 0.04189), abs=0.001)


def test_descriptions_of_srgb_change_nothing() -> None:
    image = photo()
    for chunks in ([_gama(45_455)], [_gama(45_455), _chrm(*_SRGB)], [_gama(45_000), _chrm(*_SRGB)], [_cicp(1, 13)]):
        result, codes = _convert(_png(image, *chunks), "tiff")

        seen = Image.open(BytesIO(result))
        assert "icc_profile" not in seen.info
        np.testing.assert_array_equal(np.asarray(seen), np.asarray(image))
        assert not codes


def test_alpha_of_hdr_is_kept() -> None:
    image = photo(mode="RGBA")

    result, _ = _convert(_png(image, _cicp(9, _PQ)), "tiff")

    np.testing.assert_array_equal(np.asarray(Image.open(BytesIO(result)))[..., 3], np.asarray(image)[..., 3])


def test_chunks_of_a_wrong_size_are_ignored() -> None:
    expected = _convert(_png(photo()), "bmp")

    assert _convert(_png(photo(), (b"cICP", b"\x0c\x0d")), "bmp") == expected
    assert _convert(_png(photo(), (b"cLLI", b"\1"), (b"mDCV", b"\1")), "bmp") == expected


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
@pytest.mark.parametrize("size", [(1, 1), (3, 2), (5, 9), (33, 17)])
def test_interlaced_pngs_have_the_same_pixels(mode: str, size: tuple[int, int]) -> None:
    image = photo((64, 64)).crop((20, 20, 20 + size[0], 20 + size[1]))
    image = image.quantize(13) if mode == "P" else image.convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(128)
    data = saved(image, "PNG")

    result = convert(data, "png", progressive=True).data

    assert result[28] == 1  # interlaced
    np.testing.assert_array_equal(imagecodecs.png_decode(result), imagecodecs.png_decode(data))


@pytest.mark.parametrize(
    ("colors", "mode", "reduced", "bits"),
    [
        (177, "RGB", "P", 8),
        (16, "RGB", "P", 4),
        (200, "RGBA", "P", 8),
        (256, "L", "L", 8),
        (2, "L", "1", 1),
    ],
)
def test_pixels_are_stored_in_as_few_bytes_as_they_need(colors: int, mode: str, reduced: str, bits: int) -> None:
    numbers = np.random.default_rng(1).integers(colors, size=64 * 64)
    numbers[:colors] = range(colors)
    samples = np.stack([numbers * 255 // (colors - 1), numbers * 3 % 256, 255 - numbers, numbers % 5 * 60], -1)
    image = Image.fromarray(samples.astype(np.uint8).reshape(64, 64, 4)[..., : len(mode)].squeeze(), mode)

    result = convert(saved(image, "TIFF"), "png").data

    assert (opened(result).mode, result[24]) == (reduced, bits)
    np.testing.assert_array_equal(np.asarray(opened(result).convert(mode)), np.asarray(image))
    assert len(result) < len(saved(image, "PNG"))


@pytest.mark.parametrize("has_profile", [False, True])
def test_gray_and_opaque_images_are_stored_as_such(has_profile: bool) -> None:
    gray = photo((200, 150), "L")
    profile = srgb_profile() if has_profile else None
    result = convert(saved(gray.convert("RGBA"), "TIFF", icc_profile=profile), "png")

    assert codes(result) == set()
    assert opened(result.data).mode == ("RGB" if has_profile else "L")  # a profile of colors does not fit gray
    np.testing.assert_array_equal(np.asarray(opened(result.data).convert("L")), np.asarray(gray))


def _difference(data: bytes, other: bytes = _PHOTO) -> float:
    arrays = [np.asarray(opened(each).convert("RGB"), float) for each in (data, other)]
    return float(np.sqrt(((arrays[0] - arrays[1]) ** 2).mean()))


def _colors(data: bytes) -> int:
    return len(opened(data).convert("RGBA").getcolors(1 << 20) or ())


@pytest.mark.parametrize(("colors", "bits"), [(2, 1), (3, 2), (16, 4), (17, 8), (256, 8)])
def test_there_are_no_more_colors(colors: int, bits: int) -> None:
    result = convert(_PHOTO, "png", colors=colors)

    assert _colors(result.data) <= colors
    assert result.data[24:26] == bytes((bits, 3))  # depth, and the color type of palettes
    assert not codes(result)


def test_more_colors_are_nearer_and_a_palette_is_smaller() -> None:
    whole = convert(_PHOTO, "png", effort=9)
    results = [convert(_PHOTO, "png", colors=colors) for colors in (8, 64, 256)]

    assert _difference(results[0].data) > _difference(results[1].data) > _difference(results[2].data)
    assert len(results[2].data) < 0.5 * len(whole.data)
    by_vips = pyvips.Image.new_from_buffer(_PHOTO, "").pngsave_buffer(palette=True, Q=100, effort=7)
    assert len(convert(_PHOTO, "png", palette=True, dither=1, effort=9).data) < 1.05 * len(by_vips)
    assert _difference(results[2].data) < 1.1 * _difference(by_vips)


def test_dithering_keeps_the_mean_and_costs_bytes() -> None:
    flat, dithered = (convert(_PHOTO, "png", colors=8, dither=dither) for dither in (0, 1.0))

    def blurred(data: bytes) -> bytes:
        return saved(opened(data).convert("RGB").reduce(8), "PNG")

    assert len(flat.data) < len(dithered.data)
    assert _difference(blurred(dithered.data), blurred(_PHOTO)) < _difference(blurred(flat.data), blurred(_PHOTO))


def test_the_quality_decides_how_many_colors_there_are() -> None:
    x, y = np.meshgrid(np.linspace(0, 255, 320), np.linspace(0, 255, 240))
    smooth = saved(Image.fromarray(np.dstack([x, y, x]).astype(np.uint8)), "PNG")

    counts = [_colors(convert(smooth, "png", palette=True, quality=quality).data) for quality in (1, 20, 100)]

    assert counts[0] < counts[1] < counts[2] <= 256


@pytest.mark.parametrize("mode", ["RGB", "L", "1", "P", "RGBA"])
def test_few_colors_stay_exact(mode: str) -> None:
    image = Image.new("RGBA", (40, 30), (10, 20, 30, 255))
    image.paste((200, 100, 50, 128), (5, 5, 20, 20))
    image.paste((255, 255, 255, 255), (25, 5, 35, 20))
    data = saved(image if mode == "RGBA" else image.convert("RGB").convert(mode), "PNG")

    result = convert(data, "png", palette=True)

    original = opened(result.data)
    assert original.mode in ("P", "1")
    np.testing.assert_array_equal(np.asarray(original.convert("RGBA")), np.asarray(opened(data).convert("RGBA")))


def test_transparency_stays() -> None:
    data = saved(photo((320, 240), "RGBA"), "PNG")

    result = convert(data, "png", colors=64)

    alpha, before = (np.asarray(opened(each).convert("RGBA"))[..., 3].astype(int) for each in (result.data, data))
    assert np.abs(alpha - before).mean() < 2
    assert _colors(result.data) <= 64


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [{}, {"bit_depth": 8}])
def test_the_transparent_color_of_16_bits_is_compared_as_such(mode: str, options: dict[str, Any]) -> None:
    samples = np.full((1, 3, len(mode)), 0x1234, np.uint16)
    samples[0, 1:] += np.array([[1], [0x4000]], np.uint16)  # differ from it in the low and in the high byte
    stored = bytes(imagecodecs.png_encode(samples if mode == "RGB" else samples[..., 0]))
    key = b"\x12\x34" * len(mode)
    chunk = struct.pack(">I", len(key)) + b"tRNS" + key + struct.pack(">I", zlib.crc32(b"tRNS" + key))
    data = stored[:_HEADER_END] + chunk + stored[_HEADER_END:]

    for target in ("png", "webp", "tga"):
        shown, _ = _convert(data, target, **({"lossless": True} if target == "webp" else options))
        alpha = Image.open(BytesIO(shown)).convert("RGBA").getchannel("A")
        assert list(alpha.tobytes()) == [0, 255, 255]
    _, told = _convert(data, "jpeg", background="#00ff00")
    assert "alpha_flattened" in told


def test_the_profile_and_the_resolution_stay() -> None:
    data = saved(photo((64, 64)), "PNG", icc_profile=swapped_profile(), dpi=(200, 200))

    image = opened(convert(data, "png", colors=16).data)

    assert image.info["icc_profile"] == swapped_profile()
    assert image.info["dpi"] == pytest.approx((200, 200), abs=0.1)


def test_sixteen_bits_become_eight_and_cannot_be_requested() -> None:
    wide = pyvips.Image.new_from_buffer(_PHOTO, "").cast("ushort").linear(257, 0).cast("ushort")
    data = wide.copy(interpretation="rgb16").pngsave_buffer()

    assert codes(convert(data, "png", palette=True)) == {"depth_reduced"}
    with pytest.raises(InvalidOption) as caught:
        convert(data, "png", palette=True, bit_depth=16)
    assert caught.value.param == "bit_depth"


def test_a_size_is_reached_by_the_quality() -> None:
    x, y = np.meshgrid(np.linspace(0, 255, 120), np.linspace(0, 255, 80))
    smooth = saved(Image.fromarray(np.dstack([x, y, x]).astype(np.uint8)), "PNG")
    full = convert(smooth, "png", palette=True)
    limit = len(full.data) * 9 // 10

    limited = convert(smooth, "png", palette=True, max_bytes=limit)

    assert len(limited.data) <= limit
    assert limited.outcome.quality_used is not None
    with pytest.raises(ConversionError) as caught:
        convert(saved(photo((120, 80)), "PNG"), "png", palette=True, max_bytes=1000)
    assert caught.value.reason == "target_unreachable"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"quality": 50}, {"quality_ignored"}),
        ({"dither": 0.5}, {"option_ignored"}),
        ({"max_bytes": 1000, "effort": 9}, {"option_ignored"}),
        ({"palette": True, "quality": 50, "dither": 0.5}, set()),
        ({"colors": 5, "dither": 0.5}, set()),
    ],
)
def test_options_without_a_palette_are_told(options: dict[str, Any], told: set[str]) -> None:
    assert codes(convert(_PHOTO, "png", width=100, **options)) == told


def _lines(colors: int) -> bytes:
    """A drawing with a palette of some colors, which has many more when it is resized."""
    image = Image.new("RGB", (320, 240), "white")
    draw = ImageDraw.Draw(image)
    for index in range(colors - 1):
        draw.line((0, 7 * index, 320, 240 - 5 * index), (index * 211 % 256, index * 97 % 256, index * 31 % 256), 5)
    return saved(image.convert("P", palette=Image.Palette.ADAPTIVE, colors=colors), "PNG")


def test_an_image_with_a_palette_gets_one_again_if_its_colors_hardly_change() -> None:
    drawing = _lines(4)
    plain = convert(drawing, "png", width=160, palette=False)
    assert opened(plain.data).mode == "RGB"
    assert codes(plain) == set()
    assert _colors(plain.data) > 256

    result = convert(drawing, "png", width=160)
    image = opened(result.data)
    assert image.mode == "P"
    assert codes(result) == {"colors_reduced"}
    assert len(result.data) < 0.7 * len(plain.data)
    assert _difference(result.data, plain.data) < 1

    dithered = opened(_PHOTO).quantize(64)
    assert opened(convert(saved(dithered, "PNG"), "png", width=160).data).mode == "RGB"


def test_frames_of_an_animation_share_a_palette() -> None:
    frames = [photo((64, 48)).rotate(90 * index).convert("RGBA") for index in range(4)]
    for frame in frames:
        frame.paste((0, 0, 0, 0), (0, 0, 20, 20))
    data = saved(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50)
    exact = convert(data, "png", palette=False)

    result = convert(data, "png", colors=32)

    assert len(result.data) < 0.4 * len(exact.data)
    with opened(result.data) as image:
        assert (image.mode, image.n_frames) == ("P", 4)  # type: ignore[attr-defined]
        shown = [one.convert("RGBA") for one in ImageSequence.Iterator(image)]
    assert len({color for one in shown for _, color in one.getcolors(1 << 20) or ()}) <= 32
    for one, frame in zip(shown, frames, strict=True):
        visible, original = (np.asarray(each.convert("RGBa"), int) for each in (one, frame))
        assert np.abs(visible - original).mean() < 12
    assert convert(data, "png", colors=32, dither=1).data != result.data
    limit = len(exact.data) // 2
    assert len(convert(data, "png", palette=True, max_bytes=limit).data) <= limit
    assert codes(convert(data, "png", progressive=True)) == {"option_ignored"}


def test_an_animation_of_few_colors_has_a_palette_and_its_exact_colors() -> None:
    frames = [Image.new("RGBA", (40, 30), (60 * index, 0, 200, 60 * index)) for index in range(5)]
    for index, frame in enumerate(frames):
        frame.paste((255, 255, 0, 255), (index, index, index + 10, index + 10))

    result = convert(saved(frames[0], "PNG", save_all=True, append_images=frames[1:], duration=50), "png", rotate=180)

    with opened(result.data) as image:
        assert image.mode == "P"
        for shown, frame in zip(ImageSequence.Iterator(image), frames, strict=True):
            found = shown.convert("RGBA").convert("RGBa")
            np.testing.assert_array_equal(np.asarray(found), np.asarray(frame.rotate(180).convert("RGBa")))


@pytest.mark.parametrize("colors", [2, 4, 16, 256])
def test_palettes_are_stored_without_filters_in_few_bits(colors: int) -> None:
    """Filters make the indexes of colors less alike, and their files larger."""
    data = convert(saved(photo((400, 300)), "PNG"), "png", colors=colors).data

    width, height, bits = struct.unpack_from(">IIB", data, 16)
    compressed = b"".join(data[start + 4 : start + 4 + size] for start, size in _chunks(data, b"IDAT"))
    rows = zlib.decompress(compressed)
    stride = 1 + -(-width * bits // 8)
    assert 1 << bits == colors
    assert len(rows) == height * stride
    assert set(rows[::stride]) == {0}
    assert len(compressed) <= len(zlib.compress(rows, 9))
    assert [size for _, size in _chunks(data, b"PLTE")] == [3 * colors]


def _chunks(data: bytes, kind: bytes) -> list[tuple[int, int]]:
    """Where the types of chunks of a kind are in a PNG, and their sizes."""
    found, start = [], 8
    while start < len(data):
        size = int.from_bytes(data[start : start + 4])
        if data[start + 4 : start + 8] == kind:
            found.append((start + 4, size))
        start += size + 12
    return found


def _with_pixels(data: bytes, pixels: bytes, *before: bytes) -> bytes:
    """The file with this content of its chunk of pixels, and chunks before its header."""
    chunks = [chunk(kind, pixels) if kind == b"IDAT" else bytes(found) for kind, found in read_chunks(memoryview(data))]
    return b"".join([SIGNATURE, *before, *chunks])


def _pixels(data: bytes) -> bytes:
    (pixels,) = (bytes(chunk[8:-4]) for kind, chunk in read_chunks(memoryview(data)) if kind == b"IDAT")
    return pixels


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("text", [b"", chunk(b"tEXt", b"Title\0text")], ids=["plain", "text after the pixels"])
def test_a_wrong_checksum_of_the_pixels_is_told(text: bytes, bits: int) -> None:
    data = _png(photo((64, 48)), bits=bits)
    data = data[:-12] + text + data[-12:]
    pixels = _pixels(data)

    result = convert(_with_pixels(data, pixels[:-4] + b"\1\2\3\4"), "png")

    assert codes(result) == {"repaired"}
    assert imagecodecs.png_decode(result.data).tobytes() == imagecodecs.png_decode(data).tobytes()
    with pytest.raises(ConversionError, match="cannot be decoded"):
        convert(_with_pixels(data, pixels[:-40]), "png")


@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_apples_variant_is_read(mode: str) -> None:
    image = photo((64, 48), mode)
    if mode == "RGBA":
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    red, green, blue, *alpha = image.convert("RGBa").split() if mode == "RGBA" else image.split()
    data = saved(Image.merge(mode, (blue, green, red, *alpha)), "PNG")

    result = convert(_with_pixels(data, _pixels(data)[2:-4], chunk(b"CgBI", b"\x50\0\x20\2")), "png")

    assert codes(result) == {"repaired"}
    expected = image.convert("RGBa").convert("RGBA") if mode == "RGBA" else image
    np.testing.assert_array_equal(opened(result.data), expected)
