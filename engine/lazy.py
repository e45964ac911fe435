"""Imports at the top of a file, of modules that are only loaded when they are used."""

import builtins
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from types import ModuleType, SimpleNamespace
from typing import Any

_LOCK = RLock()  # held while builtins.__import__ is replaced


class LazyModule(ModuleType):
    """Stands for a module in a file until one of its attributes is read, which imports and then uses the module."""

    def __init__(self, namespace: dict[str, Any], package: str, member: str | None = None, level: int = 0) -> None:
        super().__init__(f"{package}.{member}" if member else package)
        self._namespace = namespace
        self._statement = package, namespace, None, [member] if member else [], level
        self._member = member

    def __getattr__(self, attribute: str) -> Any:
        module: object = importlib.__import__(*self._statement)
        if self._member:
            module = getattr(module, self._member, None)
        if not isinstance(module, ModuleType):
            raise ImportError(f"lazy_imports() is for modules, and {self.__name__} is none", name=self.__name__)
        self._namespace.update({name: module for name, value in [*self._namespace.items()] if value is self})
        return getattr(module, attribute)


@contextmanager
def lazy_imports() -> Iterator[None]:
    """Delays the imports of the block, of modules that take long to import, until they are used.

    The block imports modules only: `import numpy as np` or `from package import module`. Each is imported when one of
    its attributes is first read; this raises ModuleNotFoundError if it is missing, and ImportError if it is no module.
    """

    def import_later(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        if get_ident() != thread:
            return original(name, globals, locals, fromlist, level)
        if fromlist:
            return SimpleNamespace(**{member: LazyModule(globals, name, member, level) for member in fromlist})
        if "." in name:
            raise ImportError(f"lazy_imports() needs `from package import module` for {name}", name=name)
        return LazyModule(globals, name)

    with _LOCK:
        original = builtins.__import__
        thread = get_ident()
        builtins.__import__ = import_later
        try:
            yield
        finally:
            builtins.__import__ = original
