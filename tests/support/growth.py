"""Whether the time to read a hostile text grows as its length does."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import thread_time

import pytest

SEPARATORS = (
    *(b" ", b"\n", b"\t", b"\r\n", b"\0", b"\xff", b"a", b"0", b"<", b"<!>", b"<?", b"<!DOCTYPE[>", b"</a ", b"&"),
    *(b"/* */", b"#", b"# \n", b"//", b"\\", b'"', b'";', b"=", b";", b"; ", b", ", b",", b"[", b"{", b"[]", b"("),
    *(b"-", b"..", b":", b"%", b"@", b"'", b"*=", b"1-", b"bytes=", b"http://", b"PK\3\4", b"II*\0", b"\0\0\0\1"),
)
"""What parsers look for, and what they skip."""

_GROWTH = 8
_MOST = 3.5 * _GROWTH  # the square of the growth is twice that
_UNNOTICED = 0.03  # seconds of CPU time that no other request notices


@contextmanager
def limited_to(seconds: float) -> Iterator[None]:
    """Interrupts the block after a time that only a search without end takes."""

    def interrupt(_number: int, _frame: object) -> None:
        pytest.fail(f"The block took more than {seconds:g} s.")

    previous = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def is_linear(
    read: Callable[[bytes], object], start: bytes, piece: bytes, size: int, clock: Callable[[], float] = thread_time
) -> bool:
    """Whether `read` takes little time for `start` and repetitions of `piece`, or as much more as they are longer.

    `clock` counts the CPU time of `read`.
    """

    def seconds(length: int) -> float:
        text = start + piece * (length // len(piece))
        with limited_to(20):
            began = clock()
            read(text)
            return clock() - began

    if seconds(size) < _UNNOTICED:
        return True
    return min(seconds(size) for _ in range(2)) < _MOST * max(seconds(size // _GROWTH) for _ in range(3))
