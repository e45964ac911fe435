"""The structure of the source: which module may import which, and how large files and functions may be."""

import ast
import gc
import re
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from pkgutil import resolve_name
from statistics import median
from types import ModuleType
from typing import NamedTuple

import pytest

_ROOT = Path(__file__).parents[1]
_MAY_IMPORT = {
    "config": {"config"},
    "engine": {"engine"},
    "plugins": {"plugins", "engine"},
    "storage": {"storage"},
    "web": {"web", "engine", "storage", "config", "convertd_client"},
    "convertd_client": {"convertd_client"},
    "benchmarks": {"benchmarks", "config", "convertd_client", "engine", "plugins", "storage", "web"},
    "tests": {"benchmarks", "config", "convertd_client", "engine", "plugins", "storage", "tests", "web"},
}
_SHARED = {"config.errors"}  # the base of all errors
_TOP_LEVEL = {
    *("pyproject.toml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"),
    *("engine", "plugins", "web", "storage", "config", "tests", "benchmarks"),
}
_LAYERS = (  # of web, lowest first; modules of one layer may import each other
    {"api", "locale"},
    {"metrics"},
    {"docs"},
    {"services"},
    {"agents"},
    {"http"},
    {"handlers", "site"},
    {"routes"},
    {"app", "cli", "client", "supervisor", "translations", "workers"},
)
_WITHOUT_TORNADO = ("engine", "plugins", "storage", "config", "web.api", "web.locale", "web.metrics", "web.services")
_MAX_FILE, _MAX_FUNCTION, _MIN_MEDIAN = 500, 60, 100  # lines
_CLIENT = "convertd_client"  # a package of its own, in the folder web/client
_GENERATED = {"convertd_client.schema"}
_VOCABULARY = {"engine", "engine.blocks", "engine.color", "engine.mupdf", "engine.option_types"}  # of plugins


@cache
def _sources() -> dict[str, str]:
    """The source of each module by its dotted name."""
    found = [path for package in _MAY_IMPORT for path in sorted((_ROOT / package).rglob("*.py"))]
    paths = [path for path in found if "build" not in path.parts]  # setuptools copies packages there
    names = (".".join(path.relative_to(_ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths)
    own = {name: name.replace(f"web.client.{_CLIENT}", _CLIENT) for name in names}
    return {own[name]: path.read_text() for name, path in zip(own, paths, strict=True)}


class _Module(NamedTuple):
    """What the tests look at of a module. Its tree would take most of the time of the garbage collector."""

    imports: set[str]  # dotted names; of our packages, the modules that names are imported from
    lazy: set[str]
    functions: set[tuple[str, int]]  # names and lengths
    attributes: set[str]  # those of other objects that begin with an underscore
    docstring: str | None


@cache
def _modules() -> dict[str, _Module]:
    gc.disable()  # it would visit the nodes again and again, in most of the time
    try:
        return {name: _module(ast.parse(source)) for name, source in _sources().items()}
    finally:
        gc.enable()


def _module(tree: ast.Module) -> _Module:
    imports, functions, attributes = set[str](), set[tuple[str, int]](), set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                imports.update(alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                inner = (f"{module}.{alias.name}" for alias in node.names)
                imports.update(name if name in _sources() else module for name in inner)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                functions.add((node.name, (node.end_lineno or 0) - node.lineno))
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                pass
            case ast.Attribute() if re.match("_[a-z]", node.attr):
                attributes.add(node.attr)
    lazy = {
        f"{node.module}.{alias.name}"
        for block in tree.body
        if isinstance(block, ast.With) and ast.unparse(block.items[0]) == "lazy_imports()"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    return _Module(imports, lazy, functions, attributes, ast.get_docstring(tree))


@cache
def _imports() -> dict[str, set[str]]:
    return {name: module.imports for name, module in _modules().items()}


def _own(packages: set[str]) -> dict[str, set[str]]:
    """The modules of these packages, each with the project's modules that it imports."""
    own = {name: imported for name, imported in _imports().items() if name.partition(".")[0] in packages}
    return {name: {found for found in imported if found in _sources()} for name, imported in own.items()}


def _layer(name: str) -> int:
    part = name.split(".")[1]
    return next(number for number, parts in enumerate(_LAYERS) if part in parts)


def test_imports_between_packages() -> None:
    forbidden = {
        (name, found)
        for name, imported in _imports().items()
        for found in imported
        if found.partition(".")[0] in _MAY_IMPORT.keys() - _MAY_IMPORT[name.partition(".")[0]]
        and (found not in _SHARED or name.startswith("convertd_client"))
    }

    assert forbidden == set()


def test_layers_of_web() -> None:
    """Every module of web has a layer, so that rules for direct imports also hold for indirect ones."""
    arrows = {(name, found) for name, imported in _own({"web"}).items() for found in imported}

    within = [arrow for arrow in arrows if all(name.startswith("web.") for name in arrow)]
    upward = {(name, found) for name, found in within if _layer(found) > _layer(name)}

    assert upward == set()


def test_layers_of_storage() -> None:
    may_import = {
        "backups": {"blobs", "database"},
        "blobs": {"blobs"},
        "database": {"database"},
        "tables": {"database", "tables"},
    }
    arrows = {
        (name, found)
        for name, imported in _own({"storage"}).items()
        for found in imported
        if name.split(".")[1:2] and found.split(".")[1] in may_import
    }

    assert {
        arrow for arrow in arrows if arrow[1].split(".")[1] not in may_import.get(arrow[0].split(".")[1], ())
    } == set()


def test_only_http_and_the_layers_above_import_tornado() -> None:
    importing = {name for name, imported in _imports().items() if any(one.startswith("tornado") for one in imported)}

    assert {name for name in importing if name.startswith(_WITHOUT_TORNADO)} == set()


def test_lazy_imports_are_of_modules() -> None:
    """Mypy takes other names for what they are, but they raise ImportError."""
    delayed = {(name, found) for name, module in _modules().items() for found in module.lazy}

    assert len(delayed) > 50
    others = {one for one in delayed if one[1] not in _sources() and not isinstance(resolve_name(one[1]), ModuleType)}
    assert others == set()


def test_no_import_cycles() -> None:
    try:
        TopologicalSorter(_own(set(_MAY_IMPORT))).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_no_test_module_is_imported() -> None:
    arrows = [(name, found) for name, imported in _imports().items() for found in imported]
    importing = {arrow for arrow in arrows if arrow[1].rpartition(".")[2].startswith("test_")}

    assert importing == set()


def test_tests_use_public_attributes() -> None:
    """Those that remain are public attributes of libraries whose names begin with an underscore."""
    public = {"_exit", "_meta", "_replace"}
    modules = ((name, module) for name, module in _modules().items() if name.startswith("tests."))
    accessed = {(name, attribute) for name, module in modules for attribute in module.attributes}

    assert {attribute for attribute in accessed if attribute[1] not in public} == set()


def test_size_of_files() -> None:
    lines = {name: source.count("\n") for name, source in _sources().items()}

    assert {name for name, count in lines.items() if count > _MAX_FILE} - _GENERATED == set()
    assert median(count for name, count in lines.items() if name.startswith("web") and count) >= _MIN_MEDIAN


def test_size_of_functions() -> None:
    long = {
        (name, function)
        for name, module in _modules().items()
        for function, lines in module.functions
        if lines >= _MAX_FUNCTION
    }

    assert long == set()


def test_every_module_has_a_docstring() -> None:
    without = {name for name, module in _modules().items() if _sources()[name].strip() and not module.docstring}

    assert {name for name in without if not name.startswith("tests.")} == set()


def test_plugins_import_only_the_vocabulary_of_the_engine() -> None:
    """Third-party plugins need no other imports than built-in ones."""
    importing = {
        (name, found)
        for name, imported in _imports().items()
        for found in imported
        if name.startswith("plugins") and found.startswith("engine.") and found not in _VOCABULARY
    }

    assert importing == set()


def test_the_client_needs_only_httpx() -> None:
    own = [modules for name, modules in _imports().items() if name.partition(".")[0] == _CLIENT]
    imported = {found.partition(".")[0] for modules in own for found in modules}

    assert imported - sys.stdlib_module_names == {_CLIENT, "httpx"}


@pytest.mark.parametrize("library", ["PIL", "pymupdf", "numpy"])
def test_image_libraries_in_the_engine(library: str) -> None:
    importing = {
        name
        for name, imported in _imports().items()
        if name.startswith("engine.") and any(one.partition(".")[0] == library for one in imported)
    }

    names = {"media", "frames", "verification", "color", "hdr", "linear_light", "mupdf", "executor.preload", "testing"}
    assert importing <= {f"engine.{name}" for name in names}


def test_no_test_depends_on_the_day() -> None:
    """Else the same commit would pass on one day and fail on another."""
    call = ".today" + "("
    assert [name for name, source in _sources().items() if name.startswith("tests.") and call in source] == []


def test_the_readme_lists_the_top_level() -> None:
    created_here = {"data", "build", "convertd.egg-info"}
    found = {path.name for path in _ROOT.iterdir() if not path.name.startswith(".")} - created_here

    assert found == _TOP_LEVEL
