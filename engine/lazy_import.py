"""Lazy imports of large libraries: loaded on first use, or all at once in the full fork server.

Processes of the light fork server must not load them: there, any use raises NotLoaded, and the job runs again in a
process of the full fork server.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.util import LazyLoader, find_spec, module_from_spec
from importlib.util import _LazyModule as _Lazy  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any, NoReturn


class NotLoaded(BaseException):
    """A module was used that this process must not load; `str(error)` is its name.

    Not an Exception, so that plugins do not catch it as a failure of their own.
    """


def lazy_import(name: str) -> ModuleType:
    """Returns a module that is loaded on first use or by `load_all`. Raises ImportError.

    Assign it to a private name in a plugin: the search for hooks inspects public names, which counts as a use.
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
    """Loads all modules that have been imported lazily."""
    for module in list(sys.modules.values()):
        getattr(module, "__name__", None)  # reading any attribute loads the module


def seal() -> Sequence[str]:
    """Forbids further imports in this process and its forks: using a module that is not loaded raises NotLoaded.

    Returns a list to which the name of every such module is appended, even if the caller catches NotLoaded.
    """
    missing = list[str]()

    def refuse(name: str) -> NoReturn:
        missing.append(name)
        raise NotLoaded(name) from None

    class Sealed(ModuleType):
        """Allows attributes that exist without loading, for code that iterates over all modules."""

        def __getattribute__(self, name: str) -> Any:
            try:
                return super().__getattribute__(name)
            except AttributeError:
                refuse(super().__getattribute__("__name__"))

    class RefusingFinder(MetaPathFinder):
        def find_spec(self, fullname: str, path: object, target: ModuleType | None = None) -> NoReturn:
            refuse(fullname)

    for module in list(sys.modules.values()):
        if type(module) is _Lazy:
            module.__class__ = Sealed
    sys.meta_path.insert(0, RefusingFinder())
    return missing
