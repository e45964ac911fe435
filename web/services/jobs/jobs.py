"""Jobs: requests that are accepted at once and processed in the background."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from storage.database import Database, Transaction, by_account
from storage.database.pages import Page
from storage.errors import CommitUnknown, NoCredits, NotFound
from storage.tables import deliveries, idempotency, job_runs, jobs, ledger
from storage.tables.idempotency import Claim, InProgress, KeyMismatch, Replay
from storage.tables.job_runs import ClaimedJob, Ending, LaneUse
from storage.tables.jobs import UNOWNED, Job, LaneRecord, Status, hold_ids
from storage.tables.webhooks import Event
from web.api.schemas.jobs import describe_job
from web.metrics.service import JobMetrics
from web.services.accounts.accounts import Account
from web.services.admission.fair_queue import Tenant
from web.services.conversions.additional_files import AdditionalFiles
from web.services.conversions.charging import reserve
from web.services.conversions.conversion_request import ConversionRequest
from web.services.conversions.conversions import Conversions
from web.services.conversions.idempotency import IdempotencyService, Replayed, ResponseData, replayed, stored_response
from web.services.files.files import Files, check_quota
from web.services.jobs.batches import Batches
from web.services.jobs.job_changes import CANCELLED, QUEUED, ChangeFeed, ServerMessages
from web.services.jobs.job_requests import StoredSpec
from web.services.webhooks.deliveries import Deliveries

_EVENTS: Mapping[Status, Event] = MappingProxyType(
    {"completed": "job.completed", "failed": "job.failed", "cancelled": "job.cancelled"}
)


@dataclass(frozen=True)
class Acceptance:
    """An accepted job: the response that describes it, and the balance of the account in credits."""

    response: ResponseData
    balance: int


@dataclass(frozen=True)
class EndedJob:
    """A job that has ended, and the number of messages about that which were added for webhooks."""

    job: Job
    messages: int


@dataclass(frozen=True)
class _Attempt:
    """A claim on an idempotency key, and the fingerprint of the request."""

    claim: Claim
    fingerprint: str


class Jobs:
    """Jobs of accounts. An ended job is kept as long as files.

    `on_accept` is called after a job was accepted, and `on_cancel` with the id of a job that was cancelled. `lane_of`
    returns what the lane of a tenant remembers from now on.
    """

    def __init__(
        self,
        database: Database,
        files: Files,
        conversions: Conversions,
        batches: Batches,
        idempotency: IdempotencyService,
        metrics: JobMetrics,
        additional_files: AdditionalFiles,
        sender: Deliveries,
    ) -> None:
        self._database = database
        self._files = files
        self._conversions = conversions
        self._batches = batches
        self._idempotency = idempotency
        self._metrics = metrics
        self._additional_files = additional_files
        self._sender = sender
        self._messages = ServerMessages(database)
        self.changes = ChangeFeed(database, self._messages)
        self.on_accept: Callable[[], None] = lambda: None
        self.on_cancel: Callable[[str], None] = lambda _job_id: None
        self.lane_of: Callable[[Tenant], LaneRecord] = lambda _tenant: LaneRecord()

    async def accept(self, request: ConversionRequest) -> Acceptance | Replayed:
        """Accepts a request, whose response describes the job, or returns the response of an earlier request.

        Everything is checked that can be without running the conversion. Raises ConversionError, StorageError,
        InvalidParameter and StorageFull.
        """
        if request.tool is None:
            await self._additional_files.find(request)
        job = await self._new_job(request)
        attempt = None
        if request.idempotency is not None:
            parameters = request.parameters(job.output_format)
            attempt = _Attempt(*await self._idempotency.prepare(request.idempotency, parameters, request.contents))
        return await self._accept(request, job, attempt)

    async def find(self, account_id: str, job_id: str) -> Job:
        """Returns a job of the account. Raises NotFound."""
        return await self._database.run(jobs.get, account_id, job_id)

    async def list_page(
        self, account_id: str, *, limit: int, cursor: str | None, status: Status | None, tag: str | None
    ) -> Page[Job]:
        """Returns at most `limit` jobs of the account, newest first."""
        return await self._database.run(jobs.list_page, account_id, limit=limit, cursor=cursor, status=status, tag=tag)

    async def wait(self, job: Job, seconds: float) -> Job:
        """Waits until the job ends, for at most `seconds`. Returns its latest state."""
        with self.changes.watch(job) as watcher:
            return await watcher.end_of_job(seconds)

    async def end(self, account: Account, job_id: str) -> tuple[Job, bool]:
        """Cancels a job that waits or runs, or deletes one that has ended.

        Returns the job, and whether it was deleted. Raises NotFound.
        """
        if (cancelled := await self.cancel(account, job_id)) is not None:
            return cancelled, False
        return await self.delete(account, job_id), True

    async def cancel(self, account: Account, job_id: str) -> Job | None:
        """Cancels a job that waits or runs. Returns None if it has ended. Raises NotFound."""
        retention = account.tier.file_retention_seconds
        cancelled = await self._database.run(_cancel, account.id, job_id, retention)
        if cancelled is None:
            return None
        self.on_cancel(job_id)
        self._messages.send(CANCELLED, job_id)
        self.notify_ended(job_id, cancelled.messages)
        await self._files.discard(cancelled.job.blobs)
        return cancelled.job

    async def delete(self, account: Account, job_id: str) -> Job:
        """Deletes a job that has ended, with the file that it has made. Raises NotFound, and JobLost if it has not."""
        job = await self._database.run(jobs.delete, account.id, job_id)
        if job.file_id is not None:
            with suppress(NotFound):
                await self._files.delete(account.id, job.file_id)
        return job

    async def run(self) -> None:
        """Sends messages about jobs to other servers, and receives theirs, until cancelled."""
        await self._messages.run(self._receive)

    async def close(self) -> None:
        """Sends the remaining messages. Call it after `run` was cancelled."""
        await self._messages.flush()

    def _receive(self, subject: str, job_id: str) -> None:
        if subject == QUEUED:
            self.on_accept()
        elif subject == CANCELLED:
            self.on_cancel(job_id)
        self.changes.note(job_id)

    def notify_queued(self) -> None:
        """Notifies all servers that a job waits."""
        self.on_accept()
        self._messages.send(QUEUED)

    def notify_ended(self, job_id: str, messages: int) -> None:
        """Notifies clients that wait for a job that it has ended, and wakes the sender if there are `messages`."""
        self.changes.publish(job_id)
        if messages:
            self._sender.wake()

    async def _new_job(self, request: ConversionRequest) -> Job:
        count = len(request.file_ids) if request.batch_id else None
        source = None
        if count is not None:
            target = await self._batches.check(request)
        elif request.remote:  # the job finds out their format
            target = self._conversions.target(request)
        else:
            plan = self._conversions.plan(request)
            source = plan.source.name
            target = plan.output_format
        return Job(
            account=request.account.id,
            operation=request.operation,
            input_format=source,
            output_format=target,
            tag=request.tag,
            webhook_url=request.webhook_url,
            holds=1 if count is None else count,
            test=request.account.key_mode == "test",
            total=count,
        )

    async def _accept(self, request: ConversionRequest, job: Job, attempt: _Attempt | None) -> Acceptance | Replayed:
        if job.test:
            await self._conversions.test_key_limit.count(request.account, job.holds)
        stored = StoredSpec.of(request)
        job = replace(job, inputs=stored.blobs)
        await self._files.put_inputs(job.blobs, request.contents if job.blobs else [])
        lane = self.lane_of(request.account.tenant)
        try:
            accepted = await self._database.run(_accept, job.account, request, job, stored, lane, attempt)
        except CommitUnknown:
            raise  # the job may exist; if not, the orphan sweep deletes its inputs
        except Exception:
            await self._files.discard(job.blobs)
            raise
        if isinstance(accepted, Acceptance):
            self._metrics.accepted.inc()
            self.notify_queued()
            return accepted
        await self._files.discard(job.blobs)
        return replayed(accepted)


def finish(
    transaction: Transaction, /, job: ClaimedJob, status: Ending, retention: int, *, use: LaneUse, **values: str | None
) -> EndedJob:
    """Ends the run of a job. Raises JobLost. `values` are as for `job_runs.end`."""
    return _announce(transaction, job_runs.end(transaction, job, status, retention, use=use, **values))


def _cancel(transaction: Transaction, account_id: str, job_id: str, retention: int) -> EndedJob | None:
    cancelled = jobs.cancel(transaction, account_id, job_id, retention)
    return None if cancelled is None else _announce(transaction, cancelled)


def _announce(transaction: Transaction, job: Job) -> EndedJob:
    """Adds the messages about the end of a job."""
    event = _EVENTS[job.status]
    describe = partial(describe_job, job)
    return EndedJob(job, deliveries.add(transaction, job.account, event, describe, job.webhook_url))


@by_account
def _accept(
    transaction: Transaction,
    account_id: str,
    request: ConversionRequest,
    job: Job,
    stored: StoredSpec,
    lane: LaneRecord,
    attempt: _Attempt | None,
) -> Acceptance | InProgress | Replay | KeyMismatch:
    """Holds the credits of the job, which each of its holds has, or as many as the account has, and queues it.

    Raises NoCredits if the account has none for the first hold.
    """
    account = request.account
    if attempt is not None:
        ledger.lock_account(transaction, account.id)  # another server may lock the key after it, in a group
        outcome = idempotency.begin(transaction, attempt.claim, attempt.fingerprint)
        if not isinstance(outcome, Claim):
            return outcome
    size = 0 if request.file is not None else request.size
    check_quota(transaction, account, size + 1)
    held = balance = 0
    for hold in hold_ids(job.job_id, job.holds):
        try:
            balance = reserve(transaction, account.id, request.credits, account.key_id, hold, owner=UNOWNED).balance
            held += 1
        except NoCredits:
            if not held:
                raise
            break
    accepted = jobs.accept(
        transaction,
        replace(job, holds=held),
        request=stored.to_text(),
        size=size,
        max_running=account.tier.max_concurrent,
        lane=lane,
    )
    response = ResponseData(describe_job(accepted), status=202)
    if attempt is not None:
        idempotency.finish(transaction, attempt.claim, stored_response(response))
    return Acceptance(response, balance)
