"""The time of detection grows no faster than the file, and is short for files of any size."""

import pytest

from engine.detection import Detection
from engine.errors import UnknownFormat
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
    with limited_to(600):
        return [pair for pair in pairs if not is_linear(lambda data: _DETECTION.read(data, "a.csv"), *pair, size=size)]


def test_repeated_pieces_after_the_start_of_a_file() -> None:
    assert _hostile((4,), _HEAD) == []


@pytest.mark.long
@pytest.mark.parametrize("size", [_HEAD, 1 << 20])
def test_repeated_pieces_after_many_starts(size: int) -> None:
    assert _hostile((2, 3, 4, 8, 12, 16, 32, 64, 128, 512), size) == []


def test_names_that_overlap_in_an_archive_without_directory() -> None:
    header = b"PK\3\4" + b"\x14\0" * 11 + b"\xff\xff\0\0"

    assert is_linear(lambda data: _DETECTION.read(data, "a.zip"), b"", header, _HEAD)
