"""Tasks with several results of one input, in a ZIP, or with several formats, of which the smallest is the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import IO
from zipfile import ZipFile

from engine.errors import ConversionError, StepFailed
from engine.executor.result_files import add_entry
from engine.executor.tasks import DEFAULT_NAME, PlannedOutput, TaskOutput, TaskResult
from engine.file_names import FILENAME, UniqueNames, file_name, safe_stem
from engine.outcome import Outcome, OutputResult
from engine.planner import Plan
from engine.registry import Registry
from engine.shared_steps import PlanSteps, SharedSteps

MIXED = "zip"
"""The output format of several results that have different ones."""

_LOSSES = frozenset({"alpha_flattened", "alpha_thresholded", "frames_dropped", "pages_dropped", "timing_dropped"}) | {
    "depth_reduced",
    "colors_reduced",
}  # transparency, animation and bit depth

Run = Callable[[Plan, TaskOutput, str, IO[bytes], PlanSteps], TaskResult]
"""Runs a plan of an output for files of a name, and writes the result."""


def plan_outputs(registry: Registry, sources: Sequence[str], outputs: Sequence[TaskOutput]) -> list[PlannedOutput]:
    """Plans the outputs of a task whose options are validated."""

    def plans(one: TaskOutput) -> Iterator[Plan]:
        formats = [registry.formats[sources[index]] for index in one.inputs]
        for target in one.targets:
            yield registry.plan(formats, target, options=one.options, file_names=one.file_names, validated=True)

    return [PlannedOutput(tuple(plans(one)), one) for one in outputs]


def output_param(index: int, param: str | None) -> str:
    """The field of a request that is at fault, in the output with this index."""
    return f"outputs[{index}].{param}" if param else f"outputs[{index}]"


def heaviest(planned: Sequence[PlannedOutput]) -> Plan:
    """The plan that needs most memory."""
    return max((plan for one in planned for plan in one.plans), key=lambda plan: plan.memory)


def write_outputs(planned: Sequence[PlannedOutput], name: str, output: IO[bytes], run: Run) -> TaskResult:
    """Runs all plans. Writes the results to a ZIP, in order, or the only one without a name as it is.

    Raises the error of the first output that fails, whose `param` has the index.
    """
    shared = SharedSteps((plan, one.output.options) for one in planned for plan in one.plans)
    if len(planned) == 1 and planned[0].output.name is None:
        data, result = _smallest(planned[0], name, run, shared)
        output.write(data)
        return result
    unique = UniqueNames()
    results = list[TaskResult]()
    parts = list[OutputResult]()
    with ZipFile(output, "w") as archive:
        for index, one in enumerate(planned):
            try:
                data, result = _smallest(one, name, run, shared)
            except ConversionError as error:
                error.param = output_param(index, error.param)
                raise
            entry = unique.add(_entry_name(one, name, index, result.outcome))
            parts.append(OutputResult.of(result.outcome, entry, add_entry(archive, entry, data)))
            results.append(result)
    return _joined(results, parts, output.tell())


def _smallest(one: PlannedOutput, name: str, run: Run, shared: SharedSteps) -> tuple[bytes, TaskResult]:
    """The smallest of the files that lose least of what the input has, and its result. Plans of others may fail."""
    found: list[tuple[bytes, TaskResult]] = []
    failure: ConversionError | None = None
    for plan in one.plans:
        file = BytesIO()
        try:
            result = run(plan, one.output, name, file, shared.of(plan, one.output.options))
        except ConversionError as error:
            failure = failure or error
            continue
        found.append((file.getvalue(), result))
    if not found:
        raise failure or StepFailed("There is no format to convert to.")
    return min(found, key=lambda each: (losses(each[1].outcome), len(each[0])))


def losses(outcome: Outcome) -> int:
    """How many of the properties by which formats are chosen a result lacks."""
    return len(_LOSSES & {warning.code for warning in outcome.warnings})


def _entry_name(one: PlannedOutput, name: str, index: int, outcome: Outcome) -> str:
    """The name of a result in the ZIP: by its template or own name, otherwise the name of the input and a number."""
    target = next(plan.target for plan in one.plans if plan.target.name == outcome.output_format)
    template = str(one.output.options.get(FILENAME.name, "{name}.{ext}"))
    own = one.output.name or (name if FILENAME.name in one.output.options else f"{name}-{index + 1:02}")
    size = None if outcome.width is None or outcome.height is None else (outcome.width, outcome.height)
    stem, _, extension = file_name(template, own, target, size, container=outcome.container).rpartition(".")
    return f"{safe_stem(stem) or DEFAULT_NAME}.{extension}"


def _joined(results: Sequence[TaskResult], parts: Sequence[OutputResult], size: int) -> TaskResult:
    """The result of a task whose outputs are in a ZIP of `size` bytes."""
    formats = {part.output_format for part in parts}
    distinct = {warning: None for part in parts for warning in part.warnings}
    outcome = Outcome(
        formats.pop() if len(formats) == 1 else MIXED,
        size,
        warnings=tuple(distinct),
        container="zip",
        file_count=len(parts),
        width=parts[0].width,
        height=parts[0].height,
        pages=sum(part.pages or 1 for part in parts),
        outputs=tuple(parts),
    )
    trace = tuple(timing for result in results for timing in result.trace)
    peak = max(result.peak_memory for result in results)
    return TaskResult(outcome, trace, sum(result.check_seconds for result in results), peak)
