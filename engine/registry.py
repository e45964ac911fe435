"""The registry: loads plugins and knows what they declared."""

from __future__ import annotations

import importlib
import logging
import mmap
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from pathlib import Path
from types import ModuleType

import pluggy

from engine import hookspecs
from engine.conversions import AnyConversion, Requirement
from engine.errors import UnknownFormat, UnsupportedConversion
from engine.formats import AnyFormat, Content, FileFormat
from engine.planner import Plan, cheapest_paths

log = logging.getLogger("convertd.registry")

ENTRY_POINT_GROUP = "convertd.plugins"


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin and what it declared, or the error that kept it out."""

    name: str
    summary: str
    conversions: tuple[AnyConversion, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    error: str | None = None

    @property
    def reads(self) -> tuple[FileFormat, ...]:
        """The file formats it takes, each once, in the order declared."""
        return tuple(dict.fromkeys(s.source for s in self.conversions if isinstance(s.source, FileFormat)))

    @property
    def writes(self) -> tuple[FileFormat, ...]:
        """The file formats it makes, each once, in the order declared."""
        return tuple(dict.fromkeys(s.target for s in self.conversions if isinstance(s.target, FileFormat)))


class Registry:
    """Formats by name, the graph of conversions between them, and the plans it allows."""

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        formats: dict[str, FileFormat] = {}
        self._graph: dict[AnyFormat, list[AnyConversion]] = {}
        self._paths: dict[FileFormat, dict[AnyFormat, tuple[AnyConversion, ...]]] = {}
        accepted = []
        for plugin in plugins:
            known = [fmt for fmt in (*plugin.reads, *plugin.writes) if formats.get(fmt.name, fmt) != fmt]
            if known:
                error = f"another plugin describes the format {known[0]} differently"
                log.error("the plugin %s is left out: %s", plugin.name, error)
                plugin = Plugin(plugin.name, plugin.summary, error=error)
            accepted.append(plugin)
            formats |= {fmt.name: fmt for fmt in (*plugin.reads, *plugin.writes)}
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

    def plan(self, source: FileFormat, target: str | FileFormat) -> Plan:
        """The best plan from `source` to `target`. Raises UnsupportedConversion with what is available."""
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
        return Plan(source, fmt, steps)

    def targets(self, source: FileFormat) -> list[FileFormat]:
        """The file formats that `source` can be converted to, by name."""
        reached = self._paths_from(source)
        return [fmt for fmt in self.formats.values() if fmt in reached]

    def catalogue(self) -> list[Plan]:
        """A plan for every supported pair, by input and then by output."""
        return [self.plan(source, target) for source in self.formats.values() for target in self.targets(source)]

    def _paths_from(self, source: FileFormat) -> dict[AnyFormat, tuple[AnyConversion, ...]]:
        if source not in self._paths:
            self._paths[source] = cheapest_paths(self._graph, source)
        return self._paths[source]


@contextmanager
def _mapped(path: Path) -> Iterator[Content]:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        yield content


@cache
def load_registry(builtins: str = "plugins") -> Registry:
    """Loads the built-ins by listing their package, and others by entry point; once in a process and its forks.

    A foreign plugin that fails to load is kept out and listed with its error; a built-in that fails raises.
    """
    manager = pluggy.PluginManager("convertd")
    manager.add_hookspecs(hookspecs)
    loaded = [_builtin(manager, name) for name in _module_names(builtins)]
    found = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return Registry([*loaded, *(_foreign(manager, entry) for entry in found)])


def _module_names(package: str) -> list[str]:
    paths = importlib.import_module(package).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(paths))
    return [f"{package}.{name}" for name in names if not name.startswith("_")]


def _builtin(manager: pluggy.PluginManager, module_name: str) -> Plugin:
    return _declared(manager, importlib.import_module(module_name), module_name.rpartition(".")[2])


def _foreign(manager: pluggy.PluginManager, entry: EntryPoint) -> Plugin:
    try:
        return _declared(manager, entry.load(), entry.name)
    except Exception as error:
        log.exception("the plugin %s cannot be loaded", entry.name)
        return Plugin(entry.name, "", error=f"{type(error).__name__}: {error}")


def _declared(manager: pluggy.PluginManager, module: ModuleType, name: str) -> Plugin:
    manager.register(module, name)
    manager.check_pending()
    others = [plugin for plugin in manager.get_plugins() if plugin is not module]
    steps = manager.subset_hook_caller("conversions", others)()
    needs = manager.subset_hook_caller("requirements", others)()
    summary = (module.__doc__ or name).strip().splitlines()[0]
    return Plugin(name, summary, tuple(chain.from_iterable(steps)), tuple(chain.from_iterable(needs)))
