"""Imports the modules of tasks and initializes codecs before the sandbox is applied, which prevents both."""

import ctypes
import encodings
import gc
import importlib
import logging
import pkgutil
import sys
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path

from PIL import Image

from engine import pipeline, verification
from engine.conversions import AnyConversion
from engine.executor.disk_quota import reachable_by_tasks
from engine.formats import FileFormat
from engine.frames import Frame
from engine.lazy import lazy_imports
from engine.media import RASTER, Raster
from engine.planner import modules_of, template_of
from engine.registry import Registry, load_registry

with lazy_imports():
    from engine import contained

log = logging.getLogger("convertd.preload")

_SIDE = 16  # pixels; any image makes a codec initialize itself


def preload(modules: Iterable[str] = ()) -> None:
    """Prepares a fork server for tasks that import `modules`, by default for most tasks of the registry."""
    gc.disable()  # it would visit what is imported again and again, and find nothing
    registry = load_registry()
    registry.pairs()  # fills the registry's cache of paths; the loop adds the paths of tools
    for tool in registry.tools:
        registry.tool_options(tool)
    if modules:
        import_modules(modules)
        _freeze()
    else:
        _leave_to_tasks(registry)
        preload_template("")


def _leave_to_tasks(registry: Registry) -> None:
    """Removes MODULES of third-party plugins from the templates if they cannot be imported ahead in time."""
    found = {plugin.name: frozenset(chain.from_iterable(map(modules_of, plugin.steps))) for plugin in registry.plugins}
    own = frozenset[str]().union(*(found[plugin.name] for plugin in registry.plugins if not plugin.third_party))
    tried = {name: modules - own for name, modules in found.items() if modules - own}
    if not tried:
        return
    errors = contained.run_apart(partial(_import_and_warm_up, modules) for modules in tried.values())
    for (name, modules), error in zip(tried.items(), errors, strict=True):
        if error is not None:
            log.error("plugin %s: its modules are not imported ahead: %s", name, error)
            registry.templates = {template: all_ - modules for template, all_ in registry.templates.items()}


def _import_and_warm_up(modules: Iterable[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    warm_up_modules(modules)


def preload_template(name: str) -> None:
    """Prepares this process, which is a copy of the template above, for the tasks of a template."""
    gc.disable()
    registry = load_registry()
    modules = registry.templates.get(name, ())
    import_modules(modules)
    plan_ahead(registry, name)
    warm_up_modules(modules)
    warm_up_codecs(registry, name)
    _freeze()


def _freeze() -> None:
    """Exempts all objects from garbage collection, which begins: those that it visits in a fork would be copied.

    Gives memory that imports and codecs have freed back to the system, which forks would copy, too.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    ctypes.CDLL(None).malloc_trim(0)


def import_modules(modules: Iterable[str]) -> None:
    """Imports `modules`, and the modules that Pillow imports when it opens or saves an image.

    Imports the modules of all tasks if the installation is in a private folder, from which tasks cannot import the
    modules that only few files need. Logs which cannot be imported: only their tasks fail.
    """
    if not all(map(reachable_by_tasks, map(Path, (__file__, Image.__file__, encodings.__file__)))):
        Image.init()
        modules = load_registry().modules
        _import_text_encodings()
    else:
        Image.preinit()
    for module, error in import_errors(modules).items():
        log.error("%s cannot be imported, and conversions that need it fail: %s", module, error)


def import_errors(modules: Iterable[str]) -> dict[str, str]:
    """Imports modules. Returns the errors of those that cannot be imported, by name, such as a missing library."""
    errors: dict[str, str] = {}
    for module in modules:
        try:
            importlib.import_module(module)
        except (ImportError, OSError) as error:
            errors[module] = contained.describe(error)
    return errors


def _import_text_encodings() -> None:
    """Imports the codecs of all text encodings: files name the encoding of their text."""
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # encodings of other operating systems
            importlib.import_module(f"encodings.{module.name}")


def plan_ahead(registry: Registry, template: str) -> None:
    """Plans what has steps of files with a TEMPLATE, which would take each of its processes up to a millisecond.

    Processes for most tasks plan a conversion once, and run it for many tasks.
    """
    if not template:
        return
    for source, target in registry.pairs():
        if any(template_of(step) == template for step in registry.path(source, target)):
            registry.plan([source], target)
    for tool in registry.tools.values():
        for source in tool.accepted if template_of(tool) == template else ():
            registry.plan([source] * tool.inputs[0], tool.target, tool.name)


def programs_of(modules: Iterable[str]) -> list[Callable[[], object]]:
    """The functions `start_program` of the modules that have one: each process starts a program, and keeps it."""
    names = sorted({*modules} - import_errors(modules).keys())
    found = (getattr(sys.modules[module], "start_program", None) for module in names)
    return [function for function in found if function is not None]


def warm_up_modules(modules: Iterable[str]) -> None:
    """Calls the function `warm_up` of the modules that have one. What it prepares, all tasks have."""
    for module in modules:
        getattr(sys.modules.get(module), "warm_up", lambda: None)()


def warm_up_codecs(registry: Registry, template: str) -> None:
    """Encodes and decodes a small image in every format of files with a TEMPLATE, and so initializes the codecs.

    Skips third-party plugins, because no sandbox limits them here, and steps that run programs.
    """
    builtin = Registry(plugin for plugin in registry.plugins if plugin.version is None)
    for step in chain.from_iterable(plugin.conversions for plugin in builtin.plugins):
        if step.source is not RASTER or not isinstance(step.target, FileFormat) or step.programs:
            continue
        if template_of(step) == template:
            with suppress(Exception), warnings.catch_warnings():  # tasks report the failure, and what they lose
                warnings.simplefilter("ignore")
                warm_up_codec(builtin, step, step.target)


def warm_up_codec(registry: Registry, encoder: AnyConversion, fmt: FileFormat) -> None:
    """Encodes a small image and reads the result, so that both codecs are loaded."""
    data = encoder(Raster([Frame(Image.new("RGB", (_SIDE, _SIDE)))]))
    if registry.reader(fmt):
        plan = registry.plan([fmt], fmt)
        if not plan.programs:
            verification.verify(registry, plan, pipeline.run(plan, [data]).file)
