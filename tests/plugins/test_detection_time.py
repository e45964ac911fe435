"""Detection reads every upload in the server: its time grows no faster than the file."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.errors import UnknownFormat
from engine.registry import load_registry


@contextmanager
def _limited_to(seconds: float) -> Iterator[None]:
    """Interrupts the block after a time that only a search without end takes."""

    def interrupt(_number: int, _frame: object) -> None:
        pytest.fail(f"Detection took more than {seconds:g} s.")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


@pytest.mark.parametrize("comment", [b"/* */", b"/* */ ", b"/**/\n", b"/* /* */", b"/*", b"*/"])
def test_comments_without_a_definition_are_no_xbm(comment: bytes) -> None:
    with _limited_to(20), pytest.raises(UnknownFormat):
        load_registry().identify_content(comment * 1000, "picture.xbm")


def test_an_xbm_may_begin_with_comments() -> None:
    source = b"/* a */ /* {b} */\n#define x_width 8\n#define x_height 1\nstatic char x_bits[] = { 0x01 };"

    assert load_registry().identify_content(source).name == "xbm"
