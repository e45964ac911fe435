"""The paths that every job may read or run: libraries, fonts, Python and programs of steps. None holds user data."""

import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from engine.sandbox import landlock
from engine.sandbox.landlock import READ_ONLY, Access

_SYSTEM = (
    *("/usr", "/lib", "/lib64"),
    *("/etc/fonts", "/etc/ghostscript", "/etc/ld.so.cache", "/etc/localtime"),
    *("/var/cache/fontconfig", "/var/lib/ghostscript"),
    *("/dev/urandom", "/dev/random", "/dev/zero"),
    *("/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # the kernel starts programs through these


def allowed_path_rules(programs: Iterable[str]) -> landlock.Rules:
    """Returns the rules of every job: read access to libraries, and permission to run `programs`."""
    return landlock.rules(
        {
            **dict.fromkeys((*map(Path, _SYSTEM), *_python_folders()), READ_ONLY),
            Path("/dev/null"): Access.READ | Access.WRITE,
            **dict.fromkeys(map(Path, (*programs, *_LOADERS)), READ_ONLY | Access.EXECUTE),
        }
    )


def _python_folders() -> set[Path]:
    """The standard library, installed packages and the folders of imported packages, but not their siblings."""
    installed = {Path(entry) for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")}
    standard = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    packages = [getattr(module, "__path__", ()) for name, module in [*sys.modules.items()] if "." not in name]
    folders = installed | standard | {Path(path) for paths in packages for path in paths}
    return {folder for folder in folders if folders.isdisjoint(folder.parents)}
