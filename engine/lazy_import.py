"""Modules that only jobs need, and that take long to load: other processes know of them, and go without."""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def lazy_import(name: str) -> ModuleType:
    """The module of that name, loaded when something of it is first used, or by `load_all`. Raises ImportError.

    A plugin keeps it in a private name: public ones are looked at for hooks, which is a use.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    spec.loader = LazyLoader(spec.loader)
    module = sys.modules[name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def load_all() -> None:
    """Loads what has been put off."""
    for module in list(sys.modules.values()):
        getattr(module, "__name__", None)  # any use will do
