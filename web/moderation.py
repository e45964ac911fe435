"""Connections that are listened to at some moments only, together: to be woken for each costs more than its request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector

_PAUSE = 0.04  # seconds: some requests come together in an overload, and nobody waits for long


class Moderation:
    """Looks every `pause` seconds who has something to say, as network cards do where interrupts would be too many."""

    def __init__(self, pause: float = _PAUSE) -> None:
        self._pause = pause
        self._selector = DefaultSelector()  # with what tells whether somebody goes on waiting
        self._timer: asyncio.TimerHandle | None = None

    def wait(self, descriptor: int, ready: Callable[[], bool]) -> None:
        """Calls back at the moments at which there is something to read, for as long as `ready` gives True."""
        if descriptor in self._selector.get_map():
            return
        self._selector.register(descriptor, EVENT_READ, ready)
        if self._timer is None:
            self._rest()

    def forget(self, descriptor: int) -> None:
        """To be told before it is closed."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def close(self) -> None:
        """Forgets all."""
        if self._timer is not None:
            self._timer.cancel()
        self._selector.close()

    def _rest(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._pause, self._look)

    def _look(self) -> None:
        for key, _ in self._selector.select(0):
            if not key.data():
                self.forget(key.fd)
        self._timer = None
        if self._selector.get_map():
            self._rest()
