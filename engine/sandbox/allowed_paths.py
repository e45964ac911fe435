"""The files that libraries and programs need, which are of nobody's interest."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from engine.sandbox import landlock
from engine.sandbox.landlock import LOOK, Access

_SYSTEM = (
    *("/usr", "/lib", "/lib64"),
    *("/etc/fonts", "/etc/ghostscript", "/etc/ld.so.cache", "/etc/localtime"),
    *("/var/cache/fontconfig", "/var/lib/ghostscript"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # the kernel starts programs through these


def known_places(programs: Iterable[str]) -> landlock.Rules:
    """What every job may do: look at the system's libraries and Python's, and run those programs."""
    return landlock.rules(
        {
            **dict.fromkeys((*map(Path, _SYSTEM), *_python()), LOOK),
            Path("/dev/null"): Access.READ | Access.WRITE,
            **dict.fromkeys(map(Path, (*programs, *_LOADERS)), LOOK | Access.EXECUTE),
        }
    )


def _python() -> set[Path]:
    """The standard library, installed packages, and the folders of imported ones: not what lies beside them."""
    installed = {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    standard = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = [_attributes(module).get("__path__", ()) for name, module in [*sys.modules.items()] if "." not in name]
    places = installed | standard | {Path(path) for paths in packages for path in paths}
    return {place for place in places if places.isdisjoint(place.parents)}


def _attributes(module: ModuleType) -> dict[str, Any]:
    """As `vars`, which would load a module that has been put off."""
    found: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return found
