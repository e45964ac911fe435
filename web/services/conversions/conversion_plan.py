"""The plans of a request: one for each output, and for each format that an output may have."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from engine.auto_format import AUTO, without_formats
from engine.conversions import AnyTool
from engine.errors import ConversionError
from engine.executor import TaskOutput
from engine.executor.several import MIXED, output_param
from engine.executor.tasks import PlannedOutput
from engine.file_names import result_name, safe_name
from engine.formats import ANY_FILE, FileFormat
from engine.options import Option, OptionValue, OptionValues, validate_options
from engine.outcome import Outcome, OutputResult
from engine.planner import Plan
from engine.registry import Registry
from engine.step_errors import file_errors
from web.api.errors import ApiError
from web.api.field_types import check_known, field_names, validate
from web.api.operations import ZIP
from web.api.output_fields import OutputFields
from web.services.admission.task_costs import estimate_memory
from web.services.conversions.conversion_request import ConversionRequest, OutputRequest, Upload


@dataclass(frozen=True)
class ConversionPlan:
    """The plans of the outputs of a request. Each has one plan, or several of which the smallest file is the result.

    `plans` are all of them, whose first input has the format `source`. `output_format` is the name of the output format
    as far as it is known: AUTO, or MIXED for several.
    """

    outputs: tuple[PlannedOutput, ...]
    plans: tuple[Plan, ...]
    source: FileFormat
    output_format: str

    @classmethod
    def of(cls, outputs: tuple[PlannedOutput, ...]) -> "ConversionPlan":
        """Combines the plans of outputs, which have the same sources."""
        plans = tuple(plan for one in outputs for plan in one.plans)
        names = {AUTO if len(one.plans) > 1 else one.plans[0].target.name for one in outputs}
        return cls(outputs, plans, plans[0].source, names.pop() if len(names) == 1 else MIXED)

    def estimate_memory(self, size: int) -> int:
        """The expected memory in bytes of a task with `size` bytes of input."""
        return max(estimate_memory(plan, size, one.output.options) for one in self.outputs for plan in one.plans)

    def describe(self, request: ConversionRequest, outcome: Outcome, seconds: float) -> Outcome:
        """Returns the outcome of the job with what the job does not know. Its formats are taken from the plans."""
        if outcome.outputs is None:
            target, media_type = self._target_of(outcome)
        else:
            target = self.plans[0].target
            media_type = ZIP
        return replace(
            outcome,
            output_format=outcome.output_format if outcome.outputs else target.name,
            media_type=media_type,
            filename=result_name(request.original_name, request.options, target, outcome),
            processing_time_ms=round(seconds * 1000),
            outputs=outcome.outputs and tuple(map(self._described, outcome.outputs)),
        )

    def _target_of(self, outcome: Outcome | OutputResult) -> tuple[FileFormat, str]:
        """The format of a result, which a job cannot choose freely, and the media type."""
        targets = {plan.target.name: plan.target for plan in self.plans}
        target = targets.get(outcome.output_format, self.plans[0].target)
        return target, target.media_type if outcome.container is None else ZIP

    def _described(self, part: OutputResult) -> OutputResult:
        target, media_type = self._target_of(part)
        return replace(part, output_format=target.name, media_type=media_type, filename=safe_name(part.filename))


def read_outputs(
    known: Mapping[str, Option], outputs: Sequence[Mapping[str, Any]], shared: OptionValues
) -> tuple[OutputRequest, ...]:
    """Returns the validated outputs, which have the `shared` options in addition to their own, of the `known` ones.

    Raises InvalidOption and InvalidParameter, whose field has the index of the output.
    """
    read: list[OutputRequest] = []
    names = field_names(OutputFields)
    for index, values in enumerate(outputs):
        with of_output(index):
            check_known(values, (*names, *known))
            fields = validate(OutputFields, values)
            own = {name: value for name, value in values.items() if name not in names and value is not None}
            read.append(OutputRequest(fields.output_format, validate_options(known, {**shared, **own}), fields.name))
    return tuple(read)


def plan_request(registry: Registry, request: ConversionRequest) -> ConversionPlan:
    """Plans a request whose files are there. Raises ConversionError; of an output, with its index."""
    sources = list[FileFormat]()
    first = len(request.uploads) - len(request.file_names)
    tool = registry.tools.get(request.tool or "")
    for index, upload in enumerate(request.uploads):
        name = None if index < first else request.file_names[index - first].partition("=")[0]
        with nullcontext() if name is None else file_errors(name):
            sources.append(upload.format if tool is None or name is None else _format_of(tool, name, upload))
    if request.tool is not None:
        plan = registry.plan(sources, request.target, request.tool, request.options, request.file_names)
        files = tuple(range(len(sources))), request.file_names
        output = TaskOutput((plan.target.name,), request.options, None, *files)
        return ConversionPlan.of((PlannedOutput((plan,), output),))
    return ConversionPlan.of(
        plan_outputs(registry, sources, request.target, request.options, request.outputs, request.file_names)
    )


def _format_of(tool: AnyTool, name: str, upload: Upload) -> FileFormat:
    """The format of an additional file of a tool. Raises UnknownFormat."""
    is_known = isinstance(upload.identified, FileFormat)
    return ANY_FILE if tool.takes_any(name) or (tool.stages_parameter and not is_known) else upload.format


def plan_outputs(
    registry: Registry,
    sources: Sequence[FileFormat],
    target: str,
    options: OptionValues,
    outputs: Sequence[OutputRequest],
    file_names: tuple[str, ...] = (),
) -> tuple[PlannedOutput, ...]:
    """Plans the outputs of a file, or its only one with this target and options. Raises ConversionError.

    The last sources are the formats of the files `file_names`: for options that all outputs have, or for options of
    some outputs, named by `own_file`.
    """
    if not outputs:
        return (_plan_output(registry, sources, OutputRequest(target, options), None, file_names),)
    planned: list[PlannedOutput] = []
    for index, one in enumerate(outputs):
        with of_output(index):
            planned.append(_plan_output(registry, sources, one, one.name, file_names))
    return tuple(planned)


def _plan_output(
    registry: Registry, sources: Sequence[FileFormat], one: OutputRequest, name: str | None, file_names: tuple[str, ...]
) -> PlannedOutput:
    count = len(sources) - len(file_names)
    files = _files_of(one, file_names, count) if file_names else {}
    used = (*range(count), *files.values())
    names = tuple(files)
    formats = [sources[index] for index in used]
    if one.target.lower() != AUTO:
        plan = registry.plan(formats, one.target, options=one.options, file_names=names)
        return PlannedOutput((plan,), TaskOutput((plan.target.name,), one.options, name, used, names))
    plans = registry.auto_plans(formats, one.options, names)
    targets = tuple(plan.target.name for plan in plans)
    return PlannedOutput(plans, TaskOutput(targets, without_formats(one.options), name, used, names))


def own_file(name: str, value: OptionValue) -> str:
    """The name of the file of an option in those outputs of several whose option has this value."""
    return f"{name}={value}"


def _files_of(one: OutputRequest, file_names: Sequence[str], first: int) -> dict[str, int]:
    """The indexes of the files of an output by its options: its own ones, and those that all outputs have."""
    indexes = {name: index for index, name in enumerate(file_names, first)}
    shared = {name: index for name, index in indexes.items() if "=" not in name}
    named = {name: own_file(name, value) for name, value in one.options.items()}
    return shared | {name: indexes[key] for name, key in named.items() if key in indexes}


@contextmanager
def of_output(index: int) -> Iterator[None]:
    """Adds the index of an output to the field at fault of an error that the block raises."""
    try:
        yield
    except (ConversionError, ApiError) as error:
        error.param = output_param(index, error.param)
        raise
