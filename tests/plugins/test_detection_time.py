"""The time of detection grows no faster than the file, and is short for files of any size."""

import pytest

from engine import Contains, Content, FileFormat, Signature, any_of, once_per_file
from engine.detection import Detection
from engine.errors import UnknownFormat
from engine.formats import compare
from engine.registry import load_registry
from tests.support.growth import SEPARATORS, is_linear, limited_to
from tests.support.samples.generated import FORMATS, sample

_DETECTION: Detection = load_registry().detection
_HEAD = 64 << 10  # bytes that most sniffers read at most


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

    for sniffer in (sniff, Signature((0, b"ab"), then=sniff), any_of(Signature((1, b"b")), sniff)):
        assert compare(sniffer, b"abc") is None
    assert compare(Signature((0, b"b"), then=sniff), b"abc") == 0
    assert compare(Signature((0, (b"xx", b"ab")), then=Contains(b"c", 3)), b"abc") == 1


def test_names_that_overlap_in_an_archive_without_directory() -> None:
    header = b"PK\3\4" + b"\x14\0" * 11 + b"\xff\xff\0\0"

    assert is_linear(lambda data: _DETECTION.read(data, "a.zip"), b"", header, _HEAD)
