"""Landlock: restricts this process to named paths. Denies TCP, and signals and abstract sockets outside the sandbox."""

import os
import stat
import struct
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from engine.sandbox import libc

# Numbers of system calls, the same on all architectures.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
_GET_VERSION = 1
_PATH_BENEATH = 1
_TCP_SINCE = 4  # ABI version
_SCOPES_SINCE = 6  # ABI version
_BIND_TCP = 1
_CONNECT_TCP = 2
_SCOPE_ABSTRACT_SOCKETS = 1
_SCOPE_SIGNALS = 2
_RULE = struct.Struct("=Qi")  # allowed access, descriptor of the path


class Access(IntFlag):
    """Access rights to a file or to everything below a folder, with the bits of the kernel."""

    EXECUTE = 1 << 0
    WRITE = 1 << 1
    READ = 1 << 2
    LIST = 1 << 3
    REMOVE_FOLDER = 1 << 4
    REMOVE_FILE = 1 << 5
    MAKE_CHARACTER_DEVICE = 1 << 6
    MAKE_FOLDER = 1 << 7
    MAKE_FILE = 1 << 8
    MAKE_SOCKET = 1 << 9
    MAKE_FIFO = 1 << 10
    MAKE_BLOCK_DEVICE = 1 << 11
    MAKE_LINK = 1 << 12
    REFER = 1 << 13  # move or link between folders
    TRUNCATE = 1 << 14
    CONTROL_DEVICE = 1 << 15


READ_ONLY = Access.READ | Access.LIST
READ_WRITE = (
    READ_ONLY
    | Access.WRITE
    | Access.TRUNCATE
    | Access.REFER
    | Access.MAKE_FILE
    | Access.MAKE_FOLDER
    | Access.REMOVE_FILE
    | Access.REMOVE_FOLDER
)
_FOR_FILES = Access.EXECUTE | Access.READ | Access.WRITE | Access.TRUNCATE | Access.CONTROL_DEVICE
_SINCE = {Access.REFER: 2, Access.TRUNCATE: 3, Access.CONTROL_DEVICE: 5}  # ABI versions; the others have 1

# What every task may read: libraries, fonts, data of programs, and devices without state. None of it holds user data.
_SHARED = (
    "X11/fonts",
    "color",
    "djvu",
    "fontconfig",
    "fonts",
    "ghostscript",
    "hunspell",
    "hyphen",
    "libexttextcat",
    "liblangtag",
    "libnumbertext",
    "libreoffice",
    "mythes",
    "pandoc",
    "poppler",
    "tesseract-ocr",
    "tessdata",
    "zoneinfo",
)
_SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/share/fonts",
    "/lib",
    "/lib64",
    *(f"/usr/share/{name}" for name in _SHARED),
    "/etc/fonts",
    "/etc/ghostscript",
    "/etc/libreoffice",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/var/cache/fontconfig",
    "/var/lib/ghostscript",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/sys/devices/system/cpu",
)
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # the kernel starts programs through these


@dataclass(frozen=True)
class Rules:
    """Rules in the form of the running kernel, prepared once before processes are forked.

    `folders` refers to open descriptors, which forked processes inherit and have to close. `files` are opened by each
    process, because package updates replace them. `own` is the access to the process's own folder.
    """

    ruleset: bytes
    folders: tuple[bytes, ...]
    files: tuple[tuple[str, int], ...]
    own: int


def allowed_path_rules(programs: Iterable[str]) -> Rules:
    """Returns the rules of every task: read access to libraries, and permission to run `programs`."""
    return rules(
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


def rules(paths: Mapping[Path, Access]) -> Rules:
    """Returns rules that allow access to `paths`, ignoring those that do not exist, and to a folder per process.

    Older kernels restrict fewer kinds of access.
    """
    version = abi_version()
    known = sum(access for access in Access if version >= _SINCE.get(access, 1))
    tcp = _BIND_TCP | _CONNECT_TCP if version >= _TCP_SINCE else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    folders = []
    files = []
    for path, access in paths.items():
        descriptor = _open(str(path))
        if descriptor is None:
            continue
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            folders.append(_RULE.pack(access & known, descriptor))
        else:
            os.close(descriptor)
            files.append((str(path), int(access & _FOR_FILES & known)))
    # Kernels accept a longer struct than their own if the rest is zero.
    return Rules(struct.pack("=QQQ", known, tcp, scopes), tuple(folders), tuple(files), int(READ_WRITE & known))


def restrict(rules: Rules, folder: str) -> None:
    """Restricts this thread to the rules and to its own `folder`, for good.

    Needs no-new-privileges. Raises OSError if the kernel has no Landlock.
    """
    ruleset = libc.syscall(_CREATE_RULESET, rules.ruleset, len(rules.ruleset))
    try:
        for rule in rules.folders:
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule)
        for path, access in (*rules.files, (folder, rules.own)):
            _allow(ruleset, path, access)
        libc.syscall(_RESTRICT_SELF, ruleset)
    finally:
        os.close(ruleset)


def abi_version() -> int:
    """The version of Landlock in the running kernel; 0 if it has none."""
    try:
        return libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)
    except OSError:
        return 0


def _allow(ruleset: int, path: str, access: int) -> None:
    descriptor = _open(path)
    if descriptor is None:
        return
    try:
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, _RULE.pack(access, descriptor))
    finally:
        os.close(descriptor)


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
