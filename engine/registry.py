"""The registry of formats, conversions and tools: detection, planning and the catalogue."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from engine.conversions import AnyConversion, AnyTool, Requirement
from engine.errors import UnknownFormat, UnsupportedConversion
from engine.formats import AnyFormat, Content, FileFormat
from engine.planner import Plan, Steps, cheapest_paths
from engine.plugin_loader import Plugin, load_plugins

log = logging.getLogger("convertd.registry")


class Registry:
    """Formats by name, tools by name, and the graph of conversions.

    A plugin that contradicts an earlier one is left out and listed in `plugins` with its error.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        formats: dict[str, FileFormat] = {}
        self._graph: dict[AnyFormat, list[AnyConversion]] = {}
        self._paths: dict[AnyFormat, dict[AnyFormat, Steps]] = {}
        self._plans: dict[tuple[FileFormat | str | None, ...], Plan] = {}
        self.tools: dict[str, AnyTool] = {}
        accepted = []
        for plugin in plugins:
            formats_of_plugin = (*plugin.reads, *plugin.writes)
            conflicts = [f"format {fmt}" for fmt in formats_of_plugin if formats.get(fmt.name, fmt) != fmt]
            conflicts += [f"tool {tool}" for tool in plugin.tools if tool.name in self.tools]
            if conflicts:
                error = f"another plugin declares the {conflicts[0]} differently"
                log.error("plugin %s is ignored: %s", plugin.name, error)
                plugin = Plugin(plugin.name, plugin.summary, error=error, version=plugin.version)
            accepted.append(plugin)
            formats |= {fmt.name: fmt for fmt in (*plugin.reads, *plugin.writes)}
            self.tools |= {tool.name: tool for tool in plugin.tools}
            for step in plugin.conversions:
                self._graph.setdefault(step.source, []).append(step)
        self.plugins = tuple(accepted)
        self.formats = dict(sorted(formats.items()))
        self._aliases = {alias: fmt for fmt in self.formats.values() for alias in fmt.extensions}

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """System packages that would enable more conversions."""
        requirements = (requirement for plugin in self.plugins for requirement in plugin.requirements)
        return tuple(dict.fromkeys(requirement for requirement in requirements if not requirement.present))

    @property
    def programs(self) -> frozenset[str]:
        """The paths of all programs that steps run."""
        return frozenset(path for plugin in self.plugins for step in plugin.conversions for path in step.programs)

    @property
    def modules(self) -> frozenset[str]:
        """The modules that steps and tools import when they run."""
        steps = [step for plugin in self.plugins for step in plugin.conversions]
        modules = (module for step in steps for module in step.modules)
        return frozenset(modules) | {module for tool in self.tools.values() for module in tool.modules}

    def format(self, name: str) -> FileFormat | None:
        """Returns a format by name or alias, ignoring case; None if unknown."""
        name = name.lower()
        return self.formats.get(name) or self._aliases.get(name)

    def identify(self, path: Path) -> FileFormat:
        """Detects a file's format as `identify_content` does. Blocks."""
        with path.open("rb", buffering=0) as file:
            return self.identify_descriptor(file.fileno(), path.name)

    def identify_descriptor(self, descriptor: int, filename: str = "") -> FileFormat:
        """Detects the format of an open file as `identify_content` does. Blocks."""
        with open_content(descriptor) as content:
            return self.identify_content(content, filename)

    def identify_content(self, content: Content, filename: str = "") -> FileFormat:
        """Detects the format of bytes: the longest signature match wins, then the extension of `filename`.

        Raises UnknownFormat, reason `empty_file` or `unrecognized`.
        """
        if len(content) == 0:
            raise UnknownFormat("The file is empty.", reason="empty_file")
        extension = Path(filename).suffix[1:].lower()
        best, best_rank = None, (0, True)
        for fmt in self.formats.values():
            rank = (fmt.sniff(content), extension in fmt.extensions)
            if rank > best_rank:
                best, best_rank = fmt, rank
        if best is None:
            raise UnknownFormat("The content of the file matches no supported format.")
        return best

    def plan(self, sources: Sequence[FileFormat], target: str | FileFormat, tool: str | None = None) -> Plan:
        """Returns the best plan from `sources` to `target`. Without a tool, there is exactly one source.

        Raises UnsupportedConversion, whose details list the available targets, and the errors of the tool's `check`.
        """
        fmt = target if isinstance(target, FileFormat) else self.format(target)
        key = (*sources, fmt, tool)
        if key not in self._plans:
            self._plans[key] = self._plan(tuple(sources), fmt, str(target), tool)
        return self._plans[key]

    def _plan(self, sources: tuple[FileFormat, ...], fmt: FileFormat | None, name: str, tool: str | None) -> Plan:
        if tool is None:
            (source,) = sources
            target, steps = self._steps(source, fmt, name)
            return Plan(sources, target, steps, reader=self.reader(target))
        declared = self.tools[tool]
        declared.check(sources)
        target, steps = self._steps(declared.format, fmt, name)
        openings = tuple(self._paths_from(source)[declared.format] for source in sources)
        return Plan(sources, target, steps, declared, openings, self.reader(target))

    def _steps(self, source: AnyFormat, fmt: FileFormat | None, name: str) -> tuple[FileFormat, Steps]:
        steps = self._paths_from(source).get(fmt) if fmt else None
        if fmt is None or steps is None:
            name = fmt.name if fmt else name
            raise UnsupportedConversion(
                f"{source} cannot be converted to {name}.",
                details={
                    "input_format": source.name,
                    "output_format": name,
                    "available": [target.name for target in self.targets(source)],
                },
            )
        return fmt, steps

    def targets(self, source: AnyFormat) -> list[FileFormat]:
        """Returns the file formats that `source` can be converted to, sorted by name."""
        paths = self._paths_from(source)
        return [fmt for fmt in self.formats.values() if fmt in paths]

    def reader(self, fmt: FileFormat) -> AnyConversion | None:
        """Returns the first step that decodes the format; None if there is none."""
        return next((step for step in self._graph.get(fmt, ()) if not isinstance(step.target, FileFormat)), None)

    def catalogue(self) -> list[Plan]:
        """Returns a plan for every supported pair, sorted by input and output format."""
        return [self.plan([source], target) for source in self.formats.values() for target in self.targets(source)]

    def _paths_from(self, source: AnyFormat) -> dict[AnyFormat, Steps]:
        if source not in self._paths:
            self._paths[source] = cheapest_paths(self._graph, source)
        return self._paths[source]


@contextmanager
def open_content(descriptor: int) -> Iterator[Content]:
    """The content of an open file, which is read when it is sliced."""
    if os.fstat(descriptor).st_size == 0:  # which cannot be mapped
        yield b""
        return
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        yield content


@cache
def load_registry(builtins: str = "plugins") -> Registry:
    """Returns the registry of all installed plugins, loaded once per process and shared by its forks."""
    return Registry(load_plugins(builtins))
