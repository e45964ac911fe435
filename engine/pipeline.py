"""Runs a plan: step after step, timed, with warnings collected and failures named."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from engine.conversions import AnyConversion, AnyTool, Conversion, FidelityWarning
from engine.errors import ConversionError, CorruptInput, OutOfMemory, StepFailed
from engine.formats import FileFormat
from engine.options import Options
from engine.planner import Plan


@dataclass(frozen=True)
class Timing:
    """How long a step took. Media decode lazily, so a decoder's work shows in the step that asks for pixels."""

    step: str
    seconds: float


@dataclass(frozen=True)
class WarningRecord:
    """A fidelity warning, as results list it."""

    code: str
    message: str


@dataclass(frozen=True)
class PipelineResult:
    """The target's bytes, and how they came about; `last` is what the last step was given.

    With a tool, there are the pages of what went in and of what came out.
    """

    data: bytes
    trace: tuple[Timing, ...]
    warnings: tuple[WarningRecord, ...]
    last: Any = None
    input_pages: tuple[int, ...] = ()
    pages: int | None = None


def run(
    plan: Plan, inputs: Iterable[bytes], options: Options, opened: Callable[[Any], None] = lambda _payload: None
) -> PipelineResult:
    """Takes the inputs along the plan, each read when its turn comes. Raises ConversionError, and nothing else.

    `opened` is shown what the first step makes of a file, before the others get it.
    """
    trace: list[Timing] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if options.quality is not None and not plan.target.lossy:
            message = f"{plan.target} is lossless: quality has no effect."
            warnings.warn(FidelityWarning("quality_ignored", message), stacklevel=2)
        payloads = _open_inputs(plan, inputs, options, trace)
        input_pages: tuple[int, ...] = ()
        pages = None
        if plan.tool is None:
            (payload,) = payloads
        else:
            input_pages = tuple(plan.tool.count(opened) for opened in payloads)
            payload = _run_step(plan.tool, payloads, options, trace)
            pages = plan.tool.count(payload)
        last: Any = None
        for step in plan.steps:
            last, payload = payload, _run_step(step, payload, options, trace)
            if isinstance(step.source, FileFormat):
                opened(payload)
    if not payload:
        raise StepFailed(f"The step {plan.steps[-1]} gave no output.")
    messages = [caution.message for caution in caught]
    said = {w.code: WarningRecord(w.code, w.message) for w in messages if isinstance(w, FidelityWarning)}
    return PipelineResult(payload, tuple(trace), tuple(said.values()), last, input_pages, pages)


def _open_inputs(plan: Plan, inputs: Iterable[bytes], options: Options, trace: list[Timing]) -> list[Any]:
    """The inputs as far as the tool wants them. Of several, an error tells which by `details.index`, from 0."""
    payloads: list[Any] = []
    for path, data in zip(plan.openings, inputs, strict=True):
        payload: Any = data
        try:
            for step in path:
                payload = _run_step(step, payload, options, trace)
        except ConversionError as error:
            if len(plan.openings) > 1:
                error.details["index"] = len(payloads)
            raise
        payloads.append(payload)
    return payloads


def _run_step(step: AnyConversion | AnyTool, payload: Any, options: Options, trace: list[Timing]) -> Any:
    started = perf_counter()
    result = _call_step(step, payload, options)
    trace.append(Timing(str(step), perf_counter() - started))
    target = step.target if isinstance(step, Conversion) else step.format
    if not target.holds(result):
        raise StepFailed(f"The step {step} returned {type(result).__name__}, which is no {target}.")
    return result


def _call_step(step: AnyConversion | AnyTool, payload: Any, options: Options) -> Any:
    try:
        return step(payload, options)
    except ConversionError:
        raise
    except MemoryError as error:
        raise OutOfMemory("The conversion needs more memory than it may have.") from error
    except Exception as error:
        # Whoever reads a file finds the file at fault; later steps work on what a decoder vouched for.
        if isinstance(step, Conversion) and isinstance(step.source, FileFormat):
            raise CorruptInput(
                f"The file was recognised as {step.source} but cannot be decoded.",
                details={"step": str(step)},
            ) from error
        raise StepFailed(f"The step {step} failed.", details={"step": str(step)}) from error
