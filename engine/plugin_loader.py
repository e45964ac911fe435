"""Loads plugins: built-in ones from their package, third-party ones by entry point."""

import importlib
import logging
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from itertools import chain
from types import FunctionType, MethodType, ModuleType
from typing import TypeVar

import pluggy

from engine import hookspecs
from engine.conversions import AnyConversion, AnyTool, AnyTransform, Conversion, Requirement, Tool, Transform
from engine.formats import FileFormat
from engine.options import Option

log = logging.getLogger("convertd.registry")

ENTRY_POINT_GROUP = "convertd.plugins"

T = TypeVar("T")


@dataclass(frozen=True)
class Plugin:
    """A loaded plugin and its declarations, or the error that occurred while loading it.

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


def load_plugins(builtins: str) -> list[Plugin]:
    """Loads the modules of the package `builtins`, then third-party plugins by name.

    A third-party plugin that fails to load is returned with its error; a built-in plugin that fails raises.
    """
    manager = _Manager("convertd")
    manager.add_hookspecs(hookspecs)
    loaded = [_load_builtin(manager, name) for name in _module_names(builtins)]
    entries = sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda entry: entry.name)
    return [*loaded, *(_load_entry_point(manager, entry) for entry in entries)]


def _module_names(package: str) -> list[str]:
    paths = importlib.import_module(package).__path__
    names = sorted(module.name for module in pkgutil.iter_modules(paths))
    return [f"{package}.{name}" for name in names if not name.startswith("_")]


def _load_builtin(manager: pluggy.PluginManager, module_name: str) -> Plugin:
    return _register(manager, importlib.import_module(module_name), module_name.rpartition(".")[2])


def _load_entry_point(manager: pluggy.PluginManager, entry: EntryPoint) -> Plugin:
    version = entry.dist.version if entry.dist else None
    try:
        return replace(_register(manager, entry.load(), entry.name), version=version)
    except Exception as error:
        log.exception("plugin %s failed to load", entry.name)
        return Plugin(entry.name, "", error=f"{type(error).__name__}: {error}", version=version)


def _register(manager: pluggy.PluginManager, module: ModuleType, name: str) -> Plugin:
    declared_api = getattr(module, "PLUGIN_API", hookspecs.PLUGIN_API)
    if declared_api != hookspecs.PLUGIN_API:
        raise ImportError(f"the plugin is for PLUGIN_API {declared_api}; this version has {hookspecs.PLUGIN_API}")
    manager.register(module, name)
    manager.check_pending()
    implemented = {caller.name for caller in manager.get_hookcallers(module) or ()}
    others = [plugin for plugin in manager.get_plugins() if plugin is not module]

    def declared(hook: str, kind: type[T]) -> tuple[T, ...]:
        """The values that the plugin's hook returns; without the hook, the values of its module."""
        if hook in implemented:
            return tuple(chain.from_iterable(manager.subset_hook_caller(hook, others)()))
        return tuple(value for value in vars(module).values() if isinstance(value, kind))

    return Plugin(
        name,
        (module.__doc__ or name).strip().splitlines()[0],
        conversions=declared("conversions", Conversion),
        transforms=declared("transforms", Transform),
        tools=declared("tools", Tool),
        requirements=declared("requirements", Requirement),
    )
