"""Preloads plugins, plans and codecs in a fork server, so that worker processes inherit them."""

from __future__ import annotations

import encodings
import gc
import importlib
import pkgutil
from contextlib import suppress
from itertools import chain

from PIL import Image

from engine import pipeline, verification
from engine.conversions import AnyConversion
from engine.formats import FileFormat
from engine.media import RASTER, Frame, Raster
from engine.options import options_schema
from engine.registry import Registry, load_registry

_SIDE = 16  # pixels; any picture makes a codec initialise itself


def preload() -> None:
    """Loads modules that jobs would otherwise load, which the sandbox prevents, and initialises codecs."""
    Image.init()
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # encodings of other operating systems
            importlib.import_module(f"encodings.{module.name}")
    registry = load_registry()
    registry.catalogue()  # fills the registry's cache of paths
    options_schema(registry.options)
    warm_up_codecs(registry)
    # Objects that the garbage collector visits in a fork would be copied.
    gc.collect()
    gc.freeze()


def warm_up_codecs(registry: Registry) -> None:
    """Encodes and decodes a small picture in every format, so that one-time initialisation is not left to jobs.

    Skips third-party plugins, because no sandbox limits them here, and steps that run programs.
    """
    builtin = Registry(plugin for plugin in registry.plugins if plugin.version is None)
    for step in chain.from_iterable(plugin.conversions for plugin in builtin.plugins):
        if step.source is RASTER and isinstance(step.target, FileFormat) and not step.programs:
            with suppress(Exception):  # jobs report the failure
                _warm_up_codec(builtin, step, step.target)


def _warm_up_codec(registry: Registry, encoder: AnyConversion, fmt: FileFormat) -> None:
    data = encoder(Raster([Frame(Image.new("RGB", (_SIDE, _SIDE)))]))
    if registry.reader(fmt):
        plan = registry.plan([fmt], fmt)
        if not plan.programs:
            verification.verify(registry, plan, pipeline.run(plan, [data]))
