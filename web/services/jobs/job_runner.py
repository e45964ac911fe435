"""Runs the jobs that this server claims, as many as it has slots for, and queues jobs again that it cannot end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import TypeVar

from config.errors import PublicError
from config.settings import Settings
from engine.errors import ConversionError, ExecutorUnavailable, Killed, WorkerCrashed
from storage.database import Database, Transaction, unsynced
from storage.errors import CommitUnknown, DatabaseBusy, JobLost, StorageError, StoreUnavailable
from storage.tables import accounts, job_runs, usage
from storage.tables.job_runs import NOTHING, Claim, ClaimedJob, LaneUse
from storage.tables.jobs import LaneRecord
from storage.tables.ledger import Hold, ServerInstance
from storage.tables.usage import UsageRecord
from web.api.errors import NotReady, RateLimited, ServerError, error_body, public_error
from web.metrics.conversions import RequestContext
from web.metrics.service import JobMetrics
from web.services.accounts.accounts import Account
from web.services.accounts.plans import plan_of
from web.services.admission.admission import Admission
from web.services.admission.fair_queue import QueuedTask, Standing, Tenant
from web.services.admission.tenant_records import OVERRUN_MEMORY
from web.services.conversions.conversions import Conversions, Held
from web.services.conversions.idempotency import ResponseData
from web.services.conversions.releases import retry_while_busy
from web.services.files.files import Files
from web.services.jobs.batch_jobs import BatchRunner
from web.services.jobs.batches import Batches
from web.services.jobs.job_requests import RequestLoader, StoredSpec
from web.services.jobs.jobs import EndedJob, Jobs, finish
from web.services.operation.request_tracking import RequestLog

T = TypeVar("T")

log = logging.getLogger("convertd.jobs")

INTERVAL = 1.0
"""Seconds after which new jobs of other servers are found, and cancelled ones."""

MAX_ATTEMPTS = 3
MAX_CRASHES = 2
FETCH_SECONDS = 300.0
"""The time in which all files of a job have to arrive."""

ALONE = 10.0
"""Seconds at the beginning of a run of a job that has crashed, in which the server starts no other job."""

_PERSIST_TIMEOUT = 30  # seconds without the database after which the end of a run is given up, and the job repeated
_BUSY_INTERVAL = 0.01  # seconds until jobs are claimed that another server has locked
_PAUSE = 2.0  # seconds without new jobs after something that all jobs need has failed
_OUTAGES = (DatabaseBusy, CommitUnknown, StoreUnavailable, ExecutorUnavailable, NotReady, RateLimited)
"""Errors of which the job is not the cause: its attempt does not count."""


class JobRunner:
    """Claims jobs and runs each as a task. `owner` identifies this run of this server."""

    def __init__(
        self,
        database: Database,
        owner: ServerInstance,
        admission: Admission,
        jobs: Jobs,
        requests: RequestLoader,
        conversions: Conversions,
        batches: Batches,
        files: Files,
        metrics: JobMetrics,
        request_log: RequestLog,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self._database = database
        self._owner = owner
        self._admission = admission
        self._jobs = jobs
        self._requests = requests
        self._conversions = conversions
        self._batches = batches
        self._files = files
        self._metrics = metrics
        self._request_log = request_log
        self._tasks: dict[str, tuple[ClaimedJob, asyncio.Task[None]]] = {}
        self._fetched: deque[tuple[ClaimedRun, asyncio.Future[QueuedTask]]] = deque()  # wait for a slot
        self._lost: set[str] = set()  # jobs whose tasks are cancelled because they have ended, or run elsewhere
        self._due = asyncio.Event()
        self._more = False  # whether jobs may wait for a slot of this server
        self._may_own_more = False  # whether this server may own runs without a task: the database did not respond
        self._checked_at = self._paused_until = self._alone_until = -INTERVAL  # monotonic time
        jobs.on_accept = self._expect
        jobs.on_cancel = self._cancel
        jobs.lane_of = lambda tenant: lane_record(tenant, admission.standing(tenant))

    async def run(self) -> None:
        """Claims and runs jobs until cancelled."""
        while True:
            pause = INTERVAL
            self._due.clear()
            try:
                pause = await self._claim()
            except Exception as error:
                self._may_own_more = True
                trace = None if isinstance(error, PublicError) else error
                log.warning("jobs could not be claimed: %s", error, exc_info=trace, extra={"outage": trace is None})
            self._watch_slots()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._due.wait()

    async def close(self) -> None:
        """Queues the running jobs again, so that other servers run them. Call it after `run` was cancelled."""
        running = [task for _, task in self._tasks.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for job in await self._database.run(job_runs.find_running, self._owner):
            await self._requeue(job, NOTHING, counted=False)

    def _expect(self) -> None:
        self._more = True
        self._watch_slots()
        self._due.set()

    def _watch_slots(self) -> None:
        """Wakes `run` at the end of each task, if jobs may wait for a slot."""
        self._admission.on_end = self._due.set if self._more or self._fetched else None

    def _cancel(self, job_id: str) -> None:
        """Kills a job that has ended in the database, if it runs here."""
        if job_id in self._tasks and job_id not in self._lost:
            self._lost.add(job_id)
            self._tasks[job_id][1].cancel()

    async def _claim(self) -> float:
        """Starts as many jobs as there are slots for. Returns the seconds after which more may be found."""
        now = monotonic()
        if now - self._checked_at >= INTERVAL:
            self._checked_at = now
            await self._check()
        self._place_fetched()
        while self._more and now >= self._paused_until and not self._is_alone():
            least = self._admission.background_standing
            if least is None:
                break
            self._more = False  # now, because the transaction may miss a job that is accepted meanwhile
            claim, account = await self._database.run(_claim, self._owner, least, self._settings, idle=not self._tasks)
            self._more |= claim.more
            if claim.job is None or account is None:
                return _BUSY_INTERVAL if claim.locked else INTERVAL
            self._admission.restore(account.tenant, standing_of(claim.lane))
            self._start(ClaimedRun(claim.job, account, self._admission))
        return INTERVAL

    def _is_alone(self) -> bool:
        """Whether a job that has crashed began a short time ago: no other one is started beside it."""
        return monotonic() < self._alone_until and any(job.crashes for job, _ in self._tasks.values())

    async def _check(self) -> None:
        """Compares the runs of this server with the database, and ends those of servers that have stopped."""
        if self._tasks or self._may_own_more:
            await self._compare()
        self._more |= await self._database.run(job_runs.any_due)
        if not self._more:
            return
        for job in await self._database.run(job_runs.find_left):
            log.warning("the server of job %s has stopped", job.id)
            await self._fail(job, WorkerCrashed("The server died."))

    async def _compare(self) -> None:
        """Kills jobs that another server or client has ended, and queues those again that have no task here."""
        tasks = list(self._tasks)
        running = {job.id: job for job in await self._database.run(job_runs.find_running, self._owner)}
        self._may_own_more = False
        for job_id in tasks:
            if job_id in self._tasks and (
                job_id not in running or running[job_id].fence != self._tasks[job_id][0].fence
            ):
                self._cancel(job_id)
        for job in running.values():
            if job.id not in tasks:
                await self._requeue(job, NOTHING, counted=False)

    def _start(self, run: ClaimedRun) -> None:
        job = run.job  # at once, so that no further job is claimed for the same slot
        admitted = run.admit()
        if job.crashes:
            self._alone_until = monotonic() + ALONE
        task = asyncio.create_task(self._run(run, admitted))
        self._tasks[job.id] = job, task
        self._jobs.changes.publish(job.id)

    async def _place_after_fetch(self, run: ClaimedRun) -> QueuedTask:
        """Waits for a slot for a job whose files were fetched. It goes before jobs that are not claimed yet."""
        turn = asyncio.get_running_loop().create_future()
        self._fetched.append((run, turn))
        self._watch_slots()
        self._due.set()
        admitted: QueuedTask = await turn
        return admitted

    def _place_fetched(self) -> None:
        while self._fetched and self._admission.background_standing is not None:
            run, turn = self._fetched.popleft()
            if not turn.cancelled():
                turn.set_result(run.admit())

    async def _run(self, run: ClaimedRun, admitted: QueuedTask) -> None:
        """Runs a job, and ends it or queues it again."""
        job = run.job
        is_charged = run.crowd is None
        try:
            with run.place:
                messages = await self._attempt(run, admitted)
            self._request_log.record_job(run.context, None, job.operation, monotonic() - run.began)
            self._metrics.record_attempt("completed")
            await self._clean_up(job, messages)
        except asyncio.CancelledError:  # `_cancel` ends it, or `close` queues it again
            self._metrics.record_attempt("cancelled" if job.id in self._lost else "given_back")
            is_charged = False
        except JobLost:
            self._metrics.record_attempt("cancelled")
            is_charged = False
        except Exception as error:
            self._request_log.record_job(run.context, public_error(error), job.operation, monotonic() - run.began)
            await self._fail(job, error, run.use())
        finally:
            self._lost.discard(job.id)
            self._tasks.pop(job.id, None)
            if self._more or self._fetched:
                self._due.set()
            if not is_charged:
                with suppress(StorageError):  # it is unavailable
                    await self._database.run(job_runs.charge, job.account, run.crowd, run.used)

    async def _attempt(self, run: ClaimedRun, admitted: QueuedTask) -> int:
        """Runs a job and completes it. Returns the number of messages about that."""
        job = run.job
        account = run.account
        request = StoredSpec.from_text(job.request)
        original = request.request_of(account)
        run.context = original.context
        retention = account.tier.file_retention_seconds
        if request.batch_id:
            run.place.close()  # its files are admitted one by one
            changes = self._jobs.changes
            batch = BatchRunner(
                database=self._database,
                conversions=self._conversions,
                admission=self._admission,
                changes=changes,
                job=job,
                fatal=_OUTAGES,
                admitted=run.admitted,
            )
            response = await self._batches.run(original, await batch.begin())
            result = json.dumps(dict(response.data))
            ended = await self._database.run(finish, job, "completed", retention, result=result, use=run.use())
            return ended.messages
        if request.remote:
            run.place.close()  # files arrive without a slot
        async with (
            self._requests.load(job, request, original) as (loaded, output),
            self._conversions.with_named_files(loaded, FETCH_SECONDS) as conversion,
        ):
            if request.remote:
                admitted = await self._place_after_fetch(run)
            hold = Hold(job.hold_ids[0], account.id, request.credits, 0)
            completion = _Completion(job, retention, request.file_id, run.use)
            await self._conversions.convert(conversion, output, Held(admitted, hold, completion))
            return completion.messages

    async def _fail(self, job: ClaimedJob, error: Exception, use: LaneUse = NOTHING) -> None:
        """Queues a job for another attempt, or ends it with the error."""
        public = public_error(error)
        died = isinstance(error, WorkerCrashed | Killed)
        # An error of the engine would be the same again.
        again = not isinstance(error, ConversionError) and (public.retryable or isinstance(public, ServerError))
        if isinstance(error, _OUTAGES):
            self._paused_until = monotonic() + _PAUSE
            await self._requeue(job, use, counted=False)
        elif died and job.crashes + 1 < MAX_CRASHES:
            await self._requeue(job, use, counted=True, crashed=True)
        elif again and job.attempts < MAX_ATTEMPTS:
            await self._requeue(job, use, counted=True)
        else:
            crash = WorkerCrashed("The processes that ran the conversion were killed or crashed.")
            await self._end(job, crash if died else public, use)
        if not isinstance(error, PublicError):
            fields = {"request_id": StoredSpec.from_text(job.request).request_id}
            log.error("a job failed", exc_info=error, extra={"fields": fields})

    async def _requeue(self, job: ClaimedJob, use: LaneUse, *, counted: bool, crashed: bool = False) -> None:
        self._metrics.record_attempt("repeated" if counted else "given_back")
        await self._persist(job, partial(job_runs.requeue, job=job, counted=counted, crashed=crashed, use=use))
        self._jobs.notify_queued()

    async def _end(self, job: ClaimedJob, error: PublicError, use: LaneUse) -> None:
        self._metrics.record_attempt("failed")
        ended = await self._persist(job, partial(_fail, job=job, error=error, settings=self._settings, use=use))
        if ended is not None:
            await self._clean_up(job, ended.messages)

    async def _persist(self, job: ClaimedJob, change: Callable[[Transaction], T]) -> T | None:
        """Runs a transaction, again and again while the database is unavailable."""
        try:
            return await retry_while_busy(partial(self._database.run, change), monotonic() + _PERSIST_TIMEOUT)
        except JobLost:
            pass
        except Exception:
            log.exception("the end of an attempt at job %s was not saved; it is repeated", job.id)
            self._may_own_more = True
        return None

    async def _clean_up(self, job: ClaimedJob, messages: int) -> None:
        """Deletes the inputs of an ended job. If that fails, they are deleted later, as blobs without a row."""
        self._jobs.notify_ended(job.id, messages)
        try:
            await self._files.discard(job.blobs)
        except StoreUnavailable as error:
            log.warning("the inputs of an ended job were not deleted: %s", error)


@unsynced
def _claim(
    transaction: Transaction, owner: ServerInstance, least: Standing, settings: Settings, *, idle: bool
) -> tuple[Claim, Account | None]:
    """Claims a job of an account of the least standing or above. Returns also the account."""
    proven = least is Standing.PROVEN
    restricted = least is Standing.RESTRICTED
    claim = job_runs.claim(transaction, owner, proven=proven, restricted=restricted, idle=idle)
    if claim.job is None:
        return claim, None
    account = Account.from_storage(accounts.get(transaction, claim.job.account), "", settings)
    return claim, replace(account, key_mode="test" if claim.job.test else "live")


class _Completion:
    """Ends a job with the response to its request. `source_id` is the stored file that it has converted.

    `messages` is the number of messages about that.
    """

    def __init__(self, job: ClaimedJob, retention: int, source_id: str | None, use: Callable[[], LaneUse]) -> None:
        self._job = job
        self._use = use
        self._retention = retention
        self._source_id = source_id
        self.messages = 0

    def __call__(self, transaction: Transaction, response: ResponseData) -> None:
        made = None if response.file_id == self._source_id else response.file_id
        values = {"result": json.dumps(dict(response.data)), "file_id": made}
        ended = finish(transaction, self._job, "completed", self._retention, **values, use=self._use())
        self.messages = ended.messages


def _fail(transaction: Transaction, job: ClaimedJob, error: PublicError, settings: Settings, use: LaneUse) -> EndedJob:
    """Ends a job with an error, releases its credits, and records a failure of the engine as use."""
    request = StoredSpec.from_text(job.request)
    body = {**error_body(error), "request_id": request.request_id}
    retention = plan_of(accounts.get(transaction, job.account), settings).file_retention_seconds
    ended = finish(transaction, job, "failed", retention, error=json.dumps(body), use=use)
    source = ended.job.input_format
    if error.code == "processing_failed" and source is not None:
        counted = UsageRecord(job.operation, source, ended.job.output_format, job.size)
        usage.record(transaction, job.account, counted, success=False, credits=0)
    return ended


def lane_record(tenant: Tenant, standing: Standing) -> LaneRecord:
    """Returns what the lane of a tenant with this standing remembers."""
    restricted_until = int(time() + OVERRUN_MEMORY) if standing is Standing.RESTRICTED else 0
    return LaneRecord(_crowd(tenant), int(standing is Standing.PROVEN), restricted_until)


def standing_of(record: LaneRecord) -> Standing:
    """Returns the standing that a lane remembers."""
    if record.restricted_until > time():
        return Standing.RESTRICTED
    return Standing.PROVEN if record.proven else Standing.UNPROVEN


class ClaimedRun:
    """A run of a claimed job, and its places in the queue: one, or one for each file of a batch.

    It `began` at a monotonic time. `context` is that of its request, once this is read.
    """

    def __init__(self, job: ClaimedJob, account: Account, admission: Admission) -> None:
        self.job = job
        self.account = account
        self.began = monotonic()
        self.context = RequestContext()
        self.place = ExitStack()
        self.admitted: list[QueuedTask] = []
        self.crowd = _crowd(account.tenant)
        self._admission = admission

    def admit(self) -> QueuedTask:
        """Takes a place in the queue until `place` closes."""
        self.admitted.append(self.place.enter_context(self._admission.admit_background(self.account.tenant)))
        return self.admitted[-1]

    @property
    def used(self) -> float:
        """The CPU time in seconds that the run has used so far."""
        return sum(job.used for job in self.admitted)

    def use(self) -> LaneUse:
        """Returns what the lane of the account records at the end. The jobs of a crowd are charged together, later."""
        tenant = self.account.tenant
        record = lane_record(tenant, self._admission.standing(tenant))
        return LaneUse(self.used if self.crowd is None else None, record)


def _crowd(tenant: Tenant) -> str | None:
    return None if tenant.crowd == tenant.id else tenant.crowd
