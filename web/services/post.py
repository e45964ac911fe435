"""Letters on their way: sent in the background, tried again, and waited for at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress

from web.services.letters import Letter
from web.services.mail import Mailer

log = logging.getLogger("convertd.mail")

_PAUSES = (2.0, 10.0)  # seconds between tries
_CAPACITY = 1000  # letters on their way
_FAREWELL = 10.0  # seconds


class Postbox:
    """Takes letters and returns at once. Each is tried again after every one of `pauses`, then given up.

    `ended` is told of each whether it was sent.
    """

    def __init__(
        self,
        mailer: Mailer,
        *,
        pauses: Sequence[float] = _PAUSES,
        capacity: int = _CAPACITY,
        ended: Callable[[bool], None] = lambda sent: None,
    ) -> None:
        self._mailer = mailer
        self._ended = ended
        self._pauses = pauses
        self._capacity = capacity
        self._closing = asyncio.Event()
        self._deliveries: set[asyncio.Task[None]] = set()

    @property
    def waiting(self) -> int:
        """How many letters are on their way."""
        return len(self._deliveries)

    def post(self, letter: Letter) -> None:
        """Sends the letter in the background. One that cannot be sent is only logged."""
        if len(self._deliveries) >= self._capacity:
            self._give_up(letter, "too many letters are waiting")
            return
        delivery = asyncio.create_task(self._deliver(letter))
        self._deliveries.add(delivery)
        delivery.add_done_callback(self._deliveries.discard)

    async def close(self, seconds: float = _FAREWELL) -> None:
        """Sends what waits without further pauses, and gives up what is not gone in so many seconds."""
        self._closing.set()
        if self._deliveries:
            _, late = await asyncio.wait(self._deliveries, timeout=seconds)
            for delivery in late:
                delivery.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._mailer.close()

    async def _deliver(self, letter: Letter) -> None:
        try:
            await self._try(letter)
        except asyncio.CancelledError:
            self._give_up(letter, "the server stops")
            raise
        except Exception as error:  # its text may hold the address
            self._give_up(letter, type(error).__name__, getattr(error, "smtp_code", None))
        else:
            self._ended(True)
            log.info("letter sent", extra={"fields": {"letter": letter.id}})

    async def _try(self, letter: Letter) -> None:
        for pause in self._pauses:
            with suppress(OSError):
                return await self._mailer.send(letter)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._closing.wait()
        return await self._mailer.send(letter)

    def _give_up(self, letter: Letter, reason: str, status: int | None = None) -> None:
        self._ended(False)
        fields = {"letter": letter.id, "reason": reason, "status": status}
        log.error("letter not sent", extra={"fields": fields})
