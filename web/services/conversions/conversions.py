"""The one chargeable operation: every conversion goes through `Conversions`, in a request or in a job."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from time import perf_counter

from config.pricing import CREDITS_PER_CONVERSION
from engine.auto_format import AUTO
from engine.errors import ConversionError, UnknownFormat, UnsupportedConversion
from engine.executor import TaskResult
from engine.executor.several import MIXED, PlannedOutput, losses, task_of
from engine.formats import FileFormat
from engine.outcome import Outcome
from engine.planner import Plan
from engine.registry import Registry
from storage.errors import CommitUnknown, HoldLost, JobLost
from storage.tables.idempotency import Claim
from storage.tables.ledger import Hold
from storage.tables.usage import UsageRecord
from web.api.schemas.files import PlannedConversion, PlannedResult
from web.metrics import Metrics
from web.services.admission.admission import Admission
from web.services.admission.fair_queue import QueuedTask
from web.services.admission.task_costs import DRY_RUN
from web.services.conversions.additional_files import AdditionalFiles
from web.services.conversions.charging import Charge, Charges, Finish
from web.services.conversions.conversion_plan import ConversionPlan, of_output, plan_request
from web.services.conversions.conversion_request import ChargedConversion, ConversionRequest, OutputRequest, Upload
from web.services.conversions.file_executor import FileExecutor
from web.services.conversions.idempotency import IdempotencyService, Replayed
from web.services.conversions.remote_files import RemoteFiles
from web.services.files.files import Files, stem
from web.services.files.work_files import WorkFile

log = logging.getLogger("convertd.conversions")


class Conversions:
    """Plans a conversion, holds a credit, queues and runs the job, and settles the charge or releases the hold."""

    def __init__(
        self,
        registry: Registry,
        executor: FileExecutor,
        admission: Admission,
        charges: Charges,
        idempotency: IdempotencyService,
        files: Files,
        remote_files: RemoteFiles,
        additional_files: AdditionalFiles,
        metrics: Metrics,
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._admission = admission
        self._charges = charges
        self._idempotency = idempotency
        self._files = files
        self._remote_files = remote_files
        self._additional_files = additional_files
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
            with self._admission.admit(account.tenant, plan.cost(request.size)) as admitted:
                claim = await self._claim(request, plan)
                if isinstance(claim, Replayed):
                    self._metrics.conversions.replays.inc()
                    return claim
                usage = _usage(request, plan)
                async with self._charges.hold(account.id, account.key_id, request.credits, usage, claim) as charge:
                    return await self._run_and_settle(request, plan, output, admitted, charge)

    async def convert_held(
        self, request: ConversionRequest, output: WorkFile, admitted: QueuedTask, hold: Hold, finish: Finish
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
        with self._admission.admit(request.account.tenant, plan.cost(request.size)) as admitted:
            return await self._run(request, plan, output, admitted)

    async def dry_run(self, request: ConversionRequest, output: WorkFile) -> PlannedConversion:
        """Returns what the conversion would result in. Charges nothing, and leaves `output` empty.

        Raises ConversionError and RateLimited as `convert` does.
        """
        found: list[PlannedResult] = []
        async with self._additional_files.complete(request) as complete:
            plan = self.plan(complete)
            for index, one in enumerate(plan.outputs):
                with of_output(index) if request.outputs else nullcontext():
                    found.append(await self._dry_run_output(complete, one, output))
        several = bool(request.outputs)
        return PlannedConversion.of_several(found, plan.output_format) if several else PlannedConversion(found[0])

    async def _dry_run_output(self, request: ConversionRequest, one: PlannedOutput, output: WorkFile) -> PlannedResult:
        """Foresees one output. Of several formats, the first one that loses least is chosen."""
        outcomes: list[tuple[Plan, Outcome]] = []
        for plan in one.plans:
            single = ConversionPlan((PlannedOutput((plan,), replace(one.output, name=None)),))
            with self._admission.admit(request.account.tenant, DRY_RUN) as admitted:
                needed = request.for_output(one.output)
                result, _ = await self._run_complete(needed, single, output, admitted, dry_run=True)
            outcomes.append((plan, result.outcome))
        plan, outcome = min(outcomes, key=lambda each: losses(each[1]))
        return PlannedResult(
            input_format=plan.source.name,
            output_format=plan.target.name if len(one.plans) == 1 else AUTO,
            path=list(plan.step_names),
            losses=list(plan.losses),
            options=plan.effective_options(one.output.options),
            credits=CREDITS_PER_CONVERSION,
            width=outcome.width,
            height=outcome.height,
            pages=outcome.pages,
            container=outcome.container,
            file_count=outcome.file_count,
            warnings=outcome.warnings,
        )

    def plan(self, request: ConversionRequest) -> ConversionPlan:
        """Returns the steps of the conversion. Raises ConversionError if there is none, or an option is invalid."""
        if request.tool is not None:  # tools raise their own error for input formats that they do not support
            inputs = request.uploads[: len(request.uploads) - len(request.file_names)]
            self._registry.tools[request.tool].check([_known_format(upload) for upload in inputs])
        request.context.input_format = request.uploads[0].format.name
        plan = plan_request(self._registry, request)
        request.context.set_plan(plan.first)
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
        return (
            request.target if request.tool is not None else target_of(self._registry, request.target, request.outputs)
        )

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

    async def _claim(self, request: ConversionRequest, plan: ConversionPlan) -> Claim | Replayed | None:
        if request.idempotency is None:
            return None
        parameters = request.parameters(plan.output_format)
        return await self._idempotency.claim(request.idempotency, parameters, request.contents)

    async def _run_and_settle(
        self, request: ConversionRequest, plan: ConversionPlan, output: WorkFile, admitted: QueuedTask, charge: Charge
    ) -> ChargedConversion:
        outcome = await self._run(request, plan, output, admitted)
        converted = await self._settle(request, plan, outcome, output, charge)
        request.context.add_credits(request.credits)
        self._metrics.credits.charged.labels(request.operation).inc(request.credits)
        self._metrics.conversions.record_success(request.context, outcome, input_bytes=request.size)
        return converted

    async def _run(
        self, request: ConversionRequest, plan: ConversionPlan, output: WorkFile, admitted: QueuedTask
    ) -> Outcome:
        """Runs the job, seals its result, and sends it where the client wants it. Saves a failure of a stored file."""
        if request.is_stored and not admitted.background:  # a background job was checked when it was accepted
            await self._files.check_not_full(request.account)
        try:
            result, seconds = await self._run_job(request, plan, output, admitted)
            outcome = plan.describe(request, result.outcome, seconds)
            if request.export is not None:
                await self._files.load(output)
                await self._remote_files.send(request.export, output, outcome)
        except ConversionError as error:
            if request.file is not None:
                await self._files.record_failure(request.account.id, request.file.file_id, error)
            raise
        self._metrics.conversions.record_run(request.context, result, outcome)
        return outcome

    async def _run_job(
        self, request: ConversionRequest, plan: ConversionPlan, output: WorkFile, admitted: QueuedTask
    ) -> tuple[TaskResult, float]:
        """Runs the job with the files of its options. Returns its result and its duration in seconds."""
        async with self._additional_files.complete(request) as complete:
            plan = plan if complete.file_names == request.file_names else self.plan(complete)
            return await self._run_complete(complete, plan, output, admitted)

    async def _run_complete(
        self,
        request: ConversionRequest,
        plan: ConversionPlan,
        output: WorkFile,
        admitted: QueuedTask,
        *,
        dry_run: bool = False,
    ) -> tuple[TaskResult, float]:
        """Waits in the queue and runs the job."""
        tenant, memory, queued = admitted.tenant, plan.estimate_memory(request.size), perf_counter()
        name, names = stem(request.original_name), [stem(upload.filename) for upload in request.uploads]
        job = task_of(plan.outputs, name, memory=memory, input_names=names, dry_run=dry_run)
        is_trial = bool(request.account.client)
        if is_trial:  # clients behind one address share no process
            job = replace(job, isolated=True)
        inputs = [upload.file for upload in request.uploads]
        async with self._admission.acquire(admitted, memory):
            started = perf_counter()
            seconds = request.account.tier.job_seconds if admitted.background else None
            limits = self._admission.limits(admitted, plan.plans, request.size, seconds)
            self._metrics.workers.queue_wait.observe(started - queued)
            self._metrics.conversions.observe_stage("queue", started - queued)
            with self._metrics.workers.track_job():
                result = await self._executor.run_on_files(job, tenant.id, inputs, output, limits)
                admitted.used = result.seconds
                admitted.seconds = None if is_trial or dry_run else result.seconds
        if not request.store_result:  # else, the response does not have it
            await self._files.load(output)
        return result, perf_counter() - started

    async def _settle(
        self, request: ConversionRequest, plan: ConversionPlan, outcome: Outcome, output: WorkFile, charge: Charge
    ) -> ChargedConversion:
        """Stores the result if the request requires it, and settles the charge. Raises StorageFull."""
        started = perf_counter()
        made = [(one.output_format, one.processed_size) for one in outcome.outputs or (outcome,)]
        if not request.stores(outcome.processed_size):
            balance, response = await charge.settle(made)
        else:
            blob = await self._files.put(output)
            save = self._files.result_saver(request, plan.source, outcome, blob)
            try:
                # The row of a stored file and its batch are locked before the account's sum of sizes.
                balance, response = await charge.settle(made, save, alone=request.file is not None)
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


def target_of(registry: Registry, name: str, outputs: Sequence[OutputRequest]) -> str:
    """The canonical name of an output format, or MIXED of several ones. Raises UnsupportedConversion."""
    names = {output_format(registry, one) for one in ([each.target for each in outputs] or [name])}
    return names.pop() if len(names) == 1 else MIXED


def output_format(registry: Registry, name: str) -> str:
    """Returns the canonical name of an output format, or AUTO. Raises UnsupportedConversion for any other."""
    if name.lower() == AUTO:
        return AUTO
    fmt = registry.format(name)
    available = sorted({target.name for _, target in registry.pairs()})
    if fmt is not None and fmt.name in available:
        return fmt.name
    details = {"output_format": fmt.name if fmt else name, "available": available}
    raise UnsupportedConversion(f"No conversion has the output format {name}.", details=details)


def _usage(request: ConversionRequest, plan: ConversionPlan) -> UsageRecord:
    return UsageRecord(request.operation, plan.source.name, plan.output_format, request.size)


def _known_format(upload: Upload) -> FileFormat | None:
    try:
        return upload.format
    except UnknownFormat:
        return None


def _log_failure(request: ConversionRequest, error: ConversionError) -> None:
    details = {name: error.details.get(name) for name in ("step", "exit_code")}
    fields = {**vars(request.context), "reason": error.reason, "cause": error.cause, **details}
    log.warning("conversion failed", extra={"fields": fields})
