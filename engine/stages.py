"""Stages: tools that one task runs one after the other, each on the files that the one before has made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle
from typing import Any, Final, Protocol

from engine.conversions import AnyTool, EncodedFile, FidelityWarning, RunStage
from engine.errors import ConversionError, InvalidOption
from engine.file_names import FILENAME
from engine.formats import FileFormat
from engine.options import InputFile, NamedFile, Option, OptionValues, validate_options
from engine.planner import Plan, Stage

PART: Final = InputFile(None, "A file that a stage names.", maximum=100)
"""An additional file of a tool that runs stages."""

_TOOL = "tool"

Run = Callable[..., Any]
"""`pipeline.run`, which runs the plan of a stage."""


class Tools(Protocol):
    """The part of a registry that plans tools."""

    tools: dict[str, AnyTool]
    templates: dict[str, frozenset[str]]

    def tool_options(self, name: str, /) -> Mapping[str, Option]:
        """`Registry.tool_options`."""

    def plan(
        self,
        sources: Sequence[FileFormat],
        target: str | FileFormat,
        tool: str | None = None,
        options: OptionValues | None = None,
        file_names: tuple[str, ...] = (),
        *,
        validated: bool = False,
    ) -> Plan:
        """`Registry.plan`."""


def plan_stages(
    registry: Tools, tool: AnyTool, sources: Sequence[FileFormat], options: OptionValues, parts: tuple[str, ...]
) -> Plan:
    """Returns the plan of a tool that runs stages. The last sources are the formats of additional files, the `parts`.

    Raises InvalidOption and the errors of `Registry.plan`, whose field has the index of the stage.
    """
    count = len(sources) - len(parts)
    formats: dict[str, list[FileFormat]] = {}
    for part, format in zip(parts, sources[count:], strict=True):
        formats.setdefault(part, []).append(format)
    files = tuple(sources[:count])
    stages: list[Stage] = []
    given: Any = options.get(tool.stages_parameter or "", ())
    for index, values in enumerate(given):
        with _of_stage(tool, index):
            stages.append(_plan_stage(registry, stages, files, values, formats))
        files = (stages[-1].plan.target,)
    if unused := sorted(formats.keys() - {part for stage in stages for part in stage.parts.values()}):
        message = f"No stage names the file {unused[0]}."
        raise InvalidOption(message, reason="unknown_parameter", param=unused[0])
    return Plan(
        tuple(sources),
        files[0] if stages else tool.target,
        (),
        tool,
        ((),) * len(sources),
        stages[-1].plan.reader if stages else None,
        file_names=parts,
        options={**tool.options, FILENAME.name: FILENAME},
        templates=registry.templates,
        stages=tuple(stages),
    )


def files_of_stages(tools: Mapping[str, AnyTool], tool: AnyTool, options: Mapping[str, Any]) -> list[str]:
    """Returns the names of the additional files that stages name; none without stages, or if they are invalid."""
    name = tool.stages_parameter
    try:
        stages: Any = tool.options[name].validate(options[name], from_text=True) if name else []
    except InvalidOption:
        return []
    found = ((stage, tools.get(str(stage.get(_TOOL)))) for stage in stages)
    return [str(stage[name]) for stage, one in found if one for name in one.files if stage.get(name) is not None]


def _plan_stage(
    registry: Tools,
    earlier: Sequence[Stage],
    sources: tuple[FileFormat, ...],
    values: Mapping[str, Any],
    formats: Mapping[str, Sequence[FileFormat]],
) -> Stage:
    """The stage that these values describe, for files of these formats. `formats` are those of additional files."""
    names = [name for name, tool in registry.tools.items() if tool.stages_parameter is None]
    if values.get(_TOOL) not in names:
        message = f"There is no tool {str(values[_TOOL])[:50]}." if _TOOL in values else f"{_TOOL} is missing."
        reason = "unknown" if _TOOL in values else "missing"
        raise InvalidOption(message, reason=reason, param=_TOOL, details={"available": sorted(names)})
    tool = registry.tools[values[_TOOL]]
    if earlier and earlier[-1].tool.archive and not tool.takes_several:
        message = f"{tool} takes one file, and {earlier[-1].tool} makes several."
        raise InvalidOption(message, reason="out_of_range", param=_TOOL, details={"min": 1, "max": 1})
    parts = {name: str(values[name]) for name in tool.files if values.get(name) is not None}
    tool.check_files(parts)
    for name, part in parts.items():
        if part not in formats:
            message = f"{name} must be the name of a file of the form."
            raise InvalidOption(message, reason="no_file", param=name, details={"available": sorted(formats)})
        if len(formats[part]) > tool.files[name].maximum:
            message = f"{name} must have at most {tool.files[name].maximum} files."
            raise InvalidOption(message, reason="out_of_range", param=name, details={"max": tool.files[name].maximum})
    known = {name: option for name, option in registry.tool_options(tool.name).items() if name != FILENAME.name}
    given = {name: value for name, value in values.items() if name not in (_TOOL, *parts)}
    texts = {name: json.dumps(value) if isinstance(value, list | dict) else value for name, value in given.items()}
    options = validate_options(known, texts, from_text=True)
    additional = [(name, format) for name, part in parts.items() for format in formats[part]]
    file_names = tuple(name for name, _ in additional)

    def plan(inputs: Sequence[FileFormat]) -> Plan:
        sources = [*inputs, *(format for _, format in additional)]
        return registry.plan(sources, tool.target, tool.name, options, file_names, validated=True)

    least = tool.inputs[0] if earlier and earlier[-1].tool.archive else 1  # how many there are is not known yet
    return Stage(plan(sources * least), options, parts, plan)


@contextmanager
def _of_stage(tool: AnyTool, index: int) -> Iterator[None]:
    """Adds the index of a stage to the field at fault of an error that the block raises."""
    try:
        yield
    except ConversionError as error:
        stage = f"{tool.stages_parameter}[{index}]"
        error.param = f"{stage}.{error.param}" if error.param else stage
        raise


def bound(
    tool: AnyTool,
    stages: Sequence[Stage],
    parts: Mapping[str, Sequence[NamedFile]],
    run: Run,
    provided: OptionValues,
) -> list[RunStage]:
    """Returns functions that run the stages of the tool. `parts` are the additional files by name,
    `provided` the values of the executor.

    Each takes the files that the one before has returned. It issues its warnings with the name of its tool.
    """
    return [partial(_run_stage, tool, index, stage, parts, run, provided) for index, stage in enumerate(stages)]


def _run_stage(
    tool: AnyTool,
    index: int,
    stage: Stage,
    parts: Mapping[str, Sequence[NamedFile]],
    run: Run,
    provided: OptionValues,
    files: Sequence[EncodedFile],
    shared: OptionValues,
) -> list[EncodedFile]:
    secrets = {name: value for file in files for name, value in (file.secrets or {}).items()}
    inherited = {name: value for name, value in {**shared, **secrets}.items() if name in stage.plan.options}
    options = {**inherited, **stage.options}
    made: list[EncodedFile] = []
    with _of_stage(tool, index) if index else nullcontext():
        formats = [file.format or source for file, source in zip(files, cycle(stage.plan.sources))]
        plan = stage.plan_for(formats)
        additional = [file for part in stage.parts.values() for file in parts[part]]
        inputs = [*(file.data for file in files), *(file.data for file in additional)]
        names = (*(file.name or "" for file in files), *(file.name for file in additional))
        result = run(plan, inputs, {**options, **provided}, on_file=made.append, names=names)
    for warning in result.outcome.warnings:
        if secrets and warning.code == "option_ignored":  # The stage before has decrypted the file.
            continue
        FidelityWarning.issue(warning.code, f"{stage.tool}: {warning.message}", of_original=True)
    opening = {name: value for name, value in options.items() if stage.plan.options[name].secret}
    return [
        replace(
            file,
            encoder_input=None,
            format=file.format or stage.plan.target,
            secrets=opening if file.secrets is None else file.secrets,
        )
        for file in made
    ]
