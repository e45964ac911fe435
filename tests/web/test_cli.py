"""The command, as a person or a script runs it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from config.settings import Settings
from engine import Options
from engine.executor import local
from engine.executor.forkserver import ForkServer, JobProcess
from engine.executor.forkserver_main import FULL, LIGHT
from engine.registry import load_registry
from tests.support.command_line import invoke, run_command, write_samples
from tests.support.samples import sample
from web import cli_convert


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_samples(tmp_path)
    return tmp_path


def test_one_file(folder: Path) -> None:
    done = run_command(folder, "convert", "photo.heic", "photo.jpg")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Image.open(folder / "photo.jpg") as image:
        assert image.format == "JPEG"


@pytest.mark.parametrize(("target", "kind"), [("webp", LIGHT), ("pdf", FULL)])
async def test_only_those_processes_start_that_are_needed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, kind: str
) -> None:
    kinds = list[str]()

    class Watched(ForkServer):
        def fork(self) -> JobProcess:
            kinds.append(self._loaded)
            return super().fork()

    # Not ForkServer.fork: servers of other tests look in the background whether they can fork.
    monkeypatch.setattr(local, "ForkServer", Watched)
    registry = load_registry()
    wanted = cli_convert.make_tasks(registry, [folder / "photo.png", folder / f"result.{target}"], None)

    outcomes = [outcome async for outcome in cli_convert.convert_locally(registry, wanted, Options(), Settings())]

    assert [outcome.error for outcome in outcomes] == [None]
    assert {*kinds} == {kind}


def test_explain_and_warnings(folder: Path) -> None:
    done = invoke(folder, "convert", "--explain", "--quality", "50", "photo.heic", "photo.tif")

    assert done.exit_code == 0
    assert "heic -> raster -> tiff" in done.stderr
    assert "quality_ignored" in done.stderr


def test_many_files_into_a_folder(folder: Path) -> None:
    done = invoke(folder, "convert", "photo.heic", "bad.png", "photo.png", "out", "--to", "webp")

    assert done.exit_code == 2  # photo.heic and photo.png would become the same file
    assert not list((folder / "out").iterdir())
    (folder / "other.png").write_bytes(sample("png"))

    done = invoke(folder, "convert", "photo.heic", "bad.png", "other.png", "out", "--to", "webp")

    assert done.exit_code == 1
    assert "bad.png: " in done.stderr
    assert "corrupt_input" in done.stderr
    assert {path.name for path in (folder / "out").iterdir()} == {"photo.webp", "other.webp"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("photo.heic",),
        ("photo.heic", "photo.xyz"),
        ("photo.heic", "photo"),
        ("missing.heic", "photo.jpg"),
        ("photo.heic", "photo.png", "third.jpg"),
        ("photo.heic", "nowhere/photo.jpg"),
        ("photo.png", "--to", "png"),
        ("photo.png", "--to", "xyz"),
        ("photo.heic", "photo.jpg", "--quality", "0"),
        ("photo.heic", "photo.jpg", "--quality", "many"),
        (),
    ],
)
def test_wrong_usage(folder: Path, arguments: tuple[str, ...]) -> None:
    before = {path.name for path in folder.rglob("*")}

    done = invoke(folder, "convert", *arguments)

    assert done.exit_code == 2
    assert done.stderr
    assert isinstance(done.exception, SystemExit)
    assert {path.name for path in folder.rglob("*")} == before


def test_a_failed_conversion_leaves_nothing(folder: Path) -> None:
    done = invoke(folder, "convert", "bad.png", "bad.jpg")

    assert done.exit_code == 1
    assert not (folder / "bad.jpg").exists()


def test_formats_and_doctor_for_people(folder: Path) -> None:
    assert "heic" in invoke(folder, "formats").stdout
    assert "rlimits" in invoke(folder, "doctor").stdout


def test_formats_as_json(folder: Path) -> None:
    catalogue = json.loads(invoke(folder, "formats", "--json").stdout)

    assert catalogue["total"] == len(catalogue["conversions"]) > 150


def test_what_is_missing_is_told_and_not_offered(folder: Path) -> None:
    """Without Ghostscript on the path, EPS is written but not read."""
    found = json.loads(run_command(folder, "doctor", "--json", PATH="/nowhere").stdout)
    offered = json.loads(run_command(folder, "formats", "--json", PATH="/nowhere").stdout)["by_input_format"]

    (need,) = found["missing"]
    assert (need["name"], need["install"]) == ("Ghostscript", "apt-get install ghostscript")
    assert "eps" not in offered
    assert "eps" in offered["jpeg"]


def test_wrong_settings_are_told_together(folder: Path) -> None:
    done = invoke(folder, "serve", CONVERTD_WORKERS="many", CONVERTD_RATE_LIMIT_FREE="-1")

    assert done.exit_code == 2
    assert "CONVERTD_WORKERS" in done.stderr
    assert "CONVERTD_RATE_LIMIT_FREE" in done.stderr


def test_a_port_in_use_is_told(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_command(folder, "serve", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 1
    assert "cannot serve" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("module", "others"),
    [
        ("commands.account", {"engine", "httpx", "redis", "stripe", "tornado"}),
        ("cli_convert", {"httpx", "peewee", "redis", "stripe", "tornado"}),
    ],
)
def test_a_command_loads_nothing_that_only_others_need(module: str, others: set[str]) -> None:
    program = f"import sys, web.cli, web.{module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)

    assert others & {*done.stdout.split()} == set()
