"""The registry: knows what plugins declared, and plans."""

from __future__ import annotations

import logging
import mmap
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
    """Formats by name, the graph of conversions between them, and the plans it allows."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        formats: dict[str, FileFormat] = {}
        self._graph: dict[AnyFormat, list[AnyConversion]] = {}
        self._paths: dict[AnyFormat, dict[AnyFormat, Steps]] = {}
        self.tools: dict[str, AnyTool] = {}
        accepted = []
        for plugin in plugins:
            known = [f"format {fmt}" for fmt in (*plugin.reads, *plugin.writes) if formats.get(fmt.name, fmt) != fmt]
            known += [f"tool {tool}" for tool in plugin.tools if tool.name in self.tools]
            if known:
                error = f"another plugin describes the {known[0]} differently"
                log.error("the plugin %s is left out: %s", plugin.name, error)
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
        """What plugins would need from the system for more pairs."""
        needs = [need for plugin in self.plugins for need in plugin.requirements if not need.present]
        return tuple(dict.fromkeys(needs))

    @property
    def programs(self) -> frozenset[str]:
        """The paths of the programs that steps run."""
        return frozenset(path for plugin in self.plugins for step in plugin.conversions for path in step.programs)

    def format(self, name: str) -> FileFormat | None:
        """The format of that name or alias, without regard to case; None where there is none."""
        name = name.lower()
        return self.formats.get(name) or self._aliases.get(name)

    def identify(self, path: Path) -> FileFormat:
        """The format of the file's content: the longest match, then its extension. Reads from disk.

        Raises UnknownFormat, reason `empty_file` or `unrecognized`.
        """
        if path.stat().st_size == 0:
            raise UnknownFormat("The file is empty.", reason="empty_file")
        with _mapped(path) as content:
            return self.identify_content(content, path.name)

    def identify_content(self, content: Content, filename: str = "") -> FileFormat:
        """As `identify`, for bytes at hand; `filename` only breaks ties."""
        extension = Path(filename).suffix[1:].lower()
        scores = [(fmt.sniff(content), extension in fmt.extensions, fmt) for fmt in self.formats.values()]
        score, _, best = max(scores, key=lambda entry: entry[:2], default=(0, False, None))
        if best is None or score == 0:
            raise UnknownFormat("The file's content is of no supported type.")
        return best

    def plan(self, sources: Sequence[FileFormat], target: str | FileFormat, tool: str | None = None) -> Plan:
        """The best plan from `sources` to `target`; without a tool there is one source.

        Raises UnsupportedConversion with what is available, and with a tool what its `check` does.
        """
        if tool is None:
            (source,) = sources
            fmt, steps = self._steps(source, target)
            return Plan((source,), fmt, steps, reader=self.reader(fmt))
        used = self.tools[tool]
        used.check(sources)
        fmt, steps = self._steps(used.format, target)
        openings = tuple(self._paths_from(source)[used.format] for source in sources)
        return Plan(tuple(sources), fmt, steps, used, openings, self.reader(fmt))

    def _steps(self, source: AnyFormat, target: str | FileFormat) -> tuple[FileFormat, Steps]:
        fmt = target if isinstance(target, FileFormat) else self.format(target)
        steps = self._paths_from(source).get(fmt) if fmt else None
        if fmt is None or steps is None:
            name = fmt.name if fmt else str(target)
            raise UnsupportedConversion(
                f"{source} cannot be converted to {name}.",
                details={
                    "input_format": source.name,
                    "output_format": name,
                    "available": [found.name for found in self.targets(source)],
                },
            )
        return fmt, steps

    def targets(self, source: AnyFormat) -> list[FileFormat]:
        """The file formats that `source` can be converted to, by name."""
        reached = self._paths_from(source)
        return [fmt for fmt in self.formats.values() if fmt in reached]

    def reader(self, fmt: FileFormat) -> AnyConversion | None:
        """The step that opens files of that format in memory, where there is one."""
        return next((step for step in self._graph.get(fmt, ()) if not isinstance(step.target, FileFormat)), None)

    def catalogue(self) -> list[Plan]:
        """A plan for every supported pair, by input and then by output."""
        return [self.plan([source], target) for source in self.formats.values() for target in self.targets(source)]

    def _paths_from(self, source: AnyFormat) -> dict[AnyFormat, Steps]:
        if source not in self._paths:
            self._paths[source] = cheapest_paths(self._graph, source)
        return self._paths[source]


@contextmanager
def _mapped(path: Path) -> Iterator[Content]:
    with path.open("rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


@cache
def load_registry(builtins: str = "plugins") -> Registry:
    """The registry of all plugins that are installed, loaded once in a process and its forks."""
    return Registry(load_plugins(builtins))
