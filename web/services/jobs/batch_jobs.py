"""The conversion of a batch as a job: each file is charged to one of the job's holds, and its entry is saved at once.

A second run, after the server of the first one was killed, continues with the files that have no entry.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from storage.database import Database, Transaction
from storage.errors import JobLost, NoCredits
from storage.tables import job_runs, ledger
from storage.tables.job_runs import ClaimedJob
from storage.tables.ledger import Hold
from web.services.admission.admission import Admission
from web.services.admission.fair_queue import QueuedTask
from web.services.conversions.conversion_request import ChargedConversion, ConversionRequest
from web.services.conversions.conversions import Conversions, Held
from web.services.conversions.idempotency import ResponseData
from web.services.files.work_files import WorkFile
from web.services.jobs.batches import BatchRun, successful_entry
from web.services.jobs.job_changes import ChangeFeed


class BatchRunner:
    """A run of a job that converts files of a batch. Errors of the types `fatal` end it.

    Adds the places of the files in the queue to `admitted`.
    """

    def __init__(
        self,
        database: Database,
        conversions: Conversions,
        admission: Admission,
        changes: ChangeFeed,
        job: ClaimedJob,
        fatal: tuple[type[Exception], ...],
        admitted: list[QueuedTask],
    ) -> None:
        self._database = database
        self._conversions = conversions
        self._admission = admission
        self._changes = changes
        self._job = job
        self._fatal = fatal
        self._admitted = admitted
        self._free: list[str] = []  # ids of holds
        self._used = 0
        self._freed = asyncio.Condition()

    async def begin(self) -> BatchRun:
        """Returns how the files are converted."""
        self._free = await self._database.run(ledger.find_open, self._job.hold_ids)
        entries = json.loads(self._job.entries or "{}")
        return BatchRun(self._convert, entries, self._save_failure, (*self._fatal, JobLost))

    async def _convert(self, request: ConversionRequest, output: WorkFile) -> ChargedConversion:
        assert request.file is not None
        async with self._hold(request.credits) as hold_id:
            with self._admission.admit_background(request.account.tenant, is_part=True) as admitted:
                self._admitted.append(admitted)
                hold = Hold(hold_id, request.account.id, request.credits, 0)
                finish = partial(_save_success, self._job, request.file.file_id)
                converted = await self._conversions.convert(request, output, Held(admitted, hold, finish))
        assert isinstance(converted, ChargedConversion)  # the request has no idempotency key
        self._changes.publish(self._job.id)
        return converted

    async def _save_failure(self, file_id: str, entry: Mapping[str, Any]) -> None:
        await self._database.run(job_runs.add_entry, self._job, file_id, entry)
        self._changes.publish(self._job.id)

    @asynccontextmanager
    async def _hold(self, credits: int) -> AsyncIterator[str]:
        """A hold for the block, free again if the block raises. Raises NoCredits if all holds are settled."""
        async with self._freed:
            await self._freed.wait_for(lambda: self._free or not self._used)
            if not self._free:
                raise NoCredits(0, credits)
            hold = self._free.pop()
            self._used += 1
        settled = False
        try:
            yield hold
            settled = True
        finally:
            self._used -= 1
            self._free += [] if settled else [hold]
            async with self._freed:
                self._freed.notify_all()


def _save_success(job: ClaimedJob, file_id: str, transaction: Transaction, response: ResponseData) -> None:
    job_runs.add_entry(transaction, job, file_id, successful_entry(file_id, response))
