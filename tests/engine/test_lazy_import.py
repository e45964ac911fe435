"""What only jobs need is loaded where jobs come from, and nowhere else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from engine.lazy_import import lazy_import

_PROGRAM = """
import sys
from engine.executor import preload
from engine.registry import load_registry

registry = load_registry()
assert registry.format("psd") and registry.catalogue()
assert registry.identify_content(b"8BPS\\0\\1").name == "psd"
assert registry.identify_content(b"<svg></svg>").name == "svg"
late = {"cairosvg", "imageio", "pikepdf._core", "psd_tools.composite", "pymupdf", "rawpy._rawpy", "tifffile"}
print(sorted(late & {*sys.modules}))
preload.preload()
print(sorted(late - {*sys.modules}))
"""


def test_the_fork_server_loads_what_others_go_without() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "[]"]


def test_what_is_not_there_is_told_at_once() -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_codec"):
        lazy_import("no_such_codec")
