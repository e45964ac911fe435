"""The one chargeable operation: every conversion of every endpoint goes through `Conversions.convert`."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from time import perf_counter
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.errors import ConversionError, UnknownFormat
from engine.executor import Executor, Inspection, Job, JobLimits, JobResult
from engine.executor.jobs import DEFAULT_NAME
from engine.formats import FileFormat
from engine.planner import Plan
from engine.registry import Registry
from storage.tables.idempotency import Claim
from storage.tables.usage import UsageRecord
from web.api.operations import ZIP
from web.metrics import Metrics
from web.services.charging import Charge, Charges
from web.services.conversion_request import ChargedConversion, ConversionRequest, ResultFile, Upload
from web.services.fair_queue import QueuedJob
from web.services.files import Files, stem
from web.services.idempotency import IdempotencyService, Replayed
from web.services.job_queue import JobQueue, estimate_memory
from web.services.serializers import tool_counts
from web.services.work_files import WorkFile

log = logging.getLogger("convertd.conversions")


class Conversions:
    """Plans a conversion, holds a credit, queues and runs the job, and settles the charge or releases the hold."""

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        job_queue: JobQueue,
        charges: Charges,
        idempotency: IdempotencyService,
        files: Files,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._job_queue = job_queue
        self._charges = charges
        self._idempotency = idempotency
        self._files = files
        self._metrics = metrics

    async def convert(self, request: ConversionRequest, output: WorkFile) -> ChargedConversion | Replayed:
        """Converts and charges, or returns the stored response of an earlier request with the same idempotency key.

        The result is written to `output`, an empty file, which the caller closes.

        Raises ConversionError, StorageError, StorageFull, and RateLimited, reason `queue_full`, if the queue is full.
        Failed and cancelled conversions are not charged. Cancelling kills the job.
        """
        try:
            outcome = await self._convert(request, output)
        except BaseException as error:
            self._metrics.conversions.record_failure(request.context, error)
            if isinstance(error, ConversionError) and error.code == "processing_failed":
                _log_failure(request, error)
            raise
        if isinstance(outcome, Replayed):
            self._metrics.conversions.replays.inc()
        else:
            self._record(request, outcome)
        return outcome

    async def inspect(self, request: ConversionRequest, output: WorkFile) -> tuple[Plan, Inspection]:
        """Plans the conversion and reads the header of its input. Charges nothing, and leaves `output` empty.

        Raises ConversionError and RateLimited as `convert` does.
        """
        plan = self._plan(request)
        with self._admit(request) as admitted:
            async with self._worker_slot(request, plan, admitted):
                result = await self._run_job(request, plan, _job(request, plan, inspect=True), output)
        return plan, result.inspection or Inspection(None, None, None)

    async def _convert(self, request: ConversionRequest, output: WorkFile) -> ChargedConversion | Replayed:
        plan = self._plan(request)
        # Before credits are held, and not after: jobs that have waited for a stalled database are not refused.
        with self._admit(request) as admitted:
            claim = await self._claim(request, plan)
            return claim if isinstance(claim, Replayed) else await self._charge(request, plan, output, claim, admitted)

    async def _charge(
        self, request: ConversionRequest, plan: Plan, output: WorkFile, claim: Claim | None, admitted: QueuedJob
    ) -> ChargedConversion:
        """Runs the job while a credit is held for it, then settles the charge."""
        usage = UsageRecord(request.operation, plan.source.name, plan.target.name, request.size)
        try:
            account, credits = request.account, CREDITS_PER_CONVERSION
            async with self._charges.hold(account.id, account.key_id, credits, usage, claim) as charge:
                if _is_stored(request):
                    await self._files.check_not_full(account)
                result = await self._run(request, plan, output, admitted)
                started = perf_counter()
                charged = await self._settle(request, plan, result, charge)
                self._metrics.conversions.observe_stage("store", perf_counter() - started)
                return charged
        except ConversionError as error:
            if request.file is not None:
                await self._files.record_failure(account.id, request.file.id, error)
            raise

    def _plan(self, request: ConversionRequest) -> Plan:
        sources = self._sources(request)
        request.context.input_format = sources[0].name
        plan = self._registry.plan(sources, request.target, request.tool, request.options)
        request.context.set_plan(plan)
        return plan

    def _sources(self, request: ConversionRequest) -> list[FileFormat]:
        if request.tool is not None:  # tools raise their own error for input formats that they do not support
            self._registry.tools[request.tool].check([_known_format(upload) for upload in request.uploads])
        return [upload.format for upload in request.uploads]

    async def _claim(self, request: ConversionRequest, plan: Plan) -> Claim | Replayed | None:
        if request.idempotency is None:
            return None
        parameters: dict[str, Any] = {
            "target": plan.target.name,
            "tool": request.tool,
            "options": dict(request.options),
        }
        if request.file is not None:
            return await self._idempotency.claim(request.idempotency, {**parameters, "file": request.file.id})
        return await self._idempotency.claim(request.idempotency, parameters, request.files)

    def _admit(self, request: ConversionRequest) -> AbstractContextManager[QueuedJob]:
        return self._job_queue.admit(request.account.id, request.account.tier.max_concurrent)

    @asynccontextmanager
    async def _worker_slot(self, request: ConversionRequest, plan: Plan, admitted: QueuedJob) -> AsyncIterator[float]:
        """Waits in the queue, and holds a worker slot for the block. Yields the time of its start."""
        account, memory, queued = request.account, estimate_memory(plan, request.size), perf_counter()
        limit = account.tier.max_concurrent
        async with self._job_queue.acquire(account.id, limit, memory=memory, admitted=admitted):
            started = perf_counter()
            self._metrics.workers.queue_wait.observe(started - queued)
            self._metrics.conversions.observe_stage("queue", started - queued)
            with self._metrics.workers.track_job():
                yield started

    async def _run_job(self, request: ConversionRequest, plan: Plan, job: Job, output: WorkFile) -> JobResult:
        inputs, account = [file.descriptor for file in request.files], request.account.id
        limits = JobLimits(seconds=self._job_queue.deadline(account, plan, request.size))
        return await self._executor.run(job, request.account.isolation_key, inputs, output.descriptor, limits)

    async def _run(self, request: ConversionRequest, plan: Plan, output: WorkFile, admitted: QueuedJob) -> ResultFile:
        name = stem(request.original_name)
        async with self._worker_slot(request, plan, admitted) as started:
            result = await self._run_job(request, plan, _job(request, plan, name), output)
            await output.seal(result.size)
        self._metrics.conversions.record_stages(result)
        self._metrics.workers.record_peak_memory(result.peak_memory)
        request.context.set_warnings(result)
        return ResultFile(
            file=output,
            filename=f"{name}.{result.container or plan.target.extensions[0]}",
            media_type=ZIP if result.container else plan.target.media_type,
            size=result.size,
            seconds=perf_counter() - started,
            warnings=result.warnings,
            counts=tool_counts(request, result) if request.tool else {},
            container=result.container,
            file_count=result.file_count,
            quality_used=result.quality_used,
        )

    async def _settle(
        self, request: ConversionRequest, plan: Plan, result: ResultFile, charge: Charge
    ) -> ChargedConversion:
        """Stores the result if the request requires it, and settles the charge. Raises StorageFull."""
        if not _is_stored(request):
            balance, _ = await charge.settle(result.size)
            return ChargedConversion(result, None, balance)
        blob = await self._files.put(result.file)
        try:
            balance, response = await charge.settle(result.size, self._files.result_saver(request, plan, result, blob))
        except BaseException:
            # A client that disconnects during the commit may have paid, and can then download the result.
            if not await charge.is_settled():
                await self._files.discard([blob])
            raise
        return ChargedConversion(result, response, balance)

    def _record(self, request: ConversionRequest, charged: ChargedConversion) -> None:
        request.context.add_credits(CREDITS_PER_CONVERSION)
        self._metrics.credits.charged.labels(request.operation).inc(CREDITS_PER_CONVERSION)
        self._metrics.conversions.record_success(
            request.context,
            charged.result.seconds,
            input_bytes=request.size,
            output_bytes=charged.result.size,
        )


def _job(request: ConversionRequest, plan: Plan, name: str = DEFAULT_NAME, *, inspect: bool = False) -> Job:
    return Job.of(plan, request.options, name, inspect=inspect, memory=estimate_memory(plan, request.size))


def _is_stored(request: ConversionRequest) -> bool:
    """Whether the result is stored: for the client, or because the request may be repeated."""
    return request.store_result or request.idempotency is not None


def _known_format(upload: Upload) -> FileFormat | None:
    try:
        return upload.format
    except UnknownFormat:
        return None


def _log_failure(request: ConversionRequest, error: ConversionError) -> None:
    details = {name: error.details.get(name) for name in ("step", "exit_code")}
    fields = {**request.context.fields(), "reason": error.reason, **details}
    log.warning("conversion failed", extra={"fields": fields})
