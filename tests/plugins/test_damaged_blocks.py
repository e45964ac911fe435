"""Files with a damaged block, or a brand that decoders do not know: the image is opened, and the damage is told."""

import struct
import zlib

import numpy as np
import pytest
from PIL import PngImagePlugin

from engine import ConversionError
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import CORPUS
from tests.support.samples.exif_blocks import exif_block, read_tags
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.tagged_photo import exiftool

_SIZE = (64, 48)
_REGISTRY = load_registry()
_HARD = CORPUS.parent / "hard2"


def _png(mode: str = "RGB", **parameters: object) -> bytes:
    info = PngImagePlugin.PngInfo()
    info.add_text("Comment", "text")
    info.add_itxt("Title", "title")
    profile = swapped_profile()
    image = quadrants(_SIZE).convert(mode)
    return saved(image, "PNG", pnginfo=info, icc_profile=profile, exif=exif_block("<"), dpi=(300, 300), **parameters)


def _damaged(data: bytes, kind: bytes) -> bytes:
    """The PNG with another checksum of the chunks of this type."""
    parts, start = [data[:8]], 8
    while start < len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        chunk = data[start:end]
        parts.append(chunk[:-4] + struct.pack(">I", zlib.crc32(chunk) ^ 1) if chunk[4:8] == kind else chunk)
        start = end
    return b"".join(parts)


@pytest.mark.parametrize("kind", [b"iCCP", b"eXIf", b"tEXt", b"iTXt", b"pHYs"])
@pytest.mark.parametrize("mode", ["RGB", "P"])
def test_chunks_with_a_wrong_checksum_are_left_out(mode: str, kind: bytes) -> None:
    source = _png(mode)

    result = convert(_damaged(source, kind), "png", metadata="all", color_space="keep")

    assert codes(result) == {"metadata_damaged"}
    assert not np.any(np.asarray(opened(result.data).convert("RGB")) != np.asarray(opened(source).convert("RGB")))
    assert (kind in result.data) == (kind == b"iTXt")  # the other text is one


@pytest.mark.parametrize("kind", [b"IHDR", b"PLTE"])
def test_chunks_that_readers_need_are_not_left_out(kind: bytes) -> None:
    with pytest.raises(ConversionError, match="cannot be decoded"):
        convert(_damaged(_png("P"), kind), "webp")


def test_complete_files_have_no_warning() -> None:
    assert codes(convert(_png(), "png", metadata="all")) == set()


def _branded(data: bytes, major: bytes, compatible: bytes) -> bytes:
    end = int.from_bytes(data[:4])
    names = (compatible * (end // 4))[: end - 16]
    return data[:8] + major + data[12:16] + names + data[end:]


@pytest.mark.parametrize("encoder", ["heic", "avif"])
@pytest.mark.parametrize("major", [b"mif1", b"mif2"])
@pytest.mark.parametrize("compatible", [b"mif1", b"mif2", b"mif2miaf", b""])
def test_brands_of_containers_are_known(encoder: str, major: bytes, compatible: bytes) -> None:
    data = _branded(convert(_png(), encoder).data, major, compatible or encoder.encode())

    assert _REGISTRY.identify_content(data) == _REGISTRY.formats[encoder]
    assert opened(convert(data, "png").data).size == _SIZE


@pytest.mark.parametrize("target", ["avif", "heic"])
def test_exif_of_a_turned_image_stays(target: str) -> None:
    """Decoders turn it by a property of the image; the orientation in its EXIF is not valid."""
    file = convert(saved(quadrants(_SIZE), "JPEG", exif=exif_block(">")), target, metadata="all").data

    result = convert(file, "png", metadata="all")

    assert exiftool(result.data)["IFD0:Artist"] == "Jürgen Müller"
    assert (0, 0x013B) in read_tags(result.data)


@pytest.mark.parametrize("name", [path.name for path in sorted(_HARD.glob("*")) if path.suffix in (".avif", ".png")])
def test_real_files_with_a_damaged_block(name: str) -> None:
    result = convert((_HARD / name).read_bytes(), "png")

    assert "metadata_damaged" in codes(result)
    assert min(opened(result.data).size) >= 8


@pytest.mark.parametrize("name", [path.name for path in sorted(_HARD.glob("exif_*.jpg"))])
@pytest.mark.parametrize("target", ["jpeg", "png", "webp", "avif", "heic", "tiff", "psd"])
def test_real_files_keep_their_texts(name: str, target: str) -> None:
    source = (_HARD / name).read_bytes()
    tags = read_tags(source)

    stored = {choice: read_tags(convert(source, target, metadata=choice).data) for choice in ("safe", "all")}

    for tag in ((0, 0x010E), (0, 0x013B), (0, 0x8298)):
        assert {choice: found[tag].data for choice, found in stored.items()} == dict.fromkeys(stored, tags[tag].data)


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


@pytest.mark.parametrize(
    "chunk",
    [
        _chunk(b"gAMA", b"\0"),
        _chunk(b"cHRM", b""),
        _chunk(b"pHYs", b"x"),
        _chunk(b"iCCP", b"name\0\1" + bytes(9)),
        _chunk(b"zTXt", b"key\0\1unknown method"),
        _chunk(b"tRNS", b"\0"),
        _chunk(b"acTL", b"\0"),
        _chunk(b"acTL", struct.pack(">II", 9, 0)),
        _chunk(b"fcTL", b""),
    ],
    ids=range(9),
)
@pytest.mark.parametrize("before", [b"IDAT", b"IEND"])
def test_invalid_chunks_are_left_out(chunk: bytes, before: bytes) -> None:
    source = saved(quadrants(_SIZE), "PNG")
    position = source.index(before) - 4

    result = convert(source[:position] + chunk + source[position:], "webp", lossless=True)

    assert codes(result) == {"metadata_damaged"}
    assert opened(result.data).convert("RGB").tobytes() == opened(source).tobytes()


@pytest.mark.parametrize("target", ["png", "pdf", "jpeg"])
@pytest.mark.parametrize(("code", "body"), [(0xE0, b"JFIF\0"), (0xE2, b"ICC_PROFILE\0"), (0xEE, b"Adobe")])
def test_invalid_segments_are_left_out(target: str, code: int, body: bytes) -> None:
    source = saved(quadrants(_SIZE), "JPEG")
    segment = bytes((0xFF, code)) + struct.pack(">H", len(body) + 2) + body

    result = convert(source[:2] + segment + source[2:], target)

    assert codes(result) == {"metadata_damaged"}
