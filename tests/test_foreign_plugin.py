"""A third-party plugin, installed with pip into a separate environment, is loaded and used."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

_ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a new environment with convertd and the plugin, which uses the installed dependencies."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder / "venv", symlinks=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    sources = [folder / "convertd", folder / "plugin"]
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "data", "tests")
    shutil.copytree(_ROOT, sources[0], ignore=ignored)
    shutil.copytree(Path(__file__).parent / "support" / "foreign_plugin", sources[1], ignore=ignored)
    programs = folder / "venv" / "bin"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", programs / "python", "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--ignore-installed", *sources], check=True)
    return programs


def test_the_plugin_appears_in_the_catalogue(binaries: Path) -> None:
    done = subprocess.run([binaries / "convertd", "formats", "--json"], check=True, capture_output=True)
    targets = json.loads(done.stdout)["by_input_format"]

    assert {"jpeg", "webp", "pdf", "tiff"} < set(targets["ppm"])
    assert "ppm" in targets["heic"]
    assert "ppm" in targets["pdf"]


def test_the_plugin_converts(binaries: Path, tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "orange").save(tmp_path / "in.png")
    for source, target in (("in.png", "middle.ppm"), ("middle.ppm", "out.webp")):
        subprocess.run([binaries / "convertd", "convert", source, target], check=True, cwd=tmp_path)

    with Image.open(tmp_path / "out.webp") as image:
        assert image.size == (30, 20)
        assert image.convert("RGB").getpixel((15, 10)) == pytest.approx((255, 165, 0), abs=6)


_PROGRAM = """
import json, sys
from engine import pipeline
from engine.registry import load_registry

registry = load_registry()
options = registry.validate({"plain": "true"}, from_text=True)
plan = registry.plan([registry.formats["png"]], "ppm", options=options)
result = pipeline.run(plan, [sys.stdin.buffer.read()], options)
print(json.dumps({"start": result.data[:12].decode(), "schema": plan.schema()["properties"]["plain"]}))
"""


def test_the_plugin_has_an_option(binaries: Path) -> None:
    file = BytesIO()
    Image.new("RGB", (3, 2), "orange").save(file, "PNG")
    command: list[str | Path] = [binaries / "python", "-c", _PROGRAM]
    done = subprocess.run(command, check=True, capture_output=True, input=file.getvalue(), cwd=binaries)
    found = json.loads(done.stdout)

    assert found["start"] == "P3 3 2 255\n2"
    assert found["schema"] == {"type": "boolean", "default": False, "description": "Writes the samples as text."}


def test_the_doctor_lists_the_plugin(binaries: Path) -> None:
    done = subprocess.run([binaries / "convertd", "doctor", "--json"], check=True, capture_output=True)
    found = json.loads(done.stdout)

    assert [plugin["error"] for plugin in found["plugins"] if plugin["name"] == "ppm"] == [None]
    assert all(isinstance(present, bool) for present in found["sandbox"]["layers"].values())
    assert found["missing"] == []
