"""What the fork server does once, so that every job's process starts with all plugins loaded and all pairs planned."""

import encodings
import gc
import importlib
import pkgutil
from contextlib import suppress

from PIL import Image

from engine.lazy_import import load_all
from engine.registry import load_registry


def warm() -> None:
    """Loads whatever jobs would load one by one, and could not load any more behind the walls of their sandbox."""
    Image.init()
    for module in pkgutil.iter_modules(encodings.__path__):
        with suppress(ImportError):  # those of other systems
            importlib.import_module(f"encodings.{module.name}")
    registry = load_registry()
    load_all()
    registry.catalogue()  # plans every pair once, for all
    # Whatever the collector touches in a job's process is copied for it.
    gc.collect()
    gc.freeze()
