"""Imports the modules of jobs and initializes codecs before the sandbox is applied, which prevents both."""

import encodings
import gc
import importlib
import pkgutil
from collections.abc import Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path

from PIL import Image

from engine import pipeline, verification
from engine.conversions import AnyConversion
from engine.executor.disk_quota import reachable_by_jobs
from engine.formats import FileFormat
from engine.frames import Frame
from engine.media import RASTER, Raster
from engine.options import options_schema
from engine.registry import Registry, load_registry

_SIDE = 16  # pixels; any picture makes a codec initialize itself


def preload(modules: Iterable[str] | None = None) -> None:
    """Prepares a fork server for jobs that import `modules`; by default for all jobs."""
    registry = load_registry()
    import_modules(modules)
    if modules is None:
        warm_up_codecs(registry)
    registry.pairs()  # fills the registry's cache of paths
    options_schema(registry.options)
    # Objects that the garbage collector visits in a fork would be copied.
    gc.collect()
    gc.freeze()


def import_modules(modules: Iterable[str] | None) -> None:
    """Imports `modules`, and the modules that Pillow imports when it opens or saves a picture.

    Imports the modules of all jobs if `modules` is None, or if the installation is in a private folder, from which
    jobs cannot import the modules that only few files need.
    """
    if modules is None or not all(map(reachable_by_jobs, (Path(__file__), Path(Image.__file__)))):
        Image.init()
        modules = load_registry().modules
        _import_text_encodings()
    else:
        Image.preinit()
    for module in modules:
        importlib.import_module(module)


def _import_text_encodings() -> None:
    """Imports the codecs of all text encodings: files name the encoding of their text."""
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # encodings of other operating systems
            importlib.import_module(f"encodings.{module.name}")


def warm_up_codecs(registry: Registry) -> None:
    """Encodes and decodes a small picture in every format, so that one-time initialization is not left to jobs.

    Skips third-party plugins, because no sandbox limits them here, and steps that run programs.
    """
    builtin = Registry(plugin for plugin in registry.plugins if plugin.version is None)
    for step in chain.from_iterable(plugin.conversions for plugin in builtin.plugins):
        if step.source is RASTER and isinstance(step.target, FileFormat) and not step.programs:
            with suppress(Exception):  # jobs report the failure
                warm_up_codec(builtin, step, step.target)


def warm_up_codec(registry: Registry, encoder: AnyConversion, fmt: FileFormat) -> None:
    """Encodes a small picture and reads the result, so that both codecs are loaded."""
    data = encoder(Raster([Frame(Image.new("RGB", (_SIDE, _SIDE)))]))
    if registry.reader(fmt):
        plan = registry.plan([fmt], fmt)
        if not plan.programs:
            verification.verify(registry, plan, pipeline.run(plan, [data]).file)
