"""The `plugin` commands, with which authors of plugins write a package and check it."""

from __future__ import annotations

import json
import re
import struct
from importlib.metadata import entry_points
from pathlib import Path
from string import Template
from typing import Annotated
from urllib.parse import unquote, urlsplit

import typer

from engine.lazy import lazy_imports
from engine.plugin_loader import ENTRY_POINT_GROUP, Plugin
from engine.registry import load_registry
from web.cli.output import FAILED, WRONG_USAGE, exit_with

with lazy_imports():
    from engine import testing

_NAME = re.compile(r"[a-z][a-z0-9]{0,19}")
_TEMPLATE = Path(__file__).parents[1] / "plugin_template"
_SAMPLES = Path("tests", "samples")
_SAMPLE_SIZE = (4, 3)  # pixels

cli = typer.Typer(add_completion=False, no_args_is_help=True)


@cli.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the format: lower-case letters and digits.")],
) -> None:
    """Write a package with a plugin for one format, and its tests, in the folder NAME."""
    if not _NAME.fullmatch(name):
        exit_with(f"{name} is no name: use up to 20 lower-case letters and digits, first a letter", WRONG_USAGE)
    if Path(name).exists():
        exit_with(f"{name} exists already", FAILED)
    registry = load_registry()
    if registry.format(name) is not None or any(plugin.name == name for plugin in registry.plugins):
        exit_with(f"{name} is the name of an installed format or plugin", WRONG_USAGE)
    folder = Path(name)
    values = {"name": name, "title": name.upper(), "constant": name.upper(), "class_name": name.capitalize()}
    files = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"convertd_{name}.py": "plugin.py",
        f"tests/test_{name}.py": "test_plugin.py",
    }
    try:
        (folder / _SAMPLES).mkdir(parents=True)
        for path, template in files.items():
            text = (_TEMPLATE / f"{template}.in").read_text()
            (folder / path).write_text(Template(text).substitute(values))
        (folder / _SAMPLES / f"image.{name}").write_bytes(_sample(name))
    except OSError as error:
        exit_with(f"cannot write {error.filename}: {error.strerror}", FAILED)
    print(f"{folder}: install it with 'pip install ./{folder}', and check it with 'convertd plugin check {name}'")


def _sample(name: str) -> bytes:
    """An image in the format of the template."""
    width, height = _SAMPLE_SIZE
    return f"{name.upper()}\n".encode() + struct.pack(">II", width, height) + bytes(range(3 * width * height))


@cli.command()
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A plugin. Default: all of other packages.")
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Files of its formats. Default: tests/samples of its package, or here."),
    ] = None,
) -> None:
    """Check that plugins detect, read and write their files, as declared, in the sandbox."""
    registry = load_registry()
    chosen = [plugin for plugin in registry.plugins if plugin.name == name or (name is None and _is_foreign(plugin))]
    if name is not None and not chosen:
        known = ", ".join(plugin.name for plugin in registry.plugins)
        exit_with(f"there is no plugin {name}; installed are {known}", WRONG_USAGE)
    failed = False
    for plugin in chosen:
        problems = testing.check(testing.Subject.named(plugin.name, samples or _samples_of(plugin)))
        failed = failed or bool(problems)
        print(f"{plugin.name}: {'failed' if problems else 'passed'}")
        for title, found in problems.items():
            print(*(f"  {title}: {problem}" for problem in found), sep="\n")
    if failed:
        raise typer.Exit(FAILED)


def _is_foreign(plugin: Plugin) -> bool:
    return plugin.version is not None


def _samples_of(plugin: Plugin) -> Path:
    """`tests/samples` of the folder from which the plugin's package was installed, or of the working folder."""
    found = [entry for entry in entry_points(group=ENTRY_POINT_GROUP) if entry.name == plugin.name]
    for entry in found:
        if entry.dist is not None and (origin := entry.dist.read_text("direct_url.json")):
            url = urlsplit(json.loads(origin)["url"])
            folder = Path(unquote(url.path)) / _SAMPLES
            if url.scheme == "file" and folder.is_dir():
                return folder
    return _SAMPLES
