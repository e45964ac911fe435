"""Regular expressions that read what strangers send match a text in one way, so that the time is linear."""

import ast
import gc
import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import pytest

from engine.registry import load_registry
from tests.support.ambiguity import is_ambiguous

_ROOT = Path(__file__).parents[1]
_SEARCHES = {"search", "split", "sub", "subn", "findall", "finditer"}
_METHODS = {*_SEARCHES, "match", "fullmatch"}


class _Use(NamedTuple):
    """An expression and the method that applies it; empty if that is unknown."""

    pattern: str | bytes
    flags: int
    method: str

    @property
    def is_ambiguous(self) -> bool:
        searched, complete = self.method in {*_SEARCHES, ""}, self.method in ("fullmatch", "")
        return is_ambiguous(self.pattern, self.flags, searched=searched, complete=complete)


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """The value of an expression in a module; what only a call knows is `x`."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(_value(part, names)) for part in node.values)
    try:
        expression = ast.Expression(node.value if isinstance(node, ast.FormattedValue) else node)
        return eval(compile(expression, "expression", "eval"), dict(names))
    except NameError:
        return "x"


def _uses(tree: ast.AST, names: Mapping[str, Any]) -> Iterator[_Use]:
    """The expressions in a module with these global names: of `re.match`, `_NAME.match` and `matching`, and alike."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _METHODS and isinstance(node.value, ast.Name):
            found = names.get(node.value.id)
            if isinstance(found, re.Pattern):
                yield _Use(found.pattern, found.flags & ~re.UNICODE, node.attr)
        if isinstance(node, ast.Call) and node.args:
            function = node.func
            if isinstance(function, ast.Name) and function.id == "matching":
                yield _Use(_value(node.args[0], names), 0, "fullmatch")
            elif isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re":
                flags = node.args[1:] if function.attr == "compile" else [one.value for one in node.keywords]
                method = function.attr if function.attr in _METHODS else ""
                if method or not any(isinstance(value, re.Pattern) for value in names.values()):
                    yield _Use(_value(node.args[0], names), sum(_value(one, names) for one in flags), method)


def _in_module(module: ModuleType) -> set[_Use]:
    source = inspect.getsource(module)
    if not re.search(r"\bre\.|\bmatching\(", source):
        return set()
    uses = {*_uses(ast.parse(source), vars(module))}
    known = {use.pattern for use in uses}
    for found in vars(module).values():
        if isinstance(found, re.Pattern) and found.pattern not in known:
            uses.add(_Use(found.pattern, found.flags & ~re.UNICODE, ""))
    return uses


def _of_server() -> Iterator[ModuleType]:
    for package in ("engine", "web", "storage"):
        for path in sorted((_ROOT / package).rglob("*.py")):
            name = ".".join(path.relative_to(_ROOT).with_suffix("").parts)
            if not name.startswith(("web.client", "web.docs.samples")) and not name.endswith("__"):
                yield importlib.import_module(name)


def _reached(value: object, found: dict[FunctionType, str], declared: set[int]) -> None:
    """Adds the functions of plugins that a sniffer can call, and their modules. `declared` has the ids of others."""
    if isinstance(value, FunctionType):
        if value in found or not value.__module__.startswith("plugins"):
            return
        found[value] = value.__module__
        used = inspect.getclosurevars(value)
        others = [*used.globals.values(), *used.nonlocals.values()]
        modules = [one for one in others if isinstance(one, ModuleType | type)]
        others += [vars(one)[name] for one in modules for name in used.unbound if name in vars(one)]
    elif type(value).__module__ == "engine.formats" and id(value) not in declared:
        declared.add(id(value))
        others = [*value] if isinstance(value, tuple) else [*vars(value).values()]
    else:
        return
    for other in others:
        for one in other if type(other) is tuple else [other]:
            _reached(one, found, declared)


def _of_detection() -> Iterator[ModuleType]:
    found: dict[FunctionType, str] = {}
    for fmt in load_registry().formats.values():
        _reached(fmt.sniff, found, set())
    yield from map(importlib.import_module, sorted({*found.values()}))


@pytest.mark.parametrize(("modules", "least"), [(_of_server, 40), (_of_detection, 8)])
def test_expressions_match_a_text_in_one_way(modules: Any, least: int) -> None:
    gc.disable()  # it would visit the nodes again and again
    try:
        uses = {use for module in modules() for use in _in_module(module)}
    finally:
        gc.enable()

    assert len(uses) >= least
    assert {use for use in uses if use.is_ambiguous} == set()


@pytest.mark.parametrize(
    ("pattern", "use", "expected"),
    [
        (rb"\s*(?:/\*.*?\*/\s*)*#define\s+\S*width\s+(\d{1,9})\s", "match", True),  # which stopped servers
        (r"(a+)+b", "match", True),
        (r"(a+){2,3}b", "match", True),
        (r"(a|aa)*c", "match", True),
        (r"\s*=\s*([0-9]{0,18})\s*-", "match", True),
        (r"\s*+=\s*+([0-9]{0,18}+)\s*+-", "match", False),
        (r'(?:[^"\\]|\\.)*"', "match", False),
        (r"a*b*", "fullmatch", False),
        (r"\s*,", "match", False),
        (r"\s*,", "split", True),
        (r",\s*", "split", False),
        (r"\?.*", "search", False),
        (r"\?.*\n", "search", True),
    ],
)
def test_what_is_ambiguous(pattern: str | bytes, use: str, expected: bool) -> None:
    assert _Use(pattern, re.DOTALL if isinstance(pattern, bytes) else 0, use).is_ambiguous == expected
