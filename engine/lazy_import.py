"""Modules that only some jobs need, and that take long to load: other processes know of them, and go without."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.util import LazyLoader, find_spec, module_from_spec
from importlib.util import _LazyModule as _Lazy  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NoReturn


class NotLoaded(BaseException):
    """A process that goes without a module was asked for it; `str(error)` names it.

    No Exception, so that nobody mistakes it for a failure of what asked.
    """


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


def seal() -> Sequence[str]:
    """From here on, this process and its forks load nothing: what is not there, put off or not, raises NotLoaded.

    Returns the names that this will have been raised for, in this process, even where somebody has caught it.
    """
    missing = list[str]()

    def refuse(name: str) -> NoReturn:
        missing.append(name)
        raise NotLoaded(name) from None

    class Sealed(ModuleType):
        """Shows what is known of a module without loading it, as whoever goes through all modules asks for."""

        def __getattribute__(self, name: str) -> Any:
            try:
                return super().__getattribute__(name)
            except AttributeError:
                refuse(super().__getattribute__("__name__"))

    class NoFinder(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> NoReturn:
            refuse(fullname)

    for module in list(sys.modules.values()):
        if type(module) is _Lazy:
            module.__class__ = Sealed
    sys.meta_path.insert(0, NoFinder())
    return missing
