"""Preloading in a fork server."""

import json
import subprocess
import sys
from types import ModuleType

import pytest

from engine.executor import preload
from engine.media import RASTER
from engine.registry import load_registry
from plugins import _programs

_PROGRAM = """
import gc
import json
import os
from engine.executor import preload
from engine.registry import load_registry

warmed_up = {}
threads = []
original = preload.warm_up_codec

def watched(registry, write, fmt):
    threads.append(len(os.listdir("/proc/self/task")))
    try:
        original(registry, write, fmt)
        warmed_up[fmt.name] = None
    except Exception as error:
        warmed_up[fmt.name] = repr(error)
        raise

preload.warm_up_codec = watched
before = gc.get_stats()
preload.preload()
visits = [now["collections"] - then["collections"] for now, then in zip(gc.get_stats(), before)]
collects = gc.isenabled()
for name in load_registry().templates:
    preload.preload_template(name)
threads.append(len(os.listdir("/proc/self/task")))
print(json.dumps([warmed_up, threads, visits, collects]))
"""


def test_every_codec_is_warmed_up_without_threads_and_without_garbage_collections() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    warmed_up, threads, visits, collects = json.loads(done.stdout)
    registry = load_registry()
    paths = {fmt.name: registry.path(RASTER, fmt) for fmt in registry.formats.values()}
    encoded = {name for name, path in paths.items() if len(path) == 1 and not path[0].programs}
    assert encoded >= {"avif", "bmp", "eps", "gif", "heic", "jpeg", "pdf", "png", "psd", "tiff", "webp"}
    assert warmed_up == dict.fromkeys(encoded)
    assert len({*threads}) == 1  # threads would not survive the fork
    assert visits == [0, 0, 1]  # by generation
    assert collects


def test_templates_prepare_modules_that_have_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    module = ModuleType("library")
    monkeypatch.setattr(module, "warm_up", lambda: prepared.append("library"), raising=False)
    monkeypatch.setitem(sys.modules, "library", module)

    preload.warm_up_modules(["json", "library"])

    assert prepared == ["library"]
    assert "engine.mupdf" in load_registry().templates["documents"]


def test_mupdf_prepares_the_conversion_of_colors_once() -> None:
    program = """
from time import process_time
from engine import mupdf

started = process_time()
mupdf.warm_up()
prepared = process_time()
page = mupdf.pymupdf.open().new_page()
for count in (1, 3, 4):
    page.draw_rect(page.rect, fill=[0.5] * count)
page.get_pixmap(dpi=18)
print((process_time() - prepared) / (prepared - started))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 0.25


def test_plugins_load_no_library_of_few_formats() -> None:
    program = """
from pathlib import Path
from engine.registry import load_registry
from plugins import _programs
load_registry()
print(Path("/proc/self/maps").read_text())
"""
    maps = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "libjpeg" in maps
    assert "libcairo" not in maps
    assert "libpango" not in maps
    assert "lxml" not in maps


def test_libraries_of_the_system_are_found_by_name() -> None:
    assert _programs.has_library("libc.so.6")
    assert not _programs.has_library("libmissing.so.1")
