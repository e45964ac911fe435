"""The documents are correct: their commands work as printed, and their tables are complete."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from inspect import Parameter, signature
from pathlib import Path
from zipfile import ZipFile

import pytest
import typer
import yaml
from typer.core import TyperGroup

from benchmarks.__main__ import cli as benchmarks_cli
from benchmarks.processes import free_port
from config.settings import Settings, variable
from engine import FileFormat, Loss, hookspecs
from engine.conversions import conversion
from engine.registry import load_registry
from tests.support.command_line import invoke
from tests.support.readme import ROOT, Document, documents, read
from tests.support.servers.in_process import eventually
from web.api.error_catalogue import WARNING_CATALOGUE
from web.docs.code_samples import WEBHOOK_SAMPLES
from web.services.accounts.key_modes import TEST_MODE

pytestmark = pytest.mark.slow

_CONTRIBUTING = read("CONTRIBUTING.md")
_README = read("README.md")
_BENCHMARKS = read("benchmarks/README.md")
_OPERATION = read("config/README.md")
_TEAM = read("config/TEAM.md")
_PLUGINS = read("plugins/README.md")
_PACKAGE = "A package and its checks"  # as of the next
_TOOL = "Declaring a tool"  # its commands are executed in test_foreign_plugin
_SANDBOX = read("engine/sandbox/README.md")
_SECURITY = read("SECURITY.md")
_TESTS = read("tests/README.md")
_USAGE = read("web/USAGE.md")

_SET_UP = ["sh config/setup.sh", ".venv/bin/convertd serve"]
# In the same folder, in this order.
_EXECUTED = [
    _README,
    _USAGE,
    _OPERATION.without("Daily operation"),
    _PLUGINS.without(_TOOL).without(_PACKAGE),
    _SANDBOX,
]
_JOBS = next(block.splitlines() for block in _USAGE.blocks("sh") if "WEBHOOK_SECRET" in block)
_SAMPLES = _USAGE.commands()[:3]  # make the files of the others
_COMMANDS = [
    # Once each: those that are in several documents, such as `convertd doctor`, change nothing.
    command
    for command in dict.fromkeys(command for document in _EXECUTED for command in document.commands())
    if command not in (*_SET_UP, *_SAMPLES, *_JOBS)
]


def test_every_document_with_commands_is_covered() -> None:
    """They are executed or parsed, here, in test_production, test_foreign_plugin and long/test_team."""
    with_commands = [document for document in documents() if document.commands()]

    assert with_commands == [_CONTRIBUTING, _README, _BENCHMARKS, _OPERATION, _TEAM, _SANDBOX, _PLUGINS, _TESTS, _USAGE]


def test_the_readme_has_commands() -> None:
    assert sum(command.startswith("curl") for command in _COMMANDS) >= 4
    assert _README.commands()[:2] == _SET_UP


def test_the_readme_is_short() -> None:
    assert _README.text.count("\n") <= 130
    assert len(_README.text.split()) <= 1000
    assert (ROOT / "web" / "static" / "landing.png").stat().st_size <= 60_000
    terms = [row[0] for row in read("web/GLOSSARY.md").table("term")]
    assert terms == sorted({*terms})
    assert len(terms) <= 40


def test_the_decisions_are_listed() -> None:
    listed = [one for row in read("web/decisions/README.md").table("number") for one in re.findall(r"\[(.+)\]", row[1])]
    titles = [path.read_text().partition("\n")[0] for path in sorted((ROOT / "web" / "decisions").glob("[0-9]*.md"))]

    assert titles == [f"# {number:02} {one}" for number, one in enumerate(listed, 1)]


def test_the_hooks_before_a_commit_are_local_and_run_what_the_checks_run() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    commands = {" ".join(hook["entry"].split()[:2]) for one in repositories for hook in one["hooks"]}

    assert {one["repo"] for one in repositories} == {"local"}
    assert commands == {*re.findall(r"^(\.venv/bin/(?:ruff \w+|mypy))", read("config/check.sh").text, re.MULTILINE)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder without any files that the commands name."""
    made = tmp_path_factory.mktemp("readme")
    (made / ".venv").mkdir()
    (made / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    (made / "web").symlink_to(ROOT / "web")
    return made


@pytest.fixture(scope="module")
def shell(folder: Path) -> Iterator[Callable[[str], bytes]]:
    """Runs commands in the folder while `convertd serve` runs, which exits with 0 at the end. Makes the samples."""
    serve = (folder / ".venv" / "bin" / "convertd", "serve", "--port", "0")
    environment, port = {**os.environ, "CONVERTD_URL_ALLOW": "127.0.0.0/8"}, str(free_port())
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment) as server:
        assert server.stderr is not None
        listening = next(found for line in server.stderr if (found := re.search(r"listening on http://(\S+?);", line)))
        environment["PORT"] = port

        def run(command: str) -> bytes:
            here = command.replace("localhost:8000", listening[1]).replace("127.0.0.1:8080", f"127.0.0.1:{port}")
            here = re.sub(r"^curl ", "curl --fail --no-progress-meter ", here)
            if (exported := re.fullmatch(r"export (\w+)=\$\((.*)\)", here)) is not None:
                environment[exported[1]] = run(exported[2]).decode().strip()
                return b"exported"
            if here.startswith(".venv/bin/convertd ") and not re.search("[$|<>`*]", here):  # the others start it
                called = invoke(folder, *shlex.split(here)[1:], **environment)
                assert called.exit_code == 0, called.stderr
                return called.stdout_bytes
            done = subprocess.run(here, shell=True, check=True, cwd=folder, env=environment, capture_output=True)
            return done.stdout

        try:
            for command in _SAMPLES:
                run(command)
            yield cache(run)  # a command that two tests run has one result
        finally:
            server.terminate()
            server.stderr.read()
        assert server.wait(timeout=30) == 0


def test_the_commands_work(folder: Path, shell: Callable[[str], bytes]) -> None:
    registry = load_registry()
    for command in _COMMANDS:
        printed = shell(command)
        if (saved := re.search(r" -o (\S+)$", command)) is not None:
            assert registry.identify(folder / saved[1]) == registry.format(saved[1].rpartition(".")[2])
        elif command.startswith("curl"):
            assert "data" in json.loads(printed)


def test_the_ends_of_jobs_arrive_at_a_webhook(folder: Path, shell: Callable[[str], bytes]) -> None:
    first, *others = _JOBS
    shell("export CONVERTD_API_KEY=$(.venv/bin/convertd account create --email hooks@example.com --name Hooks)")
    shell(first)
    variables = dict(line.split("=", 1) for line in shell("env -0").decode().split("\0") if line)
    with (
        (folder / "received.txt").open("w") as received,
        subprocess.Popen(
            [sys.executable, "-c", WEBHOOK_SAMPLES["Python"]], env=variables, stdout=received, stderr=subprocess.DEVNULL
        ) as running,
    ):
        for command in others:
            shell(command)
        jobs = (folder / "jobs.txt").read_text().split()
        ended = {f"job.completed {{'job_id': '{job}'" for job in jobs}
        try:
            assert len(jobs) == 2
            assert eventually(lambda: all(text in (folder / "received.txt").read_text() for text in ended), 30)
        finally:
            running.kill()
    with ZipFile(folder / "photos.zip") as archive:
        assert sorted(archive.namelist()) == ["mark.webp", "photo.webp"]


def test_the_client_example_works(shell: Callable[[str], bytes]) -> None:
    (client,) = _USAGE.blocks("python")
    key = "$(.venv/bin/convertd account create --email python@example.com --name Python)"

    described, *rest = shell(f"CONVERTD_API_KEY={key} {sys.executable} -c {shlex.quote(client)}").decode().splitlines()

    assert described.endswith(" () 49")
    assert rest[:2] == ["photo.png None", "page.png None"]
    assert rest[2].startswith("invalid_parameter ")


def test_the_benchmark_commands_are_valid() -> None:
    group = typer.main.get_command(benchmarks_cli)
    assert isinstance(group, TyperGroup)
    modes = set()
    for program, *arguments in map(shlex.split, _BENCHMARKS.commands()):
        assert (program, *arguments[:2]) == (".venv/bin/python", "-m", "benchmarks")
        mode, *options = arguments[2:]
        group.commands[mode].make_context(mode, options)  # raises for an unknown option
        modes.add(mode)

    assert modes == {row[0] for row in _BENCHMARKS.table("mode")} == set(group.commands)
    listed = re.search(r"python -m benchmarks ([\w| ]+)", _README.text)
    assert listed is not None
    assert set(listed[1].split(" | ")) == modes


def test_the_commands_of_contributors_are_valid(pytestconfig: pytest.Config) -> None:
    for command in (*_CONTRIBUTING.commands(), *_TESTS.commands()):
        program, *arguments = shlex.split(command, comments=True)
        if program != ".venv/bin/pytest":
            assert (program, (ROOT / arguments[0]).is_file()) in (("sh", True), (".venv/bin/python", True)), command
            continue
        for argument in arguments:
            if argument.startswith("--"):
                pytestconfig.getoption(argument.partition("=")[0])  # raises for an unknown option
            else:
                assert (ROOT / argument).exists(), command


def test_the_changelog_dates_and_tags_all_versions_and_the_newest_is_the_current_one() -> None:
    text = read("CHANGELOG.md").text
    versions = re.findall(r"^## (\S+)$", text, re.MULTILINE)
    released = re.findall(r"^## \S+\n\n(\d{4}-\d\d-\d\d), tag `v(\S+)`\.", text, re.MULTILINE)

    assert [number for _, number in released] == versions
    assert released == sorted(released, reverse=True)
    assert versions[0] == _version()


def test_the_test_options_are_those_of_the_tests() -> None:
    declared = re.findall(r"addoption\(\s*\"(--[\w-]+)\"", (ROOT / "tests" / "conftest.py").read_text())

    assert {row[0] for row in _TESTS.table("option")} == set(declared)


def test_the_formats_are_those_of_the_registry() -> None:
    plans = load_registry().catalogue()
    sources, targets = ({str(getattr(plan, side)) for plan in plans} for side in ("source", "target"))
    rows = [[set(re.findall(r"\w+", cell)) for cell in row[1:]] for row in _README.table("kind")]
    remarks = re.findall(r'<tr><th scope="row">(.*?)</th>', (ROOT / "web/pages/docs/formats.html").read_text())

    assert set().union(*(both | only for both, only in rows)) == sources
    assert set().union(*(both for both, _ in rows)) == targets
    assert {name for names in remarks for name in names.split(", ")} <= sources


def test_the_settings_are_those_of_the_program() -> None:
    documented = {row[0]: row[1] for row in _OPERATION.table("setting")}

    assert set(documented) == {variable(name) for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        if isinstance(field.default, int | str | Path) and field.default is not None:
            assert documented[variable(name)] == str(field.default).replace("True", "true").replace("False", "false")


def test_the_settings_that_are_named_exist() -> None:
    known = {variable(name) for name in Settings.model_fields}
    known |= {"CONVERTD_CONFIG", "CONVERTD_API_KEY", "CONVERTD_URL", "CONVERTD_TEST_CORPUS"}
    for document in documents():
        for name in re.findall(r"\bCONVERTD_[A-Z_]+[A-Z]\b", document.text):
            assert name in known, (document.path, name)


def test_the_catalogue_has_all_warnings() -> None:
    issued: set[str] = set()
    for path in [*(ROOT / "engine").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]:
        source = path.read_text()
        for node in ast.walk(ast.parse(source)) if "FidelityWarning" in source else ():
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("FidelityWarning", "FidelityWarning.issue"):
                code = node.args[0]
                issued |= {str(code.value)} if isinstance(code, ast.Constant) else {"frames_dropped", "pages_dropped"}

    assert {*WARNING_CATALOGUE} == {*issued, TEST_MODE.code}  # the docs page lists them


def test_every_alert_has_a_runbook() -> None:
    rules = (ROOT / "config" / "alerts.yml").read_text()
    runbooks = re.findall(r"runbook_url: https://[\w.]+/convertd/(\S+)", rules)
    sections = re.findall(r"^### (\w+)$", _OPERATION.section("When an alert fires").text, re.MULTILINE)

    assert sections == re.findall(r"- alert: (\w+)", rules)
    assert runbooks == [f"config/README.md#{name.lower()}" for name in sections]
    assert {broken for link in runbooks if (broken := _broken(link, _README.path))} == set()


@pytest.mark.parametrize("document", documents(), ids=lambda document: str(document.path.relative_to(ROOT)))
def test_the_files_and_links_exist(document: Document) -> None:
    named = set(re.findall(r"\b(?:config|engine|plugins|storage|web|tests|benchmarks)/[\w./-]*\w", document.text))

    assert {name for name in named if not (ROOT / name).exists()} == set()
    assert {broken for link in document.links() if (broken := _broken(link, document.path))} == set()


def test_every_configuration_file_is_documented() -> None:
    named = {ROOT / name for name in re.findall(r"\bconfig/[\w./-]*\w", _OPERATION.text)}
    files = {path for path in (ROOT / "config").rglob("*") if path.is_file() and "__pycache__" not in path.parts}

    assert {path for path in files if path.suffix not in {".py", ".md"}} <= named


def _broken(link: str, source: Path) -> str | None:
    """The link, if its target does not exist."""
    name, _, anchor = link.partition("#")
    target = (source.parent / name).resolve() if name else source
    if not target.exists():
        return link
    return link if anchor and anchor not in read(str(target.relative_to(ROOT))).anchors() else None


def test_the_hooks_are_documented() -> None:
    hooks = {name for name, value in vars(hookspecs).items() if hasattr(value, "convertd_spec")}

    assert {row[0] for row in _PLUGINS.table("hook")} == hooks


def test_the_readme_plugin_is_the_tested_one() -> None:
    (plugin,) = _PLUGINS.blocks("python")
    (packaging,) = _PLUGINS.blocks("toml")
    folder = ROOT / "tests" / "support" / "foreign_plugin"

    assert plugin == (folder / "convertd_ff.py").read_text()
    assert packaging in (folder / "pyproject.toml").read_text()


def test_the_keywords_of_conversions_are_as_documented() -> None:
    defaults = {"none": (), "None": None, "Loss.NOTHING": Loss.NOTHING, "False": False, "1.0": 1.0, "8.0": 8.0}
    parameters = signature(conversion).parameters

    documented = {row[0]: defaults[row[1]] for row in _PLUGINS.without(_TOOL).table("keyword")}

    assert documented == {name: parameters[name].default for name in documented}


def test_the_fields_of_file_formats_are_documented() -> None:
    keywords = [name for name, one in signature(FileFormat).parameters.items() if one.kind is Parameter.KEYWORD_ONLY]

    assert [row[0] for row in _PLUGINS.table("field")] == keywords


def test_the_layers_and_checks_are_those_of_the_sandbox(shell: Callable[[str], bytes]) -> None:
    found = json.loads(shell(".venv/bin/convertd doctor --json"))["sandbox"]

    assert {row[0] for row in _SANDBOX.table("layer")} == set(found["layers"])
    assert {row[0] for row in _SANDBOX.table("check")} == set(found["proofs"])


def test_the_supported_version_is_the_current_one() -> None:
    assert [row[0] for row in _SECURITY.table("version") if row[1] == "yes"] == [_version().rpartition(".")[0]]


def _version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def test_the_listing_names_every_folder() -> None:
    listed = set(re.findall(r"^(\w+)/", _README.section("Folders").text, re.MULTILINE))

    assert listed == {path.name for path in ROOT.iterdir() if path.is_dir() and path.name.isidentifier()} - {
        "data",
        "build",
    }
