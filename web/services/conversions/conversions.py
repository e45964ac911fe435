"""The one chargeable operation: every conversion goes through `Conversions`, in a request or in a job."""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from time import perf_counter

from engine.auto_format import AUTO
from engine.errors import ConversionError, UnknownFormat, UnsupportedConversion
from engine.executor import TaskResult
from engine.executor.several import MIXED, losses
from engine.executor.tasks import PlannedOutput, task_of
from engine.file_names import safe_name, stem
from engine.formats import FileFormat
from engine.options import NETWORK
from engine.outcome import Outcome
from engine.planner import Plan
from engine.registry import Registry
from storage.errors import CommitUnknown, HoldLost, JobLost
from storage.tables.ledger import Hold
from storage.tables.usage import UsageRecord
from web.api.schemas.files import PlannedConversion, PlannedResult
from web.metrics import Metrics
from web.services.accounts.key_modes import TestKeyLimit, marked
from web.services.admission.admission import Admission
from web.services.admission.fair_queue import QueuedTask
from web.services.admission.task_costs import DRY_RUN, TaskCost
from web.services.conversions.additional_files import AdditionalFiles
from web.services.conversions.charging import Charge, Charges, Finish
from web.services.conversions.conversion_plan import ConversionPlan, of_output, plan_request
from web.services.conversions.conversion_request import ChargedConversion, ConversionRequest, OutputRequest, Upload
from web.services.conversions.file_executor import FileExecutor
from web.services.conversions.idempotency import IdempotencyService, Replayed
from web.services.conversions.remote_files import RemoteFiles
from web.services.files.files import Files
from web.services.files.work_files import WorkFile

log = logging.getLogger("convertd.conversions")


@dataclass(frozen=True)
class Held:
    """What a job has before it is converted: its place in the queue and its credits.

    `finish` is called in the transaction that settles the charge.
    """

    place: QueuedTask
    hold: Hold
    finish: Finish


class Conversions:
    """Plans a conversion, holds its credits, queues and runs the task, and settles the charge or releases the hold."""

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
        test_key_limit: TestKeyLimit,
    ) -> None:
        self._registry = registry
        self._file_options = frozenset(name for name, option in registry.options.items() if option.file is not None)
        self._executor = executor
        self._admission = admission
        self._charges = charges
        self._idempotency = idempotency
        self._files = files
        self._remote_files = remote_files
        self._additional_files = additional_files
        self._metrics = metrics
        self.test_key_limit = test_key_limit

    def lacks_files(self, request: ConversionRequest) -> bool:
        """Whether the request names files that it does not have: by URL, or as ids of stored files in options."""
        options = self._file_options
        return bool(request.remote) or not (
            options.isdisjoint(request.options) and all(options.isdisjoint(one.options) for one in request.outputs)
        )

    @asynccontextmanager
    async def with_named_files(
        self, request: ConversionRequest, fetch_seconds: float | None = None
    ) -> AsyncIterator[ConversionRequest]:
        """Yields the request with the files that it only names, which exist during the block.

        Raises InvalidParameter if one does not exist or cannot be fetched, FileTooLarge, RateLimited and NoSpace.
        """
        async with AsyncExitStack() as stack:
            if request.remote:
                options = next((one.options for one in request.outputs), request.options)
                remote = [file.for_page(options) for file in request.remote]
                fetched = self._remote_files.fetch(request.account, remote, fetch_seconds)
                request = replace(request, uploads=(*await stack.enter_async_context(fetched), *request.uploads))
            yield await stack.enter_async_context(self._additional_files.with_named_files(request))

    async def convert(
        self, request: ConversionRequest, output: WorkFile, held: Held | None = None
    ) -> ChargedConversion | Replayed:
        """Converts and charges, or returns the stored response of an earlier request with the same idempotency key.

        The result is written to `output`, an empty file, which the caller closes; or only to the blob store if the
        request stores it. A job converts with what it has `held`, which stays if this raises.

        Raises ConversionError, StorageError, StorageFull, and RateLimited, reason `queue_full`, if the queue is full;
        and the errors of `held.finish`. Failed and cancelled conversions are not charged. Cancelling kills the task.
        """
        try:
            plan = self.plan(request)
            # Before credits are held, and not after: jobs that have waited for a stalled database are not refused.
            cost = TaskCost.of(plan.plans, request.size)
            admitted = self._admission.admit(request.account.tenant, cost) if held is None else nullcontext(held.place)
            with admitted as place:
                claim = None
                if held is None and request.account.key_mode == "test":
                    await self.test_key_limit.count(request.account)
                if request.idempotency is not None:
                    parameters = request.parameters(plan.output_format)
                    claimed = await self._idempotency.claim(request.idempotency, parameters, request.contents)
                    if isinstance(claimed, Replayed):
                        self._metrics.conversions.replays.inc()
                        return claimed
                    claim = claimed
                usage = UsageRecord(request.operation, plan.source.name, plan.output_format, request.size)
                if held is None:
                    charging = self._charges.hold(
                        request.account.id, request.account.key_id, request.credits, usage, claim
                    )
                else:
                    charging = self._charges.held(held.hold, usage, held.finish)
                async with charging as charge:
                    outcome = await self._run(request, plan, output, place)
                    converted = await self._settle(request, plan, outcome, output, charge)
        except BaseException as error:
            self._metrics.conversions.record_failure(request.context, error)
            if isinstance(error, ConversionError) and error.code == "processing_failed":
                _log_failure(request, error)
            raise
        if request.account.key_mode == "test":
            self._metrics.conversions.test.inc()
        request.context.add_credits(request.credits)
        self._metrics.credits.charged.labels(request.operation).inc(request.credits)
        self._metrics.conversions.record_success(request.context, outcome, input_bytes=request.size)
        return converted

    async def preview(self, request: ConversionRequest, output: WorkFile) -> Outcome:
        """Converts without a charge. Raises ConversionError and RateLimited as `convert` does."""
        plan = self.plan(request)
        cost = TaskCost.of(plan.plans, request.size)
        with self._admission.admit(request.account.tenant, cost) as place:
            return await self._run(request, plan, output, place)

    async def dry_run(self, request: ConversionRequest, output: WorkFile) -> PlannedConversion:
        """Returns what the conversion would result in. Charges nothing, and leaves `output` empty.

        Raises ConversionError and RateLimited as `convert` does.
        """
        found: list[PlannedResult] = []
        plan = self.plan(request)
        for index, one in enumerate(plan.outputs):
            with of_output(index) if request.outputs else nullcontext():
                found.append(await self._dry_run_output(request, one, output))
        several = bool(request.outputs)
        return PlannedConversion.of_several(found, plan.output_format) if several else PlannedConversion(found[0])

    async def _dry_run_output(self, request: ConversionRequest, one: PlannedOutput, output: WorkFile) -> PlannedResult:
        """The dry run of one output. Of several formats, the first one that loses least is chosen."""
        outcomes: list[tuple[Plan, Outcome]] = []
        for plan in one.plans:
            single = ConversionPlan.of((PlannedOutput((plan,), replace(one.output, name=None)),))
            with self._admission.admit(request.account.tenant, DRY_RUN) as place:
                needed = request.for_output(one.output)
                result, _ = await self._run_task(needed, single, output, place, dry_run=True)
            outcomes.append((plan, result.outcome))
        plan, outcome = min(outcomes, key=lambda each: losses(each[1]))
        return PlannedResult(
            input_format=plan.source.name,
            output_format=plan.target.name if len(one.plans) == 1 else AUTO,
            path=list(plan.step_names),
            losses=list(plan.losses),
            options=plan.effective_options(one.output.options),
            credits=request.price,
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
            tool = self._registry.tools[request.tool]
            tool.check([_known_format(upload) for upload in inputs])
            tool.check_files(request.file_names)
        request.context.input_format = request.uploads[0].format.name
        plan = plan_request(self._registry, request)
        request.context.set_plan(plan.plans[0])
        return plan

    async def find_stored(self, request: ConversionRequest) -> Replayed | None:
        """Returns the stored response of an earlier request with the same idempotency key, before files are fetched.

        The files that the earlier request named may not exist any more. A request that names none has its stored
        response from `convert`. Raises IdempotencyConflict and IdempotencyKeyReused.
        """
        if request.idempotency is None or not self.lacks_files(request):
            return None
        target = self.target(request) if request.remote else self.plan(request).output_format
        return await self._idempotency.find(request.idempotency, request.parameters(target), request.contents)

    def target(self, request: ConversionRequest) -> str:
        """Returns the canonical name of the output format, before files are fetched. Raises ConversionError."""
        if request.tool is not None:
            self._registry.tools[request.tool].check_files(request.file_names)
            return request.target
        return target_of(self._registry, request.target, request.outputs)

    async def _run(
        self, request: ConversionRequest, plan: ConversionPlan, output: WorkFile, place: QueuedTask
    ) -> Outcome:
        """Runs the task, seals its result, and sends it where the client wants it. Saves a failure of a stored file."""
        is_stored = request.store_result or request.idempotency is not None
        if is_stored and not place.background:  # a background job was checked when it was accepted
            await self._files.check_not_full(request.account)
        try:
            result, seconds = await self._run_task(request, plan, output, place)
            outcome = plan.describe(request, result.outcome, seconds)
            if request.account.key_mode == "test":
                outcome = marked(outcome)
            if request.export is not None:
                await self._files.load(output)
                await self._remote_files.send(request.export, output, outcome)
        except ConversionError as error:
            if request.file is not None:
                await self._files.record_failure(request.account.id, request.file.file_id, error)
            raise
        self._metrics.conversions.record_run(request.context, result, outcome)
        return outcome

    async def _run_task(
        self,
        request: ConversionRequest,
        plan: ConversionPlan,
        output: WorkFile,
        place: QueuedTask,
        *,
        dry_run: bool = False,
    ) -> tuple[TaskResult, float]:
        """Waits for a slot and runs the task. Returns its result and its duration in seconds."""
        memory = plan.estimate_memory(request.size)
        queued = perf_counter()
        inputs = len(request.uploads) - len(request.file_names)
        names = [stem(upload.filename) for upload in request.uploads[:inputs]]
        names += [safe_name(upload.filename) for upload in request.uploads[inputs:]]
        name = stem(request.name) if request.name else names[0]
        task = task_of(plan.outputs, name, memory=memory, input_names=names, dry_run=dry_run)
        if any(NETWORK in step.provided for one in plan.plans for step in one.conversions):
            task = replace(task, page=request.uploads[0].page)
        is_trial = bool(request.account.client)
        if is_trial:  # clients behind one address share no process
            task = replace(task, own_process=True)
        contents = [upload.file for upload in request.uploads]
        async with self._admission.acquire(place, memory):
            started = perf_counter()
            seconds = request.account.tier.job_seconds if place.background else None
            limits = self._admission.limits(place, plan.plans, request.size, seconds)
            self._metrics.workers.queue_wait.observe(started - queued)
            self._metrics.conversions.observe_stage(request.context, "queue", started - queued)
            with self._metrics.workers.track_job():
                result = await self._executor.run_on_files(task, place.tenant.id, contents, output, limits)
                place.used = result.seconds
                place.seconds = None if is_trial or dry_run else result.seconds
        if output.stored is not None and not request.store_result:  # else, the response does not have it
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
        self._metrics.conversions.observe_stage(request.context, "store", perf_counter() - started)
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
    raise UnsupportedConversion(f"No conversion has the output format {name}.{registry.nearest(name)}", details=details)


def _known_format(upload: Upload) -> FileFormat | None:
    try:
        return upload.format
    except UnknownFormat:
        return None


def _log_failure(request: ConversionRequest, error: ConversionError) -> None:
    details = {name: error.details.get(name) for name in ("step", "exit_code")}
    fields = {**vars(request.context), "reason": error.reason, "cause": error.cause, **details}
    log.warning("conversion failed", extra={"fields": fields})
