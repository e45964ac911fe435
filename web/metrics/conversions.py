"""Metrics of conversions: outcomes, durations, stages, sizes and errors; the properties of a request for them."""

import asyncio
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import time
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.errors import CorruptInput
from engine.executor import TaskResult
from engine.outcome import Outcome
from engine.planner import Plan
from web.api.errors import STATUS, public_error
from web.api.headers import warning_codes

if TYPE_CHECKING:
    from opentelemetry.trace import Span

OTHER = "other"
"""The label for values outside the known ones, which a client could choose."""

IN_PROCESS = "in_process"
"""The label for plans without external programs."""

STAGES = ("upload", "queue", "decode", "convert", "tool", "encode", "check", "store")
"""The stages of a conversion, in order. Not every conversion has all of them."""

REASONS = frozenset(
    {"timeout", "out_of_memory", "worker_crashed", "corrupt_input", "engine_error", "target_unreachable"}
    | {"unrecognized", "empty_file", "not_a_pdf", "pdf_encrypted", "file_encrypted"}
    | {"bytes", "pixels", "frames", "pages", "scans", "elements"}
    | {"out_of_range", "queue_full", "disk_full", "none"}
)
"""The reasons used as labels. Others become OTHER: a worker process is untrusted and could report any text."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STAGE_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BYTES = tuple(float(1 << power) for power in range(10, 31, 2))
_MEMORY_BYTES = tuple(float(mebibytes << 20) for mebibytes in (64, 128, 256, 512, 1024, 2048, 3072))
# The figures that a job reports are untrusted.
_MAX_SECONDS = 3600.0
_MAX_MEMORY = 1 << 50  # bytes


class StageTime(NamedTuple):
    """A stage of a conversion: its duration, and when it ended as Unix time."""

    name: str
    seconds: float
    ended: float


@dataclass
class RequestContext:
    """Properties of one request. Contains no text of the client, but in `trace_headers`, which no log has.

    `engine` names the external programs of the plan, or is `in_process`. `warnings` are codes, separated by commas.
    `work_ms` is the duration of the job in milliseconds, without the wait in the queue. `stages` are those of all
    conversions of the request. `span` is the one of its trace, if it has begun, which `trace_headers` continue.
    """

    request_id: str = ""
    input_format: str | None = None
    output_format: str | None = None
    engine: str | None = None
    warnings: str | None = None
    credits: int | None = None
    work_ms: int | None = None
    stages: list[StageTime] = field(default_factory=list)
    span: "Span | None" = None
    trace_headers: dict[str, str] = field(default_factory=dict)

    def set_plan(self, plan: Plan) -> None:
        """Sets the formats and the engine of the plan."""
        self.input_format = plan.source.name
        self.output_format = plan.target.name
        self.engine = "+".join(sorted({Path(program).name for program in plan.programs})) or IN_PROCESS

    def add_credits(self, credits: int) -> None:
        """Adds to the credits charged for the request."""
        self.credits = (self.credits or 0) + credits


class ConversionMetrics:
    """Metrics of the conversions of all endpoints. Idempotent replays are counted separately.

    The outcome of a conversion is `success`, `rejected` (invalid file or request), `failed` (server error) or
    `cancelled`.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        counter = partial(Counter, registry=registry)
        histogram = partial(Histogram, registry=registry)
        pair = ("input_format", "output_format", "engine", "outcome")
        self._finished = counter("convertd_conversions", "Finished conversions.", pair)
        self._seconds = histogram(
            "convertd_conversion_duration_seconds",
            "Duration of successful jobs in seconds, without the wait in the queue.",
            ("engine", "output_format"),
            buckets=_SECONDS,
        )
        stages = histogram(
            "convertd_conversion_stage_seconds",
            "Duration of the stages of conversions in seconds.",
            ("stage",),
            buckets=_STAGE_SECONDS,
        )
        self._stages = {stage: stages.labels(stage) for stage in STAGES}
        self._errors = counter("convertd_conversion_errors", "Rejected and failed conversions.", ("code", "reason"))
        self._input = histogram(
            "convertd_input_bytes", "Input size of successful conversions in bytes.", buckets=_BYTES
        )
        self._output = histogram(
            "convertd_output_bytes", "Output size of successful conversions in bytes.", buckets=_BYTES
        )
        self._peak_memory = histogram(
            "convertd_worker_peak_rss_bytes",
            "Peak memory of a worker process during a job in bytes.",
            buckets=_MEMORY_BYTES,
        )
        self.test = counter("convertd_test_conversions", "Successful conversions with test keys.")
        self.replays = counter("convertd_idempotent_replays", "Stored responses returned for an idempotency key.")

    def observe_stage(self, context: RequestContext, name: str, seconds: float, before_end: float = 0.0) -> None:
        """Records the duration of a stage that ended `before_end` seconds ago. Ignores implausible values and NaN."""
        if 0 <= seconds <= _MAX_SECONDS:
            self._stages[name].observe(seconds)
            context.stages.append(StageTime(name, seconds, time() - before_end))

    def record_run(self, context: RequestContext, result: TaskResult, outcome: Outcome) -> None:
        """Records the durations and the memory that a job reports, and what the log has of its outcome.

        Ignores unknown stages and implausible figures: the report is untrusted.
        """
        self.observe_stage(context, "check", result.check_seconds)
        later = result.check_seconds
        for timing in reversed(result.trace):
            if timing.stage in STAGES:
                self.observe_stage(context, timing.stage, timing.seconds, later)
                later += timing.seconds
        if 0 < result.peak_memory < _MAX_MEMORY:
            self._peak_memory.observe(result.peak_memory)
        context.warnings = ",".join(warning_codes(warning.code for warning in outcome.warnings)) or None
        context.work_ms = outcome.processing_time_ms

    def record_success(self, context: RequestContext, outcome: Outcome, *, input_bytes: int) -> None:
        """Records a successful conversion."""
        self._count(context, "success")
        seconds = self._seconds.labels(context.engine or OTHER, context.output_format or OTHER)
        seconds.observe(outcome.processing_time_ms / 1000)
        self._input.observe(input_bytes)
        self._output.observe(outcome.processed_size)

    def record_failure(self, context: RequestContext, error: BaseException) -> None:
        """Records a conversion that was rejected, failed or cancelled."""
        if isinstance(error, asyncio.CancelledError):
            self._count(context, "cancelled")
            return
        public = public_error(error)
        self._count(context, "rejected" if isinstance(public, CorruptInput) or STATUS[public.code] < 500 else "failed")
        reason = public.reason or "none"
        self._errors.labels(public.code, reason if reason in REASONS else OTHER).inc()

    def _count(self, context: RequestContext, outcome: str) -> None:
        formats = (context.input_format or OTHER, context.output_format or OTHER)
        self._finished.labels(*formats, context.engine or OTHER, outcome).inc()
