"""Changes of jobs, for clients that wait for them, and the messages about them between servers of one PostgreSQL.

Changes by this process are found at once, and with PostgreSQL changes by other servers soon, otherwise within a second.
All jobs that are waited for are read together. Messages are sent after the transactions that they report, several in
one statement: PostgreSQL would commit transactions that send messages one after the other.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from typing import Final

from storage.database import Database
from storage.errors import StorageError
from storage.tables import jobs
from storage.tables.jobs import Job

log = logging.getLogger("convertd.jobs")

QUEUED: Final = "queued"
"""A job waits, which any server may take."""

CANCELLED: Final = "cancelled"
"""A job was cancelled; its id follows."""

CHANGED: Final = "changed"
"""A job has another status or progress; its id follows."""

INTERVAL = 1.0  # seconds
_CHUNK = 500  # jobs
_CHANNEL: Final = "convertd_job"
_PAUSE = 0.05  # seconds between two statements


class ServerMessages:
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
        messages = list(self._unsent)
        self._unsent = {}
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


class Watcher:
    """The latest state of a job that a client waits for. `is_over`: it will not change any more."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.is_over = job.has_ended
        self._changed = asyncio.Event()

    def update(self, job: Job | None) -> None:
        """Sets the state of the job; None if it does not exist any more."""
        if job is not None and _state(job) == _state(self.job):
            return
        self.job = job or self.job
        self.is_over |= job is None or job.has_ended
        self._changed.set()

    def end(self) -> None:
        """Ends the wait, because the server stops."""
        self.is_over = True
        self._changed.set()

    async def change(self, seconds: float) -> bool:
        """Waits for a change of status or progress, for at most `seconds`. Returns whether there was one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        changed = self._changed.is_set()
        self._changed.clear()
        return changed

    async def end_of_job(self, seconds: float) -> Job:
        """Waits until the job ends, for at most `seconds`. Returns its latest state."""
        deadline = monotonic() + seconds
        while not self.is_over and (remaining := deadline - monotonic()) > 0:
            await self.change(remaining)
        return self.job


class ChangeFeed:
    """Reads jobs that clients wait for, every second and after a message that one has changed."""

    def __init__(self, database: Database, messages: ServerMessages) -> None:
        self._database = database
        self._messages = messages
        self._watchers: dict[str, set[Watcher]] = {}
        self._due = asyncio.Event()
        self._closed = False

    def publish(self, job_id: str) -> None:
        """Notifies all servers that this one has changed a job."""
        self.note(job_id)
        self._messages.send(CHANGED, job_id)

    def note(self, job_id: str) -> None:
        """Notifies clients that wait for a job that it has changed."""
        if job_id in self._watchers:
            self._due.set()

    @contextmanager
    def watch(self, job: Job) -> Iterator[Watcher]:
        """Watches a job, which was read before, during the block."""
        watcher = Watcher(job)
        watchers = self._watchers.setdefault(job.job_id, set())
        watchers.add(watcher)
        self._due.set()  # the job may have changed since it was read
        if self._closed:
            watcher.end()
        try:
            yield watcher
        finally:
            watchers.discard(watcher)
            if not watchers:
                self._watchers.pop(job.job_id, None)

    async def run(self) -> None:
        """Reads jobs until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL):
                    await self._due.wait()
            self._due.clear()
            try:
                await self._read()
            except Exception:
                log.warning("the jobs that clients wait for could not be read", exc_info=True)
                await asyncio.sleep(INTERVAL)

    def close(self) -> None:
        """Ends all waits."""
        self._closed = True
        for watchers in self._watchers.values():
            for watcher in watchers:
                watcher.end()

    async def _read(self) -> None:
        ids = list(self._watchers)
        for first in range(0, len(ids), _CHUNK):
            chunk = ids[first : first + _CHUNK]
            found = {job.job_id: job for job in await self._database.run(jobs.read_all, chunk)}
            for job_id in chunk:
                for watcher in self._watchers.get(job_id, ()):
                    watcher.update(found.get(job_id))


def _state(job: Job) -> tuple[object, ...]:
    return job.status, job.done
