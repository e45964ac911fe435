"""Loads plugins: built-in ones from their package, third-party ones by entry point."""

import importlib
import json
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import TypeAlias, TypeVar
from zipfile import ZipFile

import pluggy

from engine import hookspecs
from engine.conversions import AnyConversion, AnyTool, AnyTransform, Conversion, Requirement, Tool, Transform
from engine.formats import FileFormat
from engine.lazy import lazy_imports
from engine.options import Option

with lazy_imports():
    from engine import contained

ENTRY_POINT_GROUP = "convertd.plugins"

PLUGIN_ERRORS = "CONVERTD_PLUGIN_ERRORS"
"""The environment variable with the errors of third-party plugins by name, null for none, as JSON."""

Trial: TypeAlias = "Callable[[Sequence[Plugin]], str | None]"
"""Describes what harm the last of some plugins does."""

T = TypeVar("T")

_MAX_SUMMARY = 300  # characters


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin and its declarations, or the error for which it is left out or its detection is switched off.

    `version` is the version of the third-party distribution; None for built-in plugins.
    """

    name: str
    summary: str
    conversions: tuple[AnyConversion, ...] = ()
    tools: tuple[AnyTool, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    error: str | None = None
    version: str | None = None
    transforms: tuple[AnyTransform, ...] = ()

    @property
    def third_party(self) -> bool:
        """Whether another distribution than convertd has the plugin."""
        return self.version is not None

    @property
    def steps(self) -> tuple[AnyConversion | AnyTransform | AnyTool, ...]:
        """All conversions, transforms and tools."""
        return (*self.conversions, *self.transforms, *self.tools)

    @property
    def options(self) -> Iterator[Option]:
        """The options of all conversions and transforms, once for each that has them. Options of tools are separate."""
        steps: tuple[AnyConversion | AnyTransform, ...] = (*self.conversions, *self.transforms)
        return (option for step in steps for option in step.options.values())

    @property
    def reads(self) -> tuple[FileFormat, ...]:
        """The file formats that it reads, without duplicates, in order of declaration."""
        return tuple(dict.fromkeys(s.source for s in self.conversions if isinstance(s.source, FileFormat)))

    @property
    def writes(self) -> tuple[FileFormat, ...]:
        """The file formats that it writes, without duplicates, in order of declaration."""
        return tuple(dict.fromkeys(s.target for s in self.conversions if isinstance(s.target, FileFormat)))


class _Manager(pluggy.PluginManager):
    """Looks for hooks among functions only, because pluggy takes long for each of the other values of a module."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        if not isinstance(getattr(plugin, name, None), FunctionType | MethodType):
            return None
        return super().parse_hookimpl_opts(plugin, name)


def load_plugins(builtins: str, find_harm: Trial) -> list[Plugin]:
    """Loads the plugins of the package `builtins`, then third-party ones by name, with the error of those that fail.

    A third-party plugin is first loaded in a process of its own, and `find_harm` of the built-in plugins and this one
    called there, unless the process that has started this one has done so. A built-in plugin fails if a library does
    not fit; it raises all other errors.
    """
    modules = {name.rpartition(".")[2]: name for name in _module_names(builtins)}
    loaded = [_load_builtin(modules[name], name) for name in sorted(modules)]
    if entries := sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name):
        if PLUGIN_ERRORS in os.environ:
            known = json.loads(os.environ[PLUGIN_ERRORS])
            errors = [known.get(entry.name, "it was installed after the start") for entry in entries]
        else:
            errors = contained.run_apart([partial(_try, find_harm, loaded, entry) for entry in entries])
        loaded += [_load_entry_point(entry, error) for entry, error in zip(entries, errors, strict=True)]
    return loaded


def _module_names(package: str) -> Iterator[str]:
    """The modules of a package and of its packages, without those whose names start with an underscore."""
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
        if not module.name.rpartition(".")[2].startswith("_"):
            yield from _module_names(module.name) if module.ispkg else (module.name,)


def _load_builtin(module: str, name: str) -> Plugin:
    try:
        return _read_plugin(importlib.import_module(module), name)
    except (ImportError, OSError) as error:
        return Plugin(name, "", error=contained.describe(error))


def _try(find_harm: Trial, builtins: Sequence[Plugin], entry: EntryPoint) -> str | None:
    return find_harm([*builtins, _load_entry_point(entry)])


def read_samples() -> Iterator[tuple[str, bytes]]:
    """The beginnings of files of the built-in formats, with the name of the format."""
    with ZipFile(Path(__file__).parents[1] / "plugins" / "_samples.zip") as archive:
        yield from ((name, archive.read(name)) for name in archive.namelist())


def _load_entry_point(entry: EntryPoint, error: str | None = None) -> Plugin:
    version = (entry.dist.version if entry.dist else None) or "unknown"
    if error is None:
        try:
            with contained.contained():
                return _read_plugin(entry.load(), entry.name, version)
        except KeyboardInterrupt:
            raise
        except BaseException as raised:  # SystemExit, and panics of libraries in Rust
            error = contained.describe(raised)
    return Plugin(entry.name, "", error=error, version=version)


def _read_plugin(module: ModuleType, name: str, version: str | None = None) -> Plugin:
    """Returns the plugin that a module declares.

    Raises what its hooks raise, TypeError for a value of another kind, and ImportError for another PLUGIN_API.
    """
    declared_api = getattr(module, "PLUGIN_API", hookspecs.PLUGIN_API)
    if declared_api != hookspecs.PLUGIN_API:
        raise ImportError(f"the plugin is for PLUGIN_API {declared_api}; this version has {hookspecs.PLUGIN_API}")
    manager = _Manager("convertd")
    if any(hasattr(value, "convertd_impl") for value in vars(module).values() if isinstance(value, FunctionType)):
        manager.add_hookspecs(hookspecs)
        manager.register(module, name)
        manager.check_pending()
    implemented = {caller.name for caller in manager.get_hookcallers(module) or ()}

    def declared(hook: str, kind: type[T]) -> tuple[T, ...]:
        """The values that the plugin's hook returns; without the hook, the values of its module."""
        if hook not in implemented:
            return tuple(value for value in vars(module).values() if isinstance(value, kind))
        values = tuple(chain.from_iterable(getattr(manager.hook, hook)()))
        for value in values:
            if not isinstance(value, kind):
                raise TypeError(f"the hook {hook} returns {value!r:.60}")
        return values

    return Plugin(
        name,
        (module.__doc__ or name).strip().splitlines()[0][:_MAX_SUMMARY],
        conversions=declared("conversions", Conversion),
        transforms=declared("transforms", Transform),
        tools=declared("tools", Tool),
        requirements=declared("requirements", Requirement),
        version=version,
    )


def tried(plugins: Iterable[Plugin]) -> dict[str, str]:
    """The environment variable that spares another process the trials of third-party plugins, if there are any."""
    errors = {one.name: None if one.steps else one.error for one in plugins if one.third_party}
    return {PLUGIN_ERRORS: json.dumps(errors)} if errors else {}
