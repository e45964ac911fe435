"""The listing is the architecture: who may import whom, and how large a room may grow."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import engine

_ROOT = Path(__file__).parents[1]
_MAY_IMPORT = {
    "config": {"config"},
    "engine": {"engine"},
    "plugins": {"plugins", "engine"},
    "storage": {"storage"},
    "web": {"web", "engine", "storage", "config"},
    "benchmarks": {"benchmarks", "config", "engine", "plugins", "storage", "tests", "web"},
}
_TOP_LEVEL = {
    *("pyproject.toml", "README.md", "SECURITY.md", "LICENSE"),
    *("engine", "plugins", "web", "storage", "config", "tests", "benchmarks"),
}
_MAX_FILE, _MAX_FUNCTION = 400, 40  # lines
_TAKEN_ALONG = _ROOT / "web" / "client.py"  # by users, as one file: it is as long as it needs to be


def _modules() -> list[Path]:
    return [path for folder in _MAY_IMPORT for path in sorted((_ROOT / folder).rglob("*.py"))]


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@pytest.mark.parametrize("path", _modules(), ids=lambda path: str(path.relative_to(_ROOT)))
def test_module(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    room = path.relative_to(_ROOT).parts[0]
    imported = list(_imported(tree))

    assert {name.partition(".")[0] for name in imported} & set(_MAY_IMPORT) <= _MAY_IMPORT[room]
    assert ast.get_docstring(tree) or not text.strip()
    assert text.count("\n") <= _MAX_FILE or path == _TAKEN_ALONG
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert (node.end_lineno or 0) - node.lineno < _MAX_FUNCTION, node.name


def test_what_is_taken_along_needs_httpx_alone() -> None:
    imported = {name.partition(".")[0] for name in _imported(ast.parse(_TAKEN_ALONG.read_text()))}

    assert imported - sys.stdlib_module_names == {"httpx"}


@pytest.mark.parametrize("library", ["PIL", "pymupdf", "numpy"])
def test_only_media_knows_picture_libraries_in_the_engine(library: str) -> None:
    knowing = {
        path.stem
        for path in (_ROOT / "engine").glob("*.py")
        if any(name.partition(".")[0] == library for name in _imported(ast.parse(path.read_text())))
    }

    assert knowing <= {"media", "color", "mupdf", "preload"}


@pytest.mark.parametrize("path", sorted((_ROOT / "plugins").rglob("*.py")), ids=lambda path: path.stem)
def test_plugins_import_only_the_names_that_engine_exports(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not any(alias.name.partition(".")[0] == "engine" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "engine":
            names = {alias.name for alias in node.names}
            assert (node.module == "engine" and names <= {*engine.__all__, "mupdf"}) or names == {"lazy_import"}


def test_services_know_no_tornado() -> None:
    for path in (_ROOT / "web" / "services").glob("*.py"):
        assert not any(name.startswith("tornado") for name in _imported(ast.parse(path.read_text()))), path.name


def test_the_top_level_is_as_the_readme_lists_it() -> None:
    made_here = {"data", "build", "convertd.egg-info"}
    found = {path.name for path in _ROOT.iterdir() if not path.name.startswith(".")} - made_here

    assert found == _TOP_LEVEL
