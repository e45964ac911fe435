"""Conversions of bytes and runs of tools in this process, and a look at their results."""

from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO

from PIL import Image

from engine import pipeline, verification
from engine.conversions import EncodedFile
from engine.formats import ANY_FILE
from engine.options import OptionValue, validate_options
from engine.outcome import Outcome
from engine.pipeline import PipelineResult
from engine.registry import load_registry

_REGISTRY = load_registry()


def convert(data: bytes, target: str, name: str = "", /, **options: OptionValue) -> PipelineResult:
    """Converts a file whose format is identified by its content, or the extension of its name."""
    source = _REGISTRY.identify_content(data, name)
    return pipeline.run(_REGISTRY.plan([source], target, options=options), [data], options)


def convert_with(data: bytes, target: str, files: Mapping[str, bytes], **options: OptionValue) -> PipelineResult:
    """Converts a file with additional files, by the names of the options that they belong to."""
    sources = [_REGISTRY.identify_content(one) for one in (data, *files.values())]
    plan = _REGISTRY.plan(sources, target, options=options, file_names=tuple(files))
    return pipeline.run(plan, [data, *files.values()], options)


def codes(result: PipelineResult) -> set[str]:
    """The codes of the warnings."""
    return {warned.code for warned in result.outcome.warnings}


def opened(data: bytes) -> Image.Image:
    """The image as Pillow reads it."""
    image = Image.open(BytesIO(data))
    image.load()
    return image


@dataclass(frozen=True)
class ToolRun:
    """The outcome of a tool, and its files by name; a single file has no name."""

    outcome: Outcome
    files: Mapping[str, bytes]

    @property
    def data(self) -> bytes:
        """The only file."""
        (data,) = self.files.values()
        return data

    @property
    def codes(self) -> set[str]:
        """The codes of the warnings."""
        return {warned.code for warned in self.outcome.warnings}


def run_tool(name: str, *inputs: bytes, files: Mapping[str, bytes] | None = None, **options: OptionValue) -> ToolRun:
    """Runs a tool on files whose formats are identified by their content, and verifies its results."""
    additional = files or {}
    sources = [_REGISTRY.identify_content(data) for data in inputs]
    takes_any = _REGISTRY.tools[name].takes_any
    sources += [ANY_FILE if takes_any(one) else _REGISTRY.identify_content(data) for one, data in additional.items()]
    given = validate_options(_REGISTRY.tool_options(name), options)
    plan = _REGISTRY.plan(sources, _REGISTRY.tools[name].target, name, given, tuple(additional))
    made: dict[str, bytes] = {}

    def keep(file: EncodedFile) -> None:
        verification.verify(_REGISTRY, plan, file, given)
        extension = file.format.extensions[0] if file.format else plan.target.extensions[0]
        made[f"{file.name}.{extension}" if file.name else ""] = file.data

    names = tuple(f"file {number}" for number in range(1, len(inputs) + 1))
    outcome = pipeline.run(plan, [*inputs, *additional.values()], given, on_file=keep, names=names).outcome
    return ToolRun(outcome, made)
