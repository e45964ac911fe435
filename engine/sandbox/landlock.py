"""Landlock: a process lets go of all files but those it names, of TCP, and of other processes' signals and sockets."""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path

from engine.sandbox import libc

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_ASK_VERSION = 1
_PATH_BENEATH = 1
_TCP_SINCE, _SCOPES_SINCE = 4, 6  # versions
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2
_RULE = struct.Struct("=Qi")  # what may be done, and the descriptor of where


class Access(IntFlag):
    """What may be done with a file or below a folder, numbered as the kernel does."""

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
    REFER = 1 << 13  # move between folders
    TRUNCATE = 1 << 14
    CONTROL_DEVICE = 1 << 15


LOOK = Access.READ | Access.LIST
OWN = (
    LOOK
    | Access.WRITE
    | Access.TRUNCATE
    | Access.REFER
    | Access.MAKE_FILE
    | Access.MAKE_FOLDER
    | Access.REMOVE_FILE
    | Access.REMOVE_FOLDER
)
_FOR_FILES = Access.EXECUTE | Access.READ | Access.WRITE | Access.TRUNCATE | Access.CONTROL_DEVICE
_SINCE = {Access.REFER: 2, Access.TRUNCATE: 3, Access.CONTROL_DEVICE: 5}  # versions; the others are as old as Landlock


@dataclass(frozen=True)
class Rules:
    """What processes may do with which files, as this kernel takes it: found out once, before they are forked.

    The folders are open: processes close what they inherit of them. Files are opened by each: packages replace them.
    """

    handled: bytes
    folders: tuple[bytes, ...]
    files: tuple[tuple[str, int], ...]
    own: int


def rules(places: Mapping[Path, Access]) -> Rules:
    """For processes with those places, of which those that are not there are passed over, and a folder of their own.

    Older kernels restrict less.
    """
    version = _version()
    known = sum(access for access in Access if version >= _SINCE.get(access, 1))
    tcp = _BIND_TCP | _CONNECT_TCP if version >= _TCP_SINCE else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    folders, files = [], []
    for path, access in places.items():
        place = _opened(str(path))
        if place is None:
            continue
        if stat.S_ISDIR(os.fstat(place).st_mode):
            folders.append(_RULE.pack(access & known, place))
        else:
            os.close(place)
            files.append((str(path), int(access & _FOR_FILES & known)))
    # Kernels take a longer struct than their own as long as the rest is zero.
    return Rules(struct.pack("=QQQ", known, tcp, scopes), tuple(folders), tuple(files), int(OWN & known))


def restrict(rules: Rules, own: str) -> None:
    """Leaves this thread only what the rules name and the folder `own`, for good.

    Raises OSError where there is no Landlock. Needs no-new-privileges.
    """
    ruleset = libc.syscall(_CREATE_RULESET, rules.handled, len(rules.handled))
    try:
        for rule in rules.folders:
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule)
        for path, access in (*rules.files, (own, rules.own)):
            _allow(ruleset, path, access)
        libc.syscall(_RESTRICT_SELF, ruleset)
    finally:
        os.close(ruleset)


def _version() -> int:
    try:
        return libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    except OSError:
        return 0


def _allow(ruleset: int, path: str, access: int) -> None:
    place = _opened(path)
    if place is None:
        return
    try:
        libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, _RULE.pack(access, place))
    finally:
        os.close(place)


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return None
