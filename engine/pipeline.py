"""Runs a plan step by step, measures each step, collects fidelity warnings and maps failures to ConversionError."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from engine.conversions import AnyConversion, AnyTool, AnyTransform, Conversion, FidelityWarning, Tool
from engine.errors import ConversionError, CorruptInput, InvalidOption, OutOfMemory, StepFailed
from engine.formats import FileFormat
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan


@dataclass(frozen=True)
class Timing:
    """The duration of a step in seconds, and its stage: decode, convert, tool or encode.

    Rasters are decoded lazily, so decoding counts towards the step that reads the pixels.
    """

    step: str
    stage: str
    seconds: float


@dataclass(frozen=True)
class WarningRecord:
    """A fidelity warning of a result."""

    code: str
    message: str


@dataclass(frozen=True)
class PipelineResult:
    """The target's bytes, the duration of each step and the warnings.

    `encoder_input` is the payload that the last step received. `input_pages` and `pages` are the page counts of the
    inputs and of the result; they are set only if the plan has a tool.
    """

    data: bytes
    trace: tuple[Timing, ...]
    warnings: tuple[WarningRecord, ...]
    encoder_input: Any = None
    input_pages: tuple[int, ...] = ()
    pages: int | None = None


def run(
    plan: Plan,
    inputs: Iterable[bytes],
    options: OptionValues = NO_OPTIONS,
    on_decoded: Callable[[Sequence[Any]], None] = lambda _payloads: None,
) -> PipelineResult:
    """Runs the plan. Reads each input only when it is needed. Raises ConversionError only.

    `on_decoded` receives a decoded input, and its transformed versions, before the next conversion does.
    """
    trace: list[Timing] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _check_options(plan, options)
        payloads = _open_inputs(plan, inputs, options, trace)
        input_pages: tuple[int, ...] = ()
        pages = None
        if plan.tool is None:
            (payload,) = payloads
        else:
            input_pages = tuple(plan.tool.count(payload) for payload in payloads)
            payload = _run_step(plan.tool, payloads, options, trace)
            pages = plan.tool.count(payload)
        encoder_input: Any = None
        decoded: list[Any] = []
        for step in plan.steps:
            if decoded and isinstance(step, Conversion):
                on_decoded(decoded)
                decoded = []
            encoder_input, payload = payload, _run_step(step, payload, options, trace)
            if decoded or (isinstance(step, Conversion) and isinstance(step.source, FileFormat)):
                decoded.append(payload)
    if not payload:
        raise StepFailed(f"The step {plan.steps[-1]} returned no data.")
    messages = [record.message for record in caught]
    records = {w.code: WarningRecord(w.code, w.message) for w in messages if isinstance(w, FidelityWarning)}
    return PipelineResult(payload, tuple(trace), tuple(records.values()), encoder_input, input_pages, pages)


def _check_options(plan: Plan, options: OptionValues) -> None:
    """Issues a warning for options that the plan does not have. Raises InvalidOption if a required one is missing."""
    for option in plan.options.values():
        if option.required and option.name not in options:
            raise InvalidOption(f"{option.name} is missing.", reason="missing", param=option.name)
    ignored = [name for name in options if name not in plan.options]
    lossless = "lossless" in plan.options and options.get("lossless")
    if "quality" in ignored or ("quality" in options and lossless):
        ignored = [name for name in ignored if name != "quality"]
        message = f"{'This' if lossless else plan.target} is lossless: quality has no effect."
        warnings.warn(FidelityWarning("quality_ignored", message), stacklevel=3)
    if ignored:
        message = f"Options without effect on {plan.source} to {plan.target}: {', '.join(ignored)}."
        warnings.warn(FidelityWarning("option_ignored", message), stacklevel=3)


def _open_inputs(plan: Plan, inputs: Iterable[bytes], options: OptionValues, trace: list[Timing]) -> list[Any]:
    """Runs the openings. With several inputs, `details.index` of an error is the index of the input at fault."""
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


def _run_step(
    step: AnyConversion | AnyTransform | AnyTool, payload: Any, options: OptionValues, trace: list[Timing]
) -> Any:
    started = perf_counter()
    result = _call_step(step, payload, options)
    trace.append(Timing(str(step), _stage(step), perf_counter() - started))
    target = step.format if isinstance(step, Tool) else step.target
    if not target.holds(result):
        raise StepFailed(f"The step {step} returned {type(result).__name__}, not {target}.")
    return result


def _call_step(step: AnyConversion | AnyTransform | AnyTool, payload: Any, options: OptionValues) -> Any:
    try:
        return step(payload, options)
    except ConversionError:
        raise
    except MemoryError as error:
        raise OutOfMemory("The conversion exceeded its memory limit.") from error
    except Exception as error:
        # A decoder fails because of the file; later steps get data that a decoder has accepted.
        if isinstance(step, Conversion) and isinstance(step.source, FileFormat):
            raise CorruptInput(
                f"The file is recognised as {step.source} but cannot be decoded.",
                details={"step": str(step)},
            ) from error
        raise StepFailed(f"The step {step} failed.", details={"step": str(step)}) from error


def _stage(step: AnyConversion | AnyTransform | AnyTool) -> str:
    if not isinstance(step, Conversion):
        return "tool" if isinstance(step, Tool) else "convert"
    match isinstance(step.source, FileFormat), isinstance(step.target, FileFormat):
        case True, False:
            return "decode"
        case False, True:
            return "encode"
        case _:
            return "convert"
