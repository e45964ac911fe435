"""Imports that are delayed until a module is used."""

import builtins
import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest

from engine import lazy_imports

_USER = """
import threading
from engine import lazy_imports

def import_in_another_thread():
    thread = threading.Thread(target=lambda: __import__("delayed_package.other"))
    thread.start()
    thread.join()

with lazy_imports():
    import_in_another_thread()
    import delayed as short, missing
    from delayed_package import inner, value
    from . import sibling
"""


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that delays the import of others."""
    files = {
        "delayed.py": "number = 1",
        "delayed_package/__init__.py": "value = 2",
        "delayed_package/inner.py": "number = 3",
        "delayed_package/other.py": "",
        "users/__init__.py": "",
        "users/sibling.py": "number = 4",
        "users/user.py": _USER,
    }
    for name, source in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith(("delayed", "users"))]:
        monkeypatch.delitem(sys.modules, name)
    return importlib.import_module("users.user")


def test_modules_are_imported_when_they_are_used(user: ModuleType) -> None:
    delayed = ("delayed", "delayed_package.inner", "users.sibling")
    assert sys.modules.keys().isdisjoint(delayed)

    numbers = [user.short.number, user.inner.number, user.sibling.number]

    assert numbers == [1, 3, 4]
    assert [user.short, user.inner, user.sibling] == [sys.modules[name] for name in delayed]


def test_imports_elsewhere_are_not_delayed(user: ModuleType) -> None:
    assert "delayed_package.other" in sys.modules
    assert builtins.__import__.__module__ == "builtins"


def test_a_missing_module_is_an_error_when_it_is_used(user: ModuleType) -> None:
    with pytest.raises(ModuleNotFoundError, match="missing") as raised:
        user.missing.number  # noqa: B018

    assert raised.value.name == "missing"


def test_only_modules_are_imported(user: ModuleType) -> None:
    with pytest.raises(ImportError, match=r"delayed_package\.value"):
        user.value.real  # noqa: B018
    with pytest.raises(ImportError, match="from package import module"), lazy_imports():
        import xml.dom  # noqa: F401, PLC0415
