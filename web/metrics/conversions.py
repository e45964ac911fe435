"""Values of labels that several modules share."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, Counter, Histogram

from engine.conversions import AnyConversion
from engine.errors import CorruptInput
from engine.executor import JobResult
from engine.formats import FileFormat
from engine.planner import Plan
from web.api.errors import STATUS, public_error
from web.metrics.request_context import RequestContext

OTHER = "other"
"""What is not ours to name."""


STAGES = ("upload", "queue", "decode", "convert", "tool", "encode", "check", "store")
"""What a conversion goes through, in this order; it need not go through all."""

OUTCOMES = ("success", "rejected", "failed", "cancelled")
"""How conversions end: rejected because of the file or the request, failed because of us, cancelled by the client."""

REASONS = frozenset(
    {
        *("timeout", "out_of_memory", "worker_crashed", "corrupt_input", "engine_error"),
        *("unrecognized", "empty_file", "not_a_pdf", "pdf_encrypted"),
        *("bytes", "pixels", "frames", "pages", "scans", "elements"),
        *("out_of_range", "queue_full", "disk_full", "none"),
    }
)
"""Reasons that have a label of their own; a job's process could tell any."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_STAGE_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_BYTES = tuple(float(1 << power) for power in range(10, 31, 2))
_LONGEST = 3600.0  # seconds; what a job tells of itself need not be true


class ConversionMetrics:
    """Told of every conversion, by whichever door it came. One that is answered with what it was before is a replay."""

    def __init__(self, registry: CollectorRegistry) -> None:
        pair = ("input_format", "output_format", "engine", "outcome")
        self._ended = Counter("convertd_conversions", "Conversions that ended.", pair, registry=registry)
        self._seconds = Histogram(
            "convertd_conversion_duration_seconds",
            "The job of a conversion that succeeded, from its turn to its result.",
            ("engine", "output_format"),
            buckets=_SECONDS,
            registry=registry,
        )
        stages = Histogram(
            "convertd_conversion_stage_seconds",
            "What a conversion goes through.",
            ("stage",),
            buckets=_STAGE_SECONDS,
            registry=registry,
        )
        self._stages = {stage: stages.labels(stage) for stage in STAGES}
        self._errors = Counter(
            "convertd_conversion_errors", "Conversions that were not done.", ("code", "reason"), registry=registry
        )
        self._input = Histogram(
            "convertd_input_bytes", "What a successful conversion was given.", buckets=_BYTES, registry=registry
        )
        self._output = Histogram(
            "convertd_output_bytes", "What a successful conversion made.", buckets=_BYTES, registry=registry
        )
        self._replays = Counter(
            "convertd_idempotent_replays", "Requests answered as they were the first time.", registry=registry
        )

    def stage(self, name: str, seconds: float) -> None:
        """A stage took so long."""
        if 0 <= seconds <= _LONGEST:  # which also keeps what is no number out of the sum
            self._stages[name].observe(seconds)

    def ran(self, plan: Plan, done: JobResult) -> None:
        """A job is done; these are its own words, of which only the plan's steps count."""
        steps = [step for path in (*plan.openings, plan.steps) for step in path]
        stages = {str(step): _stage(step) for step in steps}
        if plan.tool is not None:
            stages[str(plan.tool)] = "tool"
        for timing in done.trace:
            if timing.step in stages:
                self.stage(stages[timing.step], timing.seconds)
        self.stage("check", done.check_seconds)

    def succeeded(self, context: RequestContext, seconds: float, *, given: int, made: int) -> None:
        """A conversion ended well: its job took so long, and made so many bytes of those that it was given."""
        self._end(context, "success")
        self._seconds.labels(context.engine or OTHER, context.output_format or OTHER).observe(seconds)
        self._input.observe(given)
        self._output.observe(made)

    def failed(self, context: RequestContext, error: BaseException) -> None:
        """A conversion ended otherwise."""
        if isinstance(error, asyncio.CancelledError):
            self._end(context, "cancelled")
            return
        shown = public_error(error)
        self._end(context, "rejected" if isinstance(shown, CorruptInput) or STATUS[shown.code] < 500 else "failed")
        reason = shown.reason or "none"
        self._errors.labels(shown.code, reason if reason in REASONS else OTHER).inc()

    def replayed(self) -> None:
        """A request got the answer that it had before."""
        self._replays.inc()

    def _end(self, context: RequestContext, outcome: str) -> None:
        known = (context.input_format, context.output_format, context.engine)
        self._ended.labels(*(value or OTHER for value in known), outcome).inc()


def _stage(step: AnyConversion) -> str:
    match isinstance(step.source, FileFormat), isinstance(step.target, FileFormat):
        case True, False:
            return "decode"
        case False, True:
            return "encode"
        case _:
            return "convert"
