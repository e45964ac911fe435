"""The wheel, with freshly resolved packages, on each Python that is installed: the service of this environment."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.samples.corpus import CORPUS
from tests.support.samples.pdf_documents import document

_ROOT = Path(__file__).parents[2]
_BIN = Path(sys.executable).parent
_FOUND = [python for minor in (11, 12, 13, 14) if (python := shutil.which(f"python3.{minor}"))]
_PYTHONS = [one for one in _FOUND if subprocess.run([one, "-c", ""], capture_output=True, check=False).returncode == 0]
_FAMILIES = ("avif", "bmp", "eps", "gif", "heic", "jpeg", "pdf", "png", "psd", "svg", "tiff", "webp")
_TARGETS = ("webp", "jpeg", "png", "heic", "jxl", "tiff", "gif", "bmp", "qoi", "pdf")
_NEIGHBOUR = "raise ImportError('a module of another project')\n"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(_ROOT / name, folder)
    for package in ("config", "engine", "plugins", "storage", "web"):
        shutil.copytree(_ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__", "build"))
    pip = (sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--no-build-isolation")
    subprocess.run([*pip, ".", "./web/client"], cwd=folder, check=True)
    return [*folder.glob("*.whl")]


@pytest.fixture(params=_PYTHONS, ids=[Path(python).name for python in _PYTHONS])
def installed(request: pytest.FixtureRequest, tmp_path: Path, wheels: list[Path]) -> Iterator[Path]:
    """The command of an installation of the wheels."""
    subprocess.run([_BIN / "uv", "venv", "--quiet", "--python", request.param, tmp_path / "venv"], check=True)
    install = (_BIN / "uv", "pip", "install", "--quiet", "--compile-bytecode", "--python", tmp_path / "venv")
    subprocess.run([*install, *wheels], check=True)
    yield tmp_path / "venv" / "bin" / "convertd"
    shutil.rmtree(tmp_path / "venv")


def _convert(command: Path, folder: Path, project: Path) -> dict[tuple[str, str], Any]:
    """Converts samples in the folder of another project. Returns each result by its input and format."""
    sources = [path for family in _FAMILIES for path in sorted((CORPUS / family).iterdir(), key=_size)[1:3]]
    (project / "document.pdf").write_bytes(document("pages", 2))
    targets = [word for target in _TARGETS for word in ("--to", target)]
    words = ["--width", "150", "-y", "--json", "-o", f"{folder}/"]
    done = subprocess.run(
        [command, *sources, "document.pdf", *targets, *words],
        cwd=project,
        stdout=subprocess.PIPE,
        env={**os.environ, "CONVERTD_SANDBOX": "off"},
        check=False,
    )
    files = json.loads(done.stdout)["files"]
    return {
        (one["input"], Path(one["outputs"][0]).suffix if "outputs" in one else one["error"]["code"]): one
        for one in files
    }


def _size(path: Path) -> tuple[int, str]:
    return path.stat().st_size, path.name


def _facts(result: dict[str, Any]) -> dict[str, Any]:
    names = ("status", "output_format", "width", "height", "pages", "file_count", "warnings")
    return {name: result.get(name) for name in names}


def _difference(first: str, second: str) -> float:
    """The mean difference of samples of two images from 0 to 255."""
    with Image.open(first) as image, Image.open(second) as other_image:
        one, other = (np.asarray(each.convert("RGBA"), np.int16) for each in (image, other_image))
    return float(np.abs(one - other).mean())


def test_an_installation_converts_as_this_one_beside_packages_of_the_same_names(
    installed: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for name in ("config.py", "web/__init__.py", "engine/__init__.py"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(_NEIGHBOUR)

    expected = _convert(_BIN / "convertd", tmp_path / "expected", project)
    found = _convert(installed, tmp_path / "found", project)

    assert len(expected) >= 24 * len(_TARGETS)
    assert {key: _facts(one) for key, one in found.items()} == {key: _facts(one) for key, one in expected.items()}
    for key, one in found.items():
        if key[1] in (".webp", ".jpg", ".png", ".tif", ".tiff", ".gif", ".bmp"):
            assert _difference(one["outputs"][0], expected[key]["outputs"][0]) < 1, key
    shutil.rmtree(project / "web")
    hidden = subprocess.run(
        [installed, "--version"],
        cwd=project,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": "."},
        check=False,
    )
    assert "config.py is imported in place of" in hidden.stderr
