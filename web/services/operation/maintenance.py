"""Maintenance: periodic deletion of expired rows and files, updates of the total metrics, and backfills."""

import asyncio
import fcntl
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from time import monotonic

from storage.database import Database
from storage.errors import StoreUnavailable
from storage.ids import new_id
from storage.tables import (
    backfills,
    batches,
    deliveries,
    email_verification,
    idempotency,
    jobs,
    ledger,
    purchases,
    sessions,
    totals,
    webhooks,
)
from storage.tables.ledger import ServerInstance
from web.metrics import Metrics
from web.services.files.files import Files

log = logging.getLogger("convertd.maintenance")

INTERVAL = 30  # seconds
_ORPHAN_SWEEP_EVERY = 60  # sweeps; an orphan sweep lists all blobs
_BATCH_SIZE = 500  # rows
_PAUSE = 3  # times the duration of a batch of a backfill, before the next one
_MIN_PAUSE = 0.01  # seconds


def server_instance(data_dir: Path) -> ServerInstance:
    """Identifies this run of this server. Blocks.

    The server's id is kept in the data folder, together with the place of the folder: host name, device and inode. In
    another place, the folder can be a copy, whose original is in use. It gets an id of its own then, because servers
    with the same id would release each other's holds.
    """
    path = data_dir / "server"
    folder = data_dir.stat()
    place = f"{os.uname().nodename} {folder.st_dev}:{folder.st_ino}"
    server, _, known_place = path.read_text().strip().partition(" ") if path.exists() else ("", "", "")
    if known_place != place:
        if known_place:
            log.warning(
                "the data folder was copied or moved: what its last run owns is given back when it counts as stopped"
            )
        server = new_id("srv")
        path.write_text(f"{server} {place}")
    return ServerInstance(server, new_id("boot"))


class DataFolderInUse(RuntimeError):
    """Another server or worker uses the data folder."""


@contextmanager
def lock_data_folder(data_dir: Path) -> Iterator[None]:
    """Creates the data folder, and keeps other servers from using it during the block. Raises DataFolderInUse. Blocks.

    Two servers with the same id would release each other's holds. The lock ends with the process. No other user can
    open its file, and with that take the lock.
    """
    data_dir.mkdir(mode=0o711, parents=True, exist_ok=True)  # jobs run as other users in a folder below it
    path = data_dir / "lock"
    path.touch(0o600)
    path.chmod(0o600)  # earlier versions created it for all to read
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"Another server or worker uses the data folder {data_dir.absolute()}. Each needs one of its own."
            raise DataFolderInUse(message) from None
        yield


class Maintenance:
    """Sweeps every 30 seconds.

    The metrics have the totals of the database and the free space on the disk of `data_dir`.
    """

    def __init__(self, database: Database, files: Files, data_dir: Path, metrics: Metrics) -> None:
        self._database = database
        self._files = files
        self._data_dir = data_dir
        self._metrics = metrics

    async def run(self) -> None:
        """Sweeps periodically until cancelled."""
        for number in count():
            try:
                await self._sweep()
                if number % _ORPHAN_SWEEP_EVERY == 0:
                    await self._files.sweep_orphans()
                await self._backfill()
            except StoreUnavailable as error:  # the store has logged the cause
                log.warning("maintenance failed; next attempt in %d s: %s", INTERVAL, error)
            except Exception:
                log.exception("maintenance failed; next attempt in %d s", INTERVAL)
            await asyncio.sleep(INTERVAL)

    async def _sweep(self) -> None:
        if holds := await self._database.run(ledger.release_expired):
            log.warning("released %d expired holds", holds)
        await self._database.run(idempotency.delete_expired)
        await self._database.run(email_verification.delete_expired)
        await self._database.run(purchases.delete_abandoned)
        await self._database.run(sessions.delete_expired)
        await self._database.run(webhooks.delete_expired_secrets)
        await self._files.sweep()
        for delete_expired in (batches.delete_expired, deliveries.delete_expired):
            while await self._database.run(delete_expired, _BATCH_SIZE):
                pass
        await self._update_metrics()

    async def _update_metrics(self) -> None:
        disk = await asyncio.to_thread(shutil.disk_usage, self._data_dir)
        found = await self._database.run(totals.read)
        if found is None:
            await self._database.run(totals.begin, await self._database.run(totals.count))
            found = await self._database.run(totals.read)
            assert found is not None
        self._metrics.totals.update(found, disk.free)
        self._metrics.jobs.update(await self._database.run(jobs.read_state))

    async def _backfill(self) -> None:
        """Runs batches of backfills, if there are any, until the next sweep, for a quarter of the time."""
        deadline = monotonic() + INTERVAL
        for name in await self._database.run(backfills.pending):
            another = True
            while another and monotonic() < deadline:
                started = monotonic()
                another = await self._database.run(backfills.run_batch, name)
                # Processes that wait for the lock of SQLite try to get it every 0.1 s, and must find it free.
                await asyncio.sleep(max(_PAUSE * (monotonic() - started), _MIN_PAUSE))
