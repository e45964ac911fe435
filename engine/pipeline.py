"""Runs a plan: step after step, timed, with warnings collected and failures named."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from engine.conversions import AnyConversion, FidelityWarning, Options
from engine.errors import ConversionError, CorruptInput, OutOfMemory, StepFailed
from engine.formats import FileFormat
from engine.planner import Plan


@dataclass(frozen=True)
class Timing:
    """How long a step took. Media decode lazily, so a decoder's work shows in the step that asks for pixels."""

    step: str
    seconds: float


@dataclass(frozen=True)
class Warned:
    """A fidelity warning, as results list it."""

    code: str
    message: str


@dataclass(frozen=True)
class Result:
    """The target's bytes, and how they came about; `last` is what the last step was given."""

    data: bytes
    trace: tuple[Timing, ...]
    warnings: tuple[Warned, ...]
    last: Any = None


def run(plan: Plan, data: bytes, options: Options) -> Result:
    """Takes `data` along the plan. Raises ConversionError, and nothing else."""
    trace: list[Timing] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if options.quality is not None and not plan.target.lossy:
            message = f"{plan.target} is lossless: quality has no effect."
            warnings.warn(FidelityWarning("quality_ignored", message), stacklevel=2)
        payload: Any = data
        last: Any = None
        for step in plan.steps:
            started = perf_counter()
            last, payload = payload, _take(step, payload, options)
            trace.append(Timing(str(step), perf_counter() - started))
    if not payload:
        raise StepFailed(f"The step {plan.steps[-1]} gave no output.")
    messages = [caution.message for caution in caught]
    said = {w.code: Warned(w.code, w.message) for w in messages if isinstance(w, FidelityWarning)}
    return Result(payload, tuple(trace), tuple(said.values()), last)


def _take(step: AnyConversion, payload: Any, options: Options) -> Any:
    try:
        result = step(payload, options)
    except ConversionError:
        raise
    except MemoryError as error:
        raise OutOfMemory("The conversion needs more memory than it may have.") from error
    except Exception as error:
        # Whoever reads a file finds the file at fault; later steps work on what a decoder vouched for.
        if isinstance(step.source, FileFormat):
            raise CorruptInput(
                f"The file was recognised as {step.source} but cannot be decoded.",
                details={"step": str(step)},
            ) from error
        raise StepFailed(f"The step {step} failed.", details={"step": str(step)}) from error
    if not isinstance(result, step.target.payload):
        kind = type(result).__name__
        raise StepFailed(f"The step {step} returned {kind}, not {step.target.payload.__name__}.")
    return result
