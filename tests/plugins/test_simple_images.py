"""TGA, QOI, PCX, SGI, XBM, XPM and BMP: every kind of pixels, compared with Netpbm's programs and Pillow."""

import struct
import subprocess
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from engine import CorruptInput
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.broken import BLAMED, broken, outcome
from tests.support.samples.corpus import format_files
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.rasters import photo

_RNG = np.random.default_rng(1)
_READERS = {
    "tga": ("tgatoppm", "-"),
    "qoi": ("qoitopam",),
    "pcx": ("pcxtoppm",),
    "sgi": ("sgitopnm",),
    "xbm": ("xbmtopbm",),
    "xpm": ("xpmtoppm",),
}
_HEADERS = {"tga": 18, "qoi": 14, "pcx": 128, "sgi": 512, "xbm": 80, "xpm": 120}
_MODES = {
    "tga": ("L", "P", "RGB", "RGBA"),
    "qoi": ("RGB", "RGBA"),
    "pcx": ("1", "L", "P", "RGB"),
    "sgi": ("L", "LA", "RGB", "RGBA"),
    "xbm": ("1",),
    "xpm": ("L", "P", "RGB"),
}
_REGISTRY = load_registry()
_BIT_FIELDS, _ALPHA_BIT_FIELDS = 3, 6
_BMP_HEADERS = [(40, _BIT_FIELDS), (40, _ALPHA_BIT_FIELDS), (52, _BIT_FIELDS), (56, _BIT_FIELDS), (108, 3), (124, 3)]
_LAYOUTS = {  # bits per pixel, and the first bit and number of bits of red, green, blue and alpha
    "RGB444": (16, (8, 4), (4, 4), (0, 4), (0, 0)),
    "ARGB4444": (16, (8, 4), (4, 4), (0, 4), (12, 4)),
    "ARGB1555": (16, (10, 5), (5, 5), (0, 5), (15, 1)),
    "BGR565": (16, (0, 5), (5, 6), (11, 5), (0, 0)),
    "RGB332": (16, (5, 3), (2, 3), (0, 2), (0, 0)),
    "RGB565": (16, (11, 5), (5, 6), (0, 5), (0, 0)),
    "ARGB8888": (32, (16, 8), (8, 8), (0, 8), (24, 8)),
    "RGB888 at odd bits": (32, (23, 8), (14, 8), (5, 8), (0, 0)),
    "ARGB2101010": (32, (20, 10), (10, 10), (0, 10), (30, 2)),
    "RGB of 17, 5 and 5 bits": (32, (0, 17), (24, 5), (17, 5), (0, 0)),
}


def _run(program: str, *arguments: str, data: bytes) -> bytes:
    return subprocess.run([program, *arguments], input=data, check=True, capture_output=True).stdout


def _rgba(data: bytes) -> NDArray[np.uint8]:
    """The samples of the file, as convertd reads it."""
    return np.asarray(opened(convert(data, "png").data).convert("RGBA"))


def _image(size: tuple[int, int], mode: str) -> Image.Image:
    image = photo(size, "RGBA" if mode == "RGBA" else "LA" if mode == "LA" else "RGB")
    return image.convert("RGB").quantize(40) if mode == "P" else image.convert(mode)


@pytest.mark.parametrize(("name", "mode"), [(name, mode) for name, modes in _MODES.items() for mode in modes])
def test_netpbm_reads_what_is_written(name: str, mode: str) -> None:
    for size in ((37, 23), (1, 1), (8, 3)):
        image = _image(size, mode)

        result = convert(saved(image, "PNG"), name)

        assert codes(result) == set()
        np.testing.assert_array_equal(_rgba(result.data), np.asarray(image.convert("RGBA")))
        if mode in ("LA", "RGBA") and name != "qoi":  # its programs leave out the transparency
            image = image.convert(mode[:-1])
        read = opened(_run("pamtopng", data=_run(*_READERS[name], data=result.data)))
        np.testing.assert_array_equal(np.asarray(read.convert("RGBA")), np.asarray(image.convert("RGBA")))


@pytest.mark.parametrize("path", format_files(*_READERS), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_real_files(path: Path) -> None:
    data = path.read_bytes()
    found = _rgba(data)

    if path.suffix == ".xbm":  # Pillow inverts them
        expected = opened(_run("pamtopng", data=_run("xbmtopbm", data=data))).convert("RGBA")
    else:
        expected = Image.open(BytesIO(data)).convert("RGBA")
    np.testing.assert_array_equal(found, np.asarray(expected))


@pytest.mark.parametrize("name", _READERS)
def test_broken_files_are_blamed(name: str) -> None:
    found = [outcome(one) for one in broken(sample(name), _HEADERS[name])]

    assert set(found) <= BLAMED | {"picture"}
    assert set(found[:3]) <= {"unrecognized", "corrupt_input"}


def _tga(kind: int, depth: int, body: bytes, flags: int = 0x20, palette: tuple[int, int, int] = (0, 0, 0)) -> bytes:
    """An image of 4 x 2 pixels. `palette` has the first index, the number of colors and their bits."""
    header = struct.pack("<BBBHHBHHHHBB", 3, palette[1] > 0, kind, *palette, 0, 0, 4, 2, depth, flags)
    return header + b"id." + body


class TestTga:
    @pytest.mark.parametrize("flags", [0, 0x10, 0x20, 0x30])
    @pytest.mark.parametrize("kind", [2, 10])
    def test_every_corner_can_be_the_first(self, kind: int, flags: int) -> None:
        pixels = _RNG.integers(0, 256, (2, 4, 3), np.uint8)
        body = pixels[..., ::-1].tobytes()
        body = body if kind == 2 else b"\x07" + body  # a packet across rows
        turned = pixels if flags & 0x20 else pixels[::-1]

        found = _rgba(_tga(kind, 24, body, flags=flags))

        np.testing.assert_array_equal(found[..., :3], turned[:, ::-1] if flags & 0x10 else turned)

    def test_15_and_16_bits(self) -> None:
        body = struct.pack("<8H", 0x7C00, 0x03E0, 0x001F, 0x7FFF, 0, 0x8000, 0x4210, 0x7C1F)

        plain, transparent = _rgba(_tga(2, 15, body)), _rgba(_tga(2, 16, body, flags=0x21))

        assert plain[0].tolist() == [[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 255], [255, 255, 255, 255]]
        assert plain[1, 2].tolist() == [132, 132, 132, 255]
        assert transparent[..., 3].tolist() == [[255, 255, 255, 255], [255, 0, 255, 255]]

    @pytest.mark.parametrize("entry", [15, 16, 24, 32])
    @pytest.mark.parametrize("first", [0, 5])
    def test_palettes(self, entry: int, first: int) -> None:
        colors = np.array([[255, 0, 0, 255], [0, 255, 0, 255], [0, 0, 255, 0]], np.uint8)
        words = struct.pack("<3H", 0x7C00, 0x03E0, 0x801F)
        stored = words if entry < 24 else colors[:, [2, 1, 0, 3][: entry // 8]].tobytes()
        indexes = np.array([0, 1, 2, 0, 2, 1, 0, 0]) + first

        found = _rgba(_tga(1, 8, stored + bytes(indexes.tolist()), palette=(first, 3, entry)))

        assert found[0, :3, :3].tolist() == colors[:, :3].tolist()
        assert found[0, 2, 3] == (0 if entry in (16, 32) else 255)

    @pytest.mark.parametrize(("kind", "alpha"), [(None, 200), (0, 255), (3, 200), (4, 200)])
    def test_the_extension_area_says_what_the_alpha_means(self, kind: int | None, alpha: int) -> None:
        body = bytes((50, 100, 150, 200)) * 8
        data = _tga(2, 32, body, flags=0x28)
        if kind is not None:
            extension = struct.pack("<H", 495).ljust(494, b"\0") + bytes((kind,))
            data += extension + struct.pack("<II", len(data), 0) + b"TRUEVISION-XFILE.\0"

        color = (191, 127, 64) if kind == 4 else (150, 100, 50)
        assert _rgba(data)[0, 0].tolist() == pytest.approx((*color, alpha), abs=1)

    @pytest.mark.parametrize("kind", [9, 10, 11])
    def test_a_run_across_rows(self, kind: int) -> None:
        pixel = b"\1\2\3" if kind == 10 else b"\1"
        palette, flags = ((0, 2, 24), 0) if kind == 9 else ((0, 0, 0), 0x20)
        start = bytes(6) if kind == 9 else b""

        runs = _rgba(_tga(kind, 8 * len(pixel), start + b"\x85" + pixel + b"\x81" + pixel[::-1], flags, palette))

        plain = _rgba(_tga(kind - 8, 8 * len(pixel), start + pixel * 6 + pixel[::-1] * 2, flags, palette))
        np.testing.assert_array_equal(runs, plain)

    def test_alpha_that_is_0_everywhere_is_none(self) -> None:
        assert _rgba(_tga(2, 32, bytes((50, 100, 150, 0)) * 8))[0, 0].tolist() == [150, 100, 50, 255]

    @pytest.mark.parametrize(
        "data",
        [
            _tga(1, 8, bytes(9 + 8), palette=(0, 3, 24))[:-8] + bytes([9] * 8),  # an index without a color
            _tga(10, 24, b"\x8f"),
            _tga(32, 24, bytes(24)) + bytes(8) + b"TRUEVISION-XFILE.\0",  # Huffman
        ],
    )
    def test_damaged(self, data: bytes) -> None:
        assert outcome(data) in {"corrupt_input", "unrecognized"}


def _pcx(rows: NDArray[np.uint8], bits: int, width: int, version: int = 5, colors: bytes = b"") -> bytes:
    """`rows` is height x planes x bytes, and not compressed."""
    height, planes, row_bytes = rows.shape
    header = struct.pack("<BBBBHHHHHH", 10, version, 0, bits, 3, 5, width + 2, height + 4, 96, 96)
    header += colors.ljust(48, b"\0") + struct.pack("<xBH", planes, row_bytes)
    return header.ljust(128, b"\0") + rows.tobytes()


class TestPcx:
    @pytest.mark.parametrize(("bits", "planes"), [(1, 2), (1, 3), (1, 4), (2, 1), (4, 1), (2, 2)])
    def test_palettes_of_the_header(self, bits: int, planes: int) -> None:
        count = 1 << bits * planes
        colors = _RNG.integers(0, 256, (16, 3), np.uint8)
        indexes = _RNG.integers(0, count, (3, 13))
        rows = np.zeros((3, planes, 8), np.uint8)
        for plane in range(planes):
            samples = (indexes >> plane * bits) & ((1 << bits) - 1)
            unpacked = (samples[..., None] >> np.arange(bits - 1, -1, -1)) & 1
            packed = np.packbits(unpacked.reshape(3, -1), axis=1)
            rows[:, plane, : packed.shape[1]] = packed

        found = _rgba(_pcx(rows, bits, 13, colors=colors.tobytes()))

        np.testing.assert_array_equal(found[..., :3], colors[indexes])

    def test_files_without_a_palette_have_the_colors_of_adapters(self) -> None:
        rows = np.array([[[0x12, 0x4F]]], np.uint8)

        found = _rgba(_pcx(rows, 4, 4, version=3, colors=bytes(range(48))))

        assert found[0, :, :3].tolist() == [[0, 0, 170], [0, 170, 0], [170, 0, 0], [255, 255, 255]]

    def test_gray_and_transparency_of_8_bits(self) -> None:
        rows = _RNG.integers(0, 256, (2, 4, 6), np.uint8)

        np.testing.assert_array_equal(_rgba(_pcx(rows, 8, 5)), np.moveaxis(rows[:, :, :5], 1, -1))
        gray = _rgba(_pcx(rows[:, :1], 8, 5))
        np.testing.assert_array_equal(gray[..., 0], rows[:, 0, :5])

    @pytest.mark.parametrize("mode", ["P", "L"])
    def test_a_palette_that_is_cut_off_is_missed(self, mode: str) -> None:
        pcx = convert(saved(_image((9, 5), mode), "PNG"), "pcx").data

        assert (outcome(pcx), outcome(pcx[:-3]), outcome(pcx[:-769])) == ("picture", "corrupt_input", "corrupt_input")

    def test_black_and_white(self) -> None:
        assert _rgba(_pcx(np.array([[[0b10110000]]], np.uint8), 1, 4))[0, :, 0].tolist() == [255, 0, 255, 255]

    def test_the_resolution_is_kept_both_ways(self) -> None:
        result = convert(saved(quadrants(), "PNG", dpi=(300, 200)), "pcx").data

        assert opened(convert(result, "png").data).info["dpi"] == pytest.approx((300, 200), abs=0.1)


class TestSgi:
    @pytest.mark.parametrize("maximum", [255, 65535])
    @pytest.mark.parametrize("kind", ["5", "6"])
    def test_compressed_files(self, kind: str, maximum: int) -> None:
        bands, size = (1, 3)[kind == "6"], 1 + (maximum > 255)
        ramp = np.arange(17 * 300 * bands).reshape(17, 300, bands) // 5 * 601 % (maximum + 1)
        data = f"P{kind} 300 17 {maximum}\n".encode() + ramp.astype(f">u{size}").tobytes()

        compressed = _run("pnmtosgi", "-rle", data=data)
        found = convert(compressed, "pam").data

        assert compressed[2] == 1
        assert found.endswith(ramp.astype(f">u{size}").tobytes())

    def test_16_bits_are_kept_both_ways(self) -> None:
        array = _RNG.integers(0, 65536, (6, 9), np.uint16)

        result = convert(saved(Image.fromarray(array), "PNG"), "sgi")

        assert codes(result) == set()
        np.testing.assert_array_equal(np.asarray(opened(convert(result.data, "png").data)), array)
        read = opened(_run("pamtopng", data=_run("sgitopnm", data=result.data)))
        np.testing.assert_array_equal(np.asarray(read, np.uint16), array)

    def test_rows_can_share_their_packets(self) -> None:
        header = struct.pack(">HBBHHHHII84xI", 0x01DA, 1, 1, 2, 5, 3, 1, 0, 255, 0).ljust(512, b"\0")
        tables = struct.pack(">6I", *[536] * 3, *[4] * 3)

        found = _rgba(header + tables + bytes((0x82, 7, 9, 3, 200, 0)))

        assert found[..., 0].tolist() == [[7, 9, 200, 200, 200]] * 3

    def test_dithered_colors(self) -> None:
        header = struct.pack(">HBBHHHHII84xI", 0x01DA, 0, 1, 2, 3, 1, 1, 0, 255, 1).ljust(512, b"\0")

        assert _rgba(header + b"\x07\x38\xc0")[0, :, :3].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]


class TestXpm:
    def test_colors_of_every_kind(self) -> None:
        rows = {
            "a": "c #123456",
            "b": "c none",
            "c": "m black c light goldenrod g gray",
            "d": "s x c gray50",
            "e": "c #fedcba987654",
            "f": "c #abc",
            "g": "c Brown4",
            "h": "m white",
            "i": "c Green",
        }
        colors = [f'"{key}\t{value}"' for key, value in rows.items()]
        lines = ['"9 1 9 1 /* no comment */ 0 0"', *colors, f'"{"".join(rows)}"']
        source = '/* XPM */\nstatic char * x[] = {\n/* "colors" */' + ",\n".join(lines) + "};\n"

        found = _rgba(source.encode())[0].tolist()

        assert found == [
            [18, 52, 86, 255],
            [0, 0, 0, 0],
            [238, 221, 130, 255],
            [127, 127, 127, 255],
            [254, 186, 118, 255],
            [170, 187, 204, 255],
            [139, 35, 35, 255],
            [255, 255, 255, 255],
            [0, 255, 0, 255],
        ]

    @pytest.mark.parametrize("characters", [1, 2, 3, 4, 6])
    def test_any_number_of_characters(self, characters: int) -> None:
        keys = ['\\"#@'[:characters].ljust(characters, "x").replace("\\", "\\\\").replace('"', '\\"'), "." * characters]
        source = (
            f'/* XPM */\nx = {{"2 1 2 {characters}", "{keys[0]} c red", "{keys[1]} c blue", "{keys[1]}{keys[0]}"}};'
        )

        assert _rgba(source.encode())[0].tolist() == [[0, 0, 255, 255], [255, 0, 0, 255]]

    def test_lines_of_version_2(self) -> None:
        assert _rgba(b"! XPM2\n2 1 2 1\n- c #f00\n+ c None\n-+\n")[0].tolist() == [[255, 0, 0, 255], [0, 0, 0, 0]]

    def test_transparency_is_one_color(self) -> None:
        image = photo((40, 30), "RGBA")

        result = convert(saved(image, "PNG"), "xpm")

        assert codes(result) == set()
        assert b"None" in result.data
        found = _rgba(result.data)
        opaque = np.asarray(image)[..., 3] > 0
        np.testing.assert_array_equal(found[..., 3], opaque * 255)
        np.testing.assert_array_equal(found[opaque], np.asarray(image)[opaque])
        image.putalpha(90)
        assert codes(convert(saved(image, "PNG"), "xpm")) == {"alpha_thresholded"}

    @pytest.mark.parametrize(
        "source",
        [b'"2 1 1 1", "a c red", "ab"', b'"2 1 1 1", "a c nosuchcolor", "aa"', b'"2 1 1 1", "a c red", "a"', b'"2 1"'],
    )
    def test_damaged(self, source: bytes) -> None:
        assert outcome(b"/* XPM */ x = {" + source + b"};") == "corrupt_input"


class TestXbm:
    @pytest.mark.parametrize(
        "numbers",
        ["char x_bits[] = {0x05, 0x01,\n 0x02, 0x00}", "unsigned char bits[]={5,1,2,0}", "short b[] = {0x105, 0x2}"],
    )
    def test_numbers_of_every_kind(self, numbers: str) -> None:
        source = f"/* a comment */\n#define x_width 9\n#define x_height 2\n#define x_x_hot 1\nstatic {numbers};"

        ink = _rgba(source.encode())[..., 0] == 0

        assert ink.astype(int).tolist() == [[1, 0, 1, 0, 0, 0, 0, 0, 1], [0, 1, 0, 0, 0, 0, 0, 0, 0]]

    def test_too_few_numbers(self) -> None:
        assert outcome(b"#define x_width 9\n#define x_height 2\nstatic char x_bits[] = {1, 2, 3};") == "corrupt_input"


def _bmp(pixels: NDArray[np.unsignedinteger], masks: list[int], header: int, compression: int, top_down: bool) -> bytes:
    height, width = pixels.shape
    rows = [row.tobytes() for row in (pixels if top_down else pixels[::-1])]
    body = b"".join(row + bytes(-len(row) % 4) for row in rows)
    size = (width, -height if top_down else height)
    info = struct.pack("<IiiHHIIiiII", header, *size, 1, 8 * pixels.itemsize, compression, len(body), 3937, 3937, 0, 0)
    count = 4 if header >= 56 or compression == _ALPHA_BIT_FIELDS else 3
    info = (info + struct.pack(f"<{count}I", *masks[:count])).ljust(header, b"\0")
    offset = 14 + len(info)
    return struct.pack("<2sIII", b"BM", offset + len(body), 0, offset) + info + body


@pytest.mark.parametrize("layout", _LAYOUTS)
@pytest.mark.parametrize(("header", "compression"), _BMP_HEADERS)
def test_samples_are_read_at_any_bits(layout: str, header: int, compression: int) -> None:
    bits, *samples = _LAYOUTS[layout]
    pixels = np.random.default_rng(5).integers(0, 1 << bits, (7, 13), np.uint64).astype(f"<u{bits // 8}")
    masks = [((1 << count) - 1) << first for first, count in samples]
    values = [(pixels.astype(np.uint64) >> first) & ((1 << count) - 1) for first, count in samples]
    expected = [value * 255.0 / max(1, (1 << count) - 1) for value, (_, count) in zip(values, samples, strict=True)]
    if not masks[3] or (header < 56 and compression == _BIT_FIELDS):
        expected[3] = np.full(pixels.shape, 255.0)

    image = opened(convert(_bmp(pixels, masks, header, compression, top_down=header == 108), "png").data)

    assert np.abs(np.asarray(image.convert("RGBA")) - np.dstack(expected)).max() <= 1
    assert image.info["dpi"] == pytest.approx((100, 100), abs=0.1)


def test_damaged_masks_are_refused() -> None:
    pixels = np.zeros((4, 4), "<u2")
    for masks in ([0xF0F0, 0xF00, 0xF, 0], [0xFFFF0000, 0xF0, 0xF, 0]):
        whole = _bmp(pixels, masks, 40, _BIT_FIELDS, top_down=False)
        with pytest.raises(CorruptInput):
            opened(convert(whole if masks[0] < 1 << 16 else whole[:-8], "png").data)
