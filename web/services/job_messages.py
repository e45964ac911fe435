"""Messages that servers of one PostgreSQL send to each other about jobs.

They are sent after the transactions that they report, several in one statement: PostgreSQL would commit transactions
that send messages one after the other. Without a message, a change is found within a second.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from storage.database import Database
from storage.errors import StorageError

log = logging.getLogger("convertd.jobs")

QUEUED: Final = "queued"
"""A job waits, which any server may take."""

CANCELLED: Final = "cancelled"
"""A job was cancelled; its id follows."""

CHANGED: Final = "changed"
"""A job has another status or progress; its id follows."""

_CHANNEL: Final = "convertd_job"
_PAUSE = 0.05  # seconds between two statements


class JobMessages:
    """Sends and receives messages while it runs. With SQLite there are none."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._unsent: dict[str, None] = {}  # an ordered set
        self._due = asyncio.Event()

    def send(self, subject: str, job_id: str = "") -> None:
        """Sends a message to all servers soon, or with `flush`. This one receives it, too."""
        self._unsent[f"{subject} {job_id}"] = None
        self._due.set()

    async def flush(self) -> None:
        """Sends the pending messages. If that fails, they are lost."""
        messages, self._unsent = list(self._unsent), {}
        try:
            await self._database.notify(_CHANNEL, messages)
        except Exception as error:
            known = isinstance(error, StorageError)
            log.warning("other servers were not notified of changed jobs: %s", error, exc_info=None if known else error)

    async def run(self, receive: Callable[[str, str], None]) -> None:
        """Sends messages, and calls `receive` with the subject and the job's id of each message, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            tasks.create_task(self._database.listen(_CHANNEL, lambda message: receive(*message.partition(" ")[::2])))

    async def _send(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self.flush()
            await asyncio.sleep(_PAUSE)
