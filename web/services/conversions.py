"""The one chargeable operation: every conversion goes through `Conversions`, in a request or in a job."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import perf_counter

from config.pricing import CREDITS_PER_CONVERSION
from engine.errors import ConversionError, UnknownFormat, UnsupportedConversion
from engine.executor import Job, JobLimits, JobResult
from engine.formats import FileFormat
from engine.outcome import Outcome
from engine.planner import Plan
from engine.registry import Registry
from storage.errors import CommitUnknown, HoldLost, JobLost
from storage.tables.idempotency import Claim
from storage.tables.ledger import Hold
from storage.tables.usage import UsageRecord
from web.api.operations import ZIP
from web.api.schemas.files import PlannedConversion
from web.metrics import Metrics
from web.services.charging import Charge, Charges, Finish
from web.services.conversion_request import ChargedConversion, ConversionRequest, Upload
from web.services.fair_queue import QueuedJob
from web.services.file_executor import FileExecutor
from web.services.files import Files, stem
from web.services.idempotency import IdempotencyService, Replayed
from web.services.job_queue import JobQueue, estimate_memory
from web.services.remote_files import RemoteFiles
from web.services.work_files import WorkFile

log = logging.getLogger("convertd.conversions")


class Conversions:
    """Plans a conversion, holds a credit, queues and runs the job, and settles the charge or releases the hold."""

    def __init__(
        self,
        registry: Registry,
        executor: FileExecutor,
        job_queue: JobQueue,
        charges: Charges,
        idempotency: IdempotencyService,
        files: Files,
        remote_files: RemoteFiles,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._job_queue = job_queue
        self._charges = charges
        self._idempotency = idempotency
        self._files = files
        self._remote_files = remote_files
        self._metrics = metrics

    async def convert(self, request: ConversionRequest, output: WorkFile) -> ChargedConversion | Replayed:
        """Converts and charges, or returns the stored response of an earlier request with the same idempotency key.

        The result is written to `output`, an empty file, which the caller closes; or only to the blob store if the
        request stores it.

        Raises ConversionError, StorageError, StorageFull, and RateLimited, reason `queue_full`, if the queue is full.
        Failed and cancelled conversions are not charged. Cancelling kills the job.
        """
        with self._recorded_failure(request):
            plan = self.plan(request)
            # Before credits are held, and not after: jobs that have waited for a stalled database are not refused.
            account = request.account
            with self._job_queue.admit(account.tenant) as admitted:
                claim = await self._claim(request, plan)
                if isinstance(claim, Replayed):
                    self._metrics.conversions.replays.inc()
                    return claim
                usage = _usage(request, plan)
                credits = CREDITS_PER_CONVERSION
                async with self._charges.hold(account.id, account.key_id, credits, usage, claim) as charge:
                    return await self._run_and_settle(request, plan, output, admitted, charge)

    async def convert_held(
        self, request: ConversionRequest, output: WorkFile, admitted: QueuedJob, hold: Hold, finish: Finish
    ) -> ChargedConversion:
        """Converts for a credit that is held, and with a place in the queue.

        `finish` is called in the transaction that settles the charge. Raises as `convert` does, and the errors of
        `finish`. If it raises, the hold remains.
        """
        with self._recorded_failure(request):
            plan = self.plan(request)
            charge = self._charges.held(hold, _usage(request, plan), finish)
            return await self._run_and_settle(request, plan, output, admitted, charge)

    async def preview(self, request: ConversionRequest, output: WorkFile) -> Outcome:
        """Converts without a charge. Raises ConversionError and RateLimited as `convert` does."""
        plan = self.plan(request)
        with self._job_queue.admit(request.account.tenant) as admitted:
            return await self._run(request, plan, output, admitted)

    async def foresee(self, request: ConversionRequest, output: WorkFile) -> PlannedConversion:
        """Returns what the conversion would result in. Charges nothing, and leaves `output` empty.

        Raises ConversionError and RateLimited as `convert` does.
        """
        plan = self.plan(request)
        with self._job_queue.admit(request.account.tenant) as admitted:
            result, _ = await self._run_job(request, plan, output, admitted, dry_run=True)
        outcome = result.outcome
        return PlannedConversion(
            input_format=plan.source.name,
            output_format=plan.target.name,
            path=list(plan.step_names),
            losses=list(plan.losses),
            options=plan.effective_options(request.options),
            credits=CREDITS_PER_CONVERSION,
            width=outcome.width,
            height=outcome.height,
            pages=outcome.pages,
            container=outcome.container,
            file_count=outcome.file_count,
            warnings=outcome.warnings,
        )

    def plan(self, request: ConversionRequest) -> Plan:
        """Returns the steps of the conversion. Raises ConversionError if there is none, or an option is invalid."""
        if request.tool is not None:  # tools raise their own error for input formats that they do not support
            inputs = request.uploads[: len(request.uploads) - len(request.file_names)]
            self._registry.tools[request.tool].check([_known_format(upload) for upload in inputs])
        sources = [upload.format for upload in request.uploads]
        request.context.input_format = sources[0].name
        plan = self._registry.plan(sources, request.target, request.tool, request.options, request.file_names)
        request.context.set_plan(plan)
        return plan

    async def find_stored(self, request: ConversionRequest) -> Replayed | None:
        """Returns the stored response of an earlier request with the same idempotency key, before files are fetched.

        The URLs of the earlier request may not work any more. Raises IdempotencyConflict and IdempotencyKeyReused.
        """
        if request.idempotency is None:
            return None
        parameters = request.parameters(self.target(request))
        return await self._idempotency.find(request.idempotency, parameters, request.contents)

    def target(self, request: ConversionRequest) -> str:
        """Returns the canonical name of the output format, before files are fetched. Raises UnsupportedConversion."""
        return request.target if request.tool is not None else output_format(self._registry, request.target)

    @contextmanager
    def _recorded_failure(self, request: ConversionRequest) -> Iterator[None]:
        """Counts the conversion if the block raises, and logs a failure."""
        try:
            yield
        except BaseException as error:
            self._metrics.conversions.record_failure(request.context, error)
            if isinstance(error, ConversionError) and error.code == "processing_failed":
                _log_failure(request, error)
            raise

    async def _claim(self, request: ConversionRequest, plan: Plan) -> Claim | Replayed | None:
        if request.idempotency is None:
            return None
        parameters = request.parameters(plan.target.name)
        return await self._idempotency.claim(request.idempotency, parameters, request.contents)

    async def _run_and_settle(
        self, request: ConversionRequest, plan: Plan, output: WorkFile, admitted: QueuedJob, charge: Charge
    ) -> ChargedConversion:
        outcome = await self._run(request, plan, output, admitted)
        converted = await self._settle(request, plan, outcome, output, charge)
        request.context.add_credits(CREDITS_PER_CONVERSION)
        self._metrics.credits.charged.labels(request.operation).inc(CREDITS_PER_CONVERSION)
        self._metrics.conversions.record_success(request.context, outcome, input_bytes=request.size)
        return converted

    async def _run(self, request: ConversionRequest, plan: Plan, output: WorkFile, admitted: QueuedJob) -> Outcome:
        """Runs the job, seals its result, and sends it where the client wants it. Saves a failure of a stored file."""
        if request.is_stored and not admitted.background:  # that was checked when the job was accepted
            await self._files.check_not_full(request.account)
        try:
            result, seconds = await self._run_job(request, plan, output, admitted)
            outcome = _describe(request, plan, result.outcome, seconds)
            if request.export is not None:
                await self._files.load(output)
                await self._remote_files.send(request.export, output, outcome)
        except ConversionError as error:
            if request.file is not None:
                await self._files.record_failure(request.account.id, request.file.file_id, error)
            raise
        self._metrics.conversions.record_stages(result)
        self._metrics.workers.record_peak_memory(result.peak_memory)
        request.context.set_warnings(outcome.warnings)
        return outcome

    async def _run_job(
        self, request: ConversionRequest, plan: Plan, output: WorkFile, admitted: QueuedJob, *, dry_run: bool = False
    ) -> tuple[JobResult, float]:
        """Waits in the queue and runs the job. Returns its result and its duration in seconds."""
        tenant, memory, queued = admitted.tenant, estimate_memory(plan, request.size, request.options), perf_counter()
        name, names = stem(request.original_name), [stem(upload.filename) for upload in request.uploads]
        job = Job.of(plan, request.options, name, dry_run=dry_run, memory=memory, input_names=names)
        is_trial = bool(request.account.client)
        if is_trial:  # clients behind one address share no process
            job = replace(job, isolated=True)
        inputs = [upload.file for upload in request.uploads]
        async with self._job_queue.acquire(admitted, memory):
            started = perf_counter()
            limits = JobLimits(
                seconds=request.account.tier.job_seconds
                if admitted.background
                else self._job_queue.deadline(tenant, plan, request.size)
            )
            self._metrics.workers.queue_wait.observe(started - queued)
            self._metrics.conversions.observe_stage("queue", started - queued)
            with self._metrics.workers.track_job():
                result = await self._executor.run_on_files(job, tenant.id, inputs, output, limits)
                if not dry_run:
                    admitted.seconds = None if is_trial or admitted.background else result.seconds
        if not request.store_result:  # else, the response does not have it
            await self._files.load(output)
        return result, perf_counter() - started

    async def _settle(
        self, request: ConversionRequest, plan: Plan, outcome: Outcome, output: WorkFile, charge: Charge
    ) -> ChargedConversion:
        """Stores the result if the request requires it, and settles the charge. Raises StorageFull."""
        started = perf_counter()
        if not request.stores(outcome.processed_size):
            balance, response = await charge.settle(outcome.processed_size)
        else:
            blob = await self._files.put(output)
            save = self._files.result_saver(request, plan.source, outcome, blob)
            try:
                balance, response = await charge.settle(outcome.processed_size, save)
            except CommitUnknown:
                raise  # it may be the result of a charge; if not, the orphan sweep deletes it
            except (HoldLost, JobLost):
                await self._files.discard([blob])
                raise
            except BaseException:
                # A client that disconnects during the commit may have paid, and can then download the result.
                if not await charge.is_settled():
                    await self._files.discard([blob])
                raise
        self._metrics.conversions.observe_stage("store", perf_counter() - started)
        return ChargedConversion(output, outcome, response, balance)


def output_format(registry: Registry, name: str) -> str:
    """The canonical name of an output format. Raises UnsupportedConversion if no conversion has this output."""
    fmt = registry.format(name)
    available = sorted({target.name for _, target in registry.pairs()})
    if fmt is not None and fmt.name in available:
        return fmt.name
    details = {"output_format": fmt.name if fmt else name, "available": available}
    raise UnsupportedConversion(f"No conversion has the output format {name}.", details=details)


def _describe(request: ConversionRequest, plan: Plan, outcome: Outcome, seconds: float) -> Outcome:
    """The outcome of a job, with what the job does not know."""
    is_archive = outcome.container is not None
    return replace(
        outcome,
        output_format=plan.target.name,
        media_type=ZIP if is_archive else plan.target.media_type,
        filename=f"{stem(request.original_name)}.{'zip' if is_archive else plan.target.extensions[0]}",
        processing_time_ms=round(seconds * 1000),
    )


def _usage(request: ConversionRequest, plan: Plan) -> UsageRecord:
    return UsageRecord(request.operation, plan.source.name, plan.target.name, request.size)


def _known_format(upload: Upload) -> FileFormat | None:
    try:
        return upload.format
    except UnknownFormat:
        return None


def _log_failure(request: ConversionRequest, error: ConversionError) -> None:
    details = {name: error.details.get(name) for name in ("step", "exit_code")}
    fields = {**vars(request.context), "reason": error.reason, "cause": error.cause, **details}
    log.warning("conversion failed", extra={"fields": fields})
