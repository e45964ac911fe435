"""What clients still send of a request that has its answer already."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

_BYTES = 32 << 20
_SECONDS = 10


class Surplus:
    """Passed over, up to so many bytes and seconds: to close on a client that is sending could cost it the answer.

    `cut_off` is called where it takes too long.
    """

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._left = _BYTES
        self._timer = asyncio.get_running_loop().call_later(_SECONDS, cut_off)

    def is_too_much(self, chunk: bytes) -> bool:
        """Passes over some of it; whether that is more than is waited for."""
        self._left -= len(chunk)
        return self._left < 0

    def end(self) -> None:
        """There is no more to come. Until then the timer keeps alive what it would cut off."""
        self._timer.cancel()
