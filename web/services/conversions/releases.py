"""Releases: transactions that free what requests hold in the database, repeated until it responds."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import chain, repeat
from math import inf
from time import monotonic
from typing import Any, Concatenate, ParamSpec, TypeVar

from storage.database import Database, Transaction
from storage.errors import CommitUnknown, DatabaseBusy

log = logging.getLogger("convertd.releases")

P = ParamSpec("P")
T = TypeVar("T")

RETRY_DELAYS = (0.2, 0.4, 0.8, 1.6, 3.2)  # seconds; the last one again and again
_CLOSE_TIMEOUT = 30.0  # seconds
WAIT = 1.0  # seconds that a response waits for a release


class Releases:
    """Runs transactions in the background that release holds and claims of requests. They are idempotent."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: set[asyncio.Task[object]] = set()
        self._responds = True

    async def run(
        self, function: Callable[Concatenate[Transaction, P], object], /, *args: P.args, **kwargs: P.kwargs
    ) -> None:
        """Starts a transaction, and waits for it for a second. Raises nothing but CancelledError.

        It goes on if the caller is cancelled, and is repeated while the database is unavailable. Once one has taken
        longer, none is waited for until one succeeds: a request may have several.
        """
        attempt: Callable[[], Coroutine[Any, Any, object]] = partial(self._database.run, function, *args, **kwargs)
        release = asyncio.create_task(retry_while_busy(attempt))
        self._running.add(release)
        release.add_done_callback(self._on_end)
        _, late = await asyncio.wait([release], timeout=WAIT if self._responds else 0)
        self._responds &= not late

    @property
    def running(self) -> int:
        """Number of releases that have not ended."""
        return len(self._running)

    async def close(self) -> None:
        """Waits for running releases, for some seconds: what remains is given back when this server has stopped."""
        if not self._running:
            return
        await asyncio.wait(self._running, timeout=_CLOSE_TIMEOUT)
        for release in [*self._running]:
            release.cancel()

    def _on_end(self, release: asyncio.Task[object]) -> None:
        self._running.discard(release)
        if release.cancelled():
            return
        if (error := release.exception()) is None:
            self._responds = True
        else:
            log.error("a release failed: what the request holds stays held until this server stops", exc_info=error)


async def retry_while_busy(attempt: Callable[[], Coroutine[Any, Any, T]], deadline: float = inf) -> T:
    """Retries while the database is unavailable, for example during a restart, or its disk is full.

    Raises the error if the next attempt would begin after the deadline, which is in monotonic time.
    """
    for delay in chain(RETRY_DELAYS, repeat(RETRY_DELAYS[-1])):
        try:
            return await attempt()
        except (DatabaseBusy, CommitUnknown, OSError):
            if monotonic() + delay > deadline:
                raise
        await asyncio.sleep(delay)
    raise AssertionError
