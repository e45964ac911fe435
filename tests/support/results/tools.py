"""Runs of tools on bytes in this process."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine import pipeline, verification
from engine.conversions import EncodedFile
from engine.options import OptionValue, validate_options
from engine.outcome import Outcome
from engine.registry import load_registry

_REGISTRY = load_registry()


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
    sources = [_REGISTRY.identify_content(data) for data in (*inputs, *additional.values())]
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
