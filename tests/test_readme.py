"""The README is true: its commands work as printed, and its tables list what there is."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.names import variable
from config.settings import Settings
from engine import hookspecs
from engine.registry import load_registry
from tests.samples import sample

pytestmark = pytest.mark.long

_ROOT = Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text()


def _blocks(language: str, text: str = _README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def section(heading: str) -> str:
    """What stands below that heading."""
    return _README.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def _rows(heading: str) -> list[list[str]]:
    section = _README.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines()[2:]]


_PRODUCTION = "A day in production"  # has tests of its own
_COMMANDS = [line for block in _blocks("sh", _README.replace(section(_PRODUCTION), "")) for line in block.splitlines()]


def test_the_readme_has_commands() -> None:
    assert sum(command.startswith("curl") for command in _COMMANDS) >= 4
    assert _COMMANDS[0] == "sh config/setup.sh && .venv/bin/convertd serve"
    assert _COMMANDS[1] == "sh config/setup.sh test && .venv/bin/pytest"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands name."""
    made = tmp_path_factory.mktemp("readme")
    (made / "photo.heic").write_bytes(sample("heic"))
    (made / "page.pdf").write_bytes(sample("pdf"))
    (made / ".venv").mkdir()
    (made / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return made


@pytest.fixture(scope="module")
def shell(folder: Path) -> Iterator[Callable[[str], bytes]]:
    """Runs commands in the folder while `convertd serve` runs, which has to end well when told to."""
    serve = (folder / ".venv" / "bin" / "convertd", "serve", "--port", "0")
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stderr is not None
        told = next(found for line in server.stderr if (found := re.search(r"listening on http://(\S+?);", line)))
        environment = dict(os.environ)

        def run(command: str) -> bytes:
            here = command.replace("localhost:8000", told[1])
            here = re.sub(r"^curl ", "curl --fail --no-progress-meter ", here)
            if (exported := re.fullmatch(r"export (\w+)=\$\((.*)\)", here)) is not None:
                environment[exported[1]] = run(exported[2]).decode().strip()
                return b"exported"
            done = subprocess.run(here, shell=True, check=True, cwd=folder, env=environment, capture_output=True)
            return done.stdout

        yield run
        server.terminate()
        server.stderr.read()
        assert server.wait(timeout=30) == 0


def test_the_commands_work_as_printed(folder: Path, shell: Callable[[str], bytes]) -> None:
    registry = load_registry()
    for command in _COMMANDS[2:]:
        printed = shell(command)
        if (saved := re.search(r" -o (\S+)$", command)) is not None:
            assert registry.identify(folder / saved[1]) == registry.format(saved[1].rpartition(".")[2])
        elif command.startswith("curl"):
            assert "data" in json.loads(printed)


def test_the_client_works_as_printed(shell: Callable[[str], bytes]) -> None:
    client, _ = _blocks("python")
    key = "$(.venv/bin/convertd account create --email python@example.com --name Python)"

    described, *rest = shell(f"CONVERTD_API_KEY={key} {sys.executable} -c {shlex.quote(client)}").decode().splitlines()

    assert described.endswith(" () 49")
    assert rest[:2] == ["photo.png None", "page.png None"]
    assert rest[2].startswith("invalid_parameter ")


def test_the_formats_are_those_of_the_registry() -> None:
    plans = load_registry().catalogue()
    sources, targets = ({str(getattr(plan, side)) for plan in plans} for side in ("source", "target"))

    assert {row[0] for row in _rows("format") if row[1]} == sources
    assert {row[0] for row in _rows("format") if row[2]} == targets


def test_the_settings_are_those_of_the_program() -> None:
    documented = {row[0].strip("`"): row[1].strip("`") for row in _rows("setting")}

    assert set(documented) == {variable(name) for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | str | Path) and field.default is not None:
            assert documented[variable(name)] == str(field.default)


def test_the_warnings_are_those_of_the_code() -> None:
    said: set[str] = set()
    for path in [*(_ROOT / "engine").glob("*.py"), *(_ROOT / "plugins").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "FidelityWarning":
                code = node.args[0]
                said |= {str(code.value)} if isinstance(code, ast.Constant) else {"frames_dropped", "pages_dropped"}

    assert {row[0].strip("`") for row in _rows("code")} == said


def test_the_alerts_are_those_that_are_raised() -> None:
    raised = re.findall(r"- alert: (\w+)", (_ROOT / "config" / "alerts.yml").read_text())

    assert [row[0].strip("`") for row in _rows("alert")] == raised


def test_the_files_it_names_are_there() -> None:
    named = set(re.findall(r"\bconfig/[\w./-]*\w", _README))

    assert len(named) > 5
    assert {name for name in named if not (_ROOT / name).exists()} == set()


def test_the_hooks_are_documented() -> None:
    hooks = {name for name, value in vars(hookspecs).items() if hasattr(value, "convertd_spec")}

    assert {row[0].strip("`") for row in _rows("hook")} == hooks


def test_the_plugin_is_the_one_that_is_tried() -> None:
    _, plugin = _blocks("python")

    assert plugin == (_ROOT / "tests" / "foreign_plugin" / "convertd_ppm.py").read_text()


def test_the_listing_names_every_folder() -> None:
    listed = set(re.findall(r"^(\w+)/", _README.partition("## How it is built")[2], re.MULTILINE))

    assert listed == {path.name for path in _ROOT.iterdir() if path.is_dir() and path.name.isidentifier()} - {
        "data",
        "build",
    }
