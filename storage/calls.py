"""Calls: functions that wait for a transaction, and their results."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Generic, TypeVar

from storage.transaction import Transaction

R = TypeVar("R")


class Call(Generic[R]):
    """A function to run in a transaction, in another thread. It has either not started or runs to its end.

    Created in the event loop that awaits `wait`; a caller without an event loop reads `future`.
    """

    def __init__(self, function: Callable[[Transaction], R], loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.function = function
        self.future: Future[R] = Future()
        self.loop = loop
        self._waiter: asyncio.Future[R] | None = loop.create_future() if loop else None

    def start(self) -> bool:
        """Whether the call is to run; False if it has been cancelled."""
        return self.future.set_running_or_notify_cancel()

    def cancel(self) -> bool:
        """Cancels the call unless it has started. Returns whether it is cancelled."""
        cancelled = self.future.cancel()
        if cancelled and self._waiter is not None:
            self._waiter.cancel()
        return cancelled

    async def wait(self) -> R:
        """Returns the result. If the caller is cancelled, CancelledError is raised once the call has ended."""
        assert self._waiter is not None
        try:
            return await self._waiter
        except asyncio.CancelledError:
            if not self.cancel():
                await asyncio.gather(asyncio.wrap_future(self.future), return_exceptions=True)
            raise

    def wake(self) -> None:
        """Passes the result to `wait`. Runs in the event loop."""
        if self._waiter is None or self._waiter.done():
            return
        error = self.future.exception()
        if error is None:
            self._waiter.set_result(self.future.result())
        else:
            self._waiter.set_exception(error)


def finish(outcomes: Iterable[tuple[Call[Any], Any, BaseException | None]]) -> None:
    """Sets the result, or the error, of each call, and wakes up each event loop once."""
    loops: dict[asyncio.AbstractEventLoop, list[Call[Any]]] = {}
    for call, result, error in outcomes:
        if error is None:
            call.future.set_result(result)
        else:
            call.future.set_exception(error)
        if call.loop is not None:
            loops.setdefault(call.loop, []).append(call)
    for loop, calls in loops.items():
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_wake, loop, calls)


def _wake(loop: asyncio.AbstractEventLoop, calls: Iterable[Call[Any]]) -> None:
    for call in calls:
        loop.call_soon(call.wake)  # in callbacks of their own, so that an error in one affects no other
