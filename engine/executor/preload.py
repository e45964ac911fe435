"""What a fork server does once, so that every job's process starts with all plugins loaded and all pairs planned."""

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
from engine.lazy_import import load_all
from engine.media import RASTER, Frame, Raster
from engine.options import Options
from engine.registry import Registry, load_registry

_SIDE = 16  # pixels: codecs do what they do but once for any picture


def preload(*, full: bool = True) -> None:
    """Loads whatever jobs would load one by one, and could not load any more behind the walls of their sandbox.

    Unless `full`, it goes without what has been put off: there is less then to be copied for each job.
    """
    Image.init()
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # those of other systems
            importlib.import_module(f"encodings.{module.name}")
    registry = load_registry()
    if full:
        load_all()
    registry.catalogue()  # plans every pair once, for all
    warm_up_codecs(registry, full=full)
    # Whatever the collector touches in a job's process is copied for it.
    gc.collect()
    gc.freeze()


def warm_up_codecs(registry: Registry, *, full: bool) -> None:
    """Writes a small picture in every format, and reads it, so that what happens but once need not happen in each job.

    Plugins of others are left out: here, nothing would hold what they do. So are, unless `full`, lazy steps.
    """
    own = Registry(plugin for plugin in registry.plugins if plugin.version is None)
    for step in chain.from_iterable(plugin.conversions for plugin in own.plugins):
        left_out = step.programs or (step.lazy and not full)
        if step.source is RASTER and isinstance(step.target, FileFormat) and not left_out:
            with suppress(Exception):  # jobs will tell that it fails
                _warm_up_codec(own, step, step.target)


def _warm_up_codec(registry: Registry, write: AnyConversion, fmt: FileFormat) -> None:
    data = write(Raster([Frame(Image.new("RGB", (_SIDE, _SIDE)))]), Options())
    if registry.reader(fmt):
        plan = registry.plan([fmt], fmt)
        if not plan.programs:
            verification.verify(registry, plan, pipeline.run(plan, [data], Options()), Options())
