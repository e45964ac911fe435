"""Conversions for clients: the one chargeable door, through which all of them go."""

from __future__ import annotations

import logging
from dataclasses import asdict
from time import perf_counter
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.errors import ConversionError, UnknownFormat
from engine.executor import Executor, Job, JobLimits
from engine.formats import FileFormat
from engine.planner import Plan
from engine.registry import Registry
from storage.idempotency import Claim
from storage.usage import UsageRecord
from web.metrics import Metrics
from web.services.charging import Charge, Charges
from web.services.conversion_request import Charged, ConversionOutcome, ConversionRequest, Upload
from web.services.files import Files, renamed
from web.services.idempotency import IdempotencyService, Replayed
from web.services.job_queue import JobQueue, estimate_memory
from web.services.serializers import tool_counts

log = logging.getLogger("convertd.conversions")


class Conversions:
    """Identifies, plans, holds a credit, waits for a turn, runs, and settles; or gives the credit back."""

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        job_queue: JobQueue,
        charges: Charges,
        repeats: IdempotencyService,
        files: Files,
        metrics: Metrics,
        limits: JobLimits = JobLimits(),
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._job_queue = job_queue
        self._charges = charges
        self._repeats = repeats
        self._files = files
        self._metrics = metrics
        self._limits = limits

    async def convert(self, order: ConversionRequest) -> Charged | Replayed:
        """Carries the order out. Raises ConversionError, StorageError, or RateLimited where no turn came.

        Cancelling kills the job. Whatever happens before the charge is settled, nothing is charged.
        """
        try:
            done = await self._carried_out(order)
        except BaseException as error:
            self._metrics.conversions.failed(order.context, error)
            if isinstance(error, ConversionError) and error.code == "processing_failed":
                _tell_failure(order, error)
            raise
        self._note(order, done)
        return done

    async def _carried_out(self, order: ConversionRequest) -> Charged | Replayed:
        sources = self._sources(order)
        order.context.input_format = sources[0].name
        plan = self._registry.plan(sources, order.target, order.tool)
        order.context.planned(plan)
        claim = await self._claimed(order, plan)
        if isinstance(claim, Replayed):
            return claim
        use = UsageRecord(order.operation, plan.source.name, plan.target.name, order.size)
        try:
            async with self._charges.charged(order.account.id, CREDITS_PER_CONVERSION, use, claim) as charge:
                result = await self._run(order, plan)
                started = perf_counter()
                done = await self._settled(order, plan, result, charge)
                self._metrics.conversions.stage("store", perf_counter() - started)
                return done
        except ConversionError as error:
            await self._files.note_failure(order, error)
            raise

    def _sources(self, order: ConversionRequest) -> list[FileFormat]:
        if order.tool is not None:  # it has words of its own for files that it does not take
            self._registry.tools[order.tool].check([_known(upload) for upload in order.uploads])
        return [upload.format for upload in order.uploads]

    async def _claimed(self, order: ConversionRequest, plan: Plan) -> Claim | Replayed | None:
        if order.idempotency is None:
            return None
        parameters: dict[str, Any] = {"target": plan.target.name, "tool": order.tool, **asdict(order.options)}
        if order.file is not None:
            return await self._repeats.claim(order.idempotency, {**parameters, "file": order.file.id})
        return await self._repeats.claim(order.idempotency, parameters, order.paths)

    async def _run(self, order: ConversionRequest, plan: Plan) -> ConversionOutcome:
        output = order.folder / f"result.{plan.target.extensions[0]}"
        job = Job.of(plan, order.paths, output, order.options)
        account, memory = order.account, estimate_memory(plan, order.size)
        entered = perf_counter()
        async with self._job_queue.acquire(account.id, account.tier.max_concurrent, memory=memory):
            started = perf_counter()
            self._metrics.waited(started - entered)
            with self._metrics.workers.job():
                done = await self._executor.run(job, self._limits)
        self._metrics.ran(plan, done)
        order.context.warned(done)
        return ConversionOutcome(
            path=output,
            filename=renamed(order.original_name, plan.target.extensions[0]),
            media_type=plan.target.media_type,
            size=done.size,
            seconds=perf_counter() - started,
            warnings=done.warnings,
            counts=tool_counts(order, done),
        )

    def _note(self, order: ConversionRequest, done: Charged | Replayed) -> None:
        conversions = self._metrics.conversions
        if isinstance(done, Replayed):
            conversions.replayed()
            return
        order.context.charged(CREDITS_PER_CONVERSION)
        self._metrics.money.charged(order.operation, CREDITS_PER_CONVERSION)
        conversions.succeeded(order.context, done.result.seconds, given=order.size, made=done.result.size)

    async def _settled(
        self, order: ConversionRequest, plan: Plan, result: ConversionOutcome, charge: Charge
    ) -> Charged:
        """The charge is final, and the result where it is to be, before the client hears of it."""
        if not order.keep and charge.claim is None:
            balance, _ = await charge.settle(result.size)
            return Charged(result, None, balance)
        blob = await self._files.put(result.path)
        try:
            balance, answer = await charge.settle(result.size, self._files.keeping(order, plan, result, blob))
        except BaseException:
            # A client that goes away while the charge is saved has paid for the result, and may come back for it.
            if not await charge.is_settled():
                await self._files.discard([blob])
            raise
        return Charged(result, answer, balance)


def _known(upload: Upload) -> FileFormat | None:
    try:
        return upload.format
    except UnknownFormat:
        return None


def _tell_failure(order: ConversionRequest, error: ConversionError) -> None:
    details = {name: error.details.get(name) for name in ("step", "exit_code")}
    log.warning("conversion failed", extra={"fields": {**order.context.fields(), "reason": error.reason, **details}})
