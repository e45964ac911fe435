"""Damaged blocks, limits that are checked before decoding, and the time of detection."""

import resource
import struct
import zlib

import numpy as np
import pytest
from PIL import Image, PngImagePlugin

from engine import (
    Contains,
    Content,
    ConversionError,
    FileFormat,
    Frame,
    Raster,
    Signature,
    Sniffer,
    TooLarge,
    any_of,
    once_per_file,
    pipeline,
)
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, MAX_TOTAL_PIXELS
from engine.detection import Detection
from engine.errors import UnknownFormat
from engine.registry import load_registry
from tests.support.growth import SEPARATORS, is_linear, limited_to
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples.corpus import CORPUS
from tests.support.samples.exif_blocks import exif_block, read_tags
from tests.support.samples.generated import FORMATS, quadrants, sample, saved
from tests.support.samples.hostile import hostile_files, png
from tests.support.samples.profiles import swapped_profile
from tests.support.samples.tagged_photo import exiftool

_SIZE = (64, 48)
_REGISTRY = load_registry()
_HARD = CORPUS.parent / "hard2"
_DETECTION: Detection = load_registry().detection
_HEAD = 64 << 10  # bytes that most sniffers read at most


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

    assert codes(convert(source[:2] + segment + source[2:], target)) == {"metadata_damaged"}


def _refusal(data: bytes, target: str) -> TooLarge:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target)
    with pytest.raises(TooLarge) as raised:
        pipeline.run(plan, [data])
    return raised.value


def _line(length: int, *, across: int = 2) -> bytes:
    return saved(Image.new("L", (length, across), 99), "PNG")


@pytest.mark.parametrize(
    ("target", "longest"), [("jpeg", 65_500), ("webp", 16_383), ("avif", 32_768), ("gif", 65_535), ("psd", 30_000)]
)
def test_a_side_longer_than_the_target_supports(target: str, longest: int) -> None:
    refused = _refusal(_line(longest + 1), target)

    assert refused.reason == "pixels"
    assert refused.details == {"max_side": longest, "width": longest + 1, "height": 2}
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], target)
    result = pipeline.run(plan, [_line(longest)]).data
    reader = _REGISTRY.reader(plan.target)
    assert reader is not None
    assert reader(result).sizes[0] == (longest, 2)


@pytest.mark.parametrize(("across", "longest"), [(2, 4096), (32, 32_768)])
def test_a_side_longer_than_heic_supports(across: int, longest: int) -> None:
    assert _refusal(_line(longest + 1, across=across), "heic").details["max_side"] == longest
    pipeline.run(_REGISTRY.plan([_REGISTRY.formats["png"]], "heic"), [_line(longest, across=across)])


def test_the_error_contains_the_limit_and_the_size() -> None:
    details = _refusal(png(20_000, 20_000), "jpeg").details

    assert details == {"max_pixels": MAX_PIXELS, "pixels": 400_000_000}


def test_many_frames_are_counted_and_not_decoded() -> None:
    decoded: list[int] = []

    def frames() -> list[Frame]:
        decoded.append(1)
        return [Frame(Image.new("L", (4, 4)))]

    raster = Raster((frame for frame in frames()), count=MAX_FRAMES + 1, animated=True, sizes=[(4, 4)] * 501)
    decoded.clear()
    with pytest.raises(TooLarge) as raised:
        _REGISTRY.plan([_REGISTRY.formats["gif"]], "webp").steps[-1](raster)

    assert raised.value.reason == "frames"
    expected = {"max_frames": MAX_FRAMES, "frames": 501, "total_pixels": 501 * 16}
    assert raised.value.details == {**expected, "max_total_pixels": MAX_TOTAL_PIXELS}
    assert not decoded


@pytest.mark.parametrize("name", ["png_claim", "webp_claim", "tiff_directories", "gif_pixels_together", "svg_uses"])
def test_a_refusal_takes_no_memory(name: str) -> None:
    hostile = next(hostile for hostile in hostile_files() if hostile.name == name)
    data = hostile.make(None)  # type: ignore[arg-type]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    _refusal(data, hostile.target)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


@pytest.mark.parametrize("comment", [b"/* */", b"/* */ ", b"/**/\n", b"/* /* */", b"/*", b"*/"])
def test_comments_without_a_definition_are_no_xbm(comment: bytes) -> None:
    with limited_to(20), pytest.raises(UnknownFormat):
        load_registry().identify_content(comment * 1000, "picture.xbm")


def test_an_xbm_may_begin_with_comments() -> None:
    source = b"/* a */ /* {b} */\n#define x_width 8\n#define x_height 1\nstatic char x_bits[] = { 0x01 };"

    assert load_registry().identify_content(source).name == "xbm"


def _hostile(lengths: tuple[int, ...], size: int) -> list[tuple[bytes, bytes]]:
    """Beginnings of samples and pieces, of whose repetitions the time of detection is not linear."""
    heads = {b"", *SEPARATORS, *(sample(name)[:length] for name in FORMATS for length in lengths)}
    pairs = [(b"", head) for head in heads if head] + [(head, piece) for head in heads for piece in SEPARATORS]
    return [pair for pair in pairs if not is_linear(lambda data: _DETECTION.read(data, "a.csv"), *pair, size=size)]


def test_repeated_pieces_after_the_start_of_a_file() -> None:
    assert _hostile((4,), _HEAD) == []


@pytest.mark.long
@pytest.mark.parametrize("size", [_HEAD, 1 << 20])
def test_repeated_pieces_after_many_starts(size: int) -> None:
    assert _hostile((2, 3, 4, 8, 12, 16, 32, 64, 128, 512), size) == []


@pytest.mark.parametrize(("count", "expected"), [(999, "svg"), (1001, None)])
def test_a_root_element_follows_a_limited_number_of_declarations(count: int, expected: str | None) -> None:
    found, _ = _DETECTION.read(b"<!-- -->\n" * count + b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.bin")

    assert (found and found.name) == expected


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16-le", "utf-16-be"])
def test_markup_begins_with_a_byte_order_mark(encoding: str) -> None:
    text = "\ufeff<svg xmlns='http://www.w3.org/2000/svg'/>" if encoding.startswith("utf-16") else "<svg/>"

    assert load_registry().identify_content(text.encode(encoding)).name == "svg"


def test_what_sniffers_share_is_found_out_once_for_a_file() -> None:
    calls = 0

    @once_per_file
    def size(content: Content) -> int:
        nonlocal calls
        calls += 1
        return len(content)

    def declare(name: str, factor: int) -> FileFormat:
        return FileFormat(name, media_type="x/x", extensions=(), sniff=lambda content: factor * size(content))

    detection = Detection([declare("first", 1), declare("second", 2)])
    for count in (1, 2):
        found, _ = detection.read(b"abc", "")
        assert (found and found.name, calls) == ("second", count)


def test_functions_are_not_called_to_compare_bytes() -> None:
    def sniff(content: Content) -> int:
        pytest.fail("A function is called.")

    def compare(sniffer: Sniffer) -> FileFormat | None:
        fmt = FileFormat("odd", media_type="x/x", extensions=(), sniff=sniffer)
        return Detection([fmt]).compare(b"abc", "")

    either = any_of(Signature((1, b"b")), sniff)
    for sniffer in (sniff, Signature((0, b"ab"), then=sniff), either, Signature((0, b"a"), then=either)):
        assert compare(sniffer) is None
    for sniffer in (Signature((0, b"b"), then=sniff), Signature((0, b"a"), then=Signature((1, b"c"), then=sniff))):
        with pytest.raises(UnknownFormat):
            compare(sniffer)
    assert compare(Signature((0, (b"xx", b"ab")), then=Contains(b"c", 3))) is not None


def test_names_that_overlap_in_an_archive_without_directory() -> None:
    header = b"PK\3\4" + b"\x14\0" * 11 + b"\xff\xff\0\0"

    assert is_linear(lambda data: _DETECTION.read(data, "a.zip"), b"", header, _HEAD)
