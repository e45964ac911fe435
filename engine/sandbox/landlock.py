"""Landlock: a process lets go of all files but those it names, of TCP, and of other processes' signals and sockets."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from enum import IntFlag
from pathlib import Path

from engine.sandbox import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on all processors
_ASK_VERSION = 1
_PATH_BENEATH = 1
_TCP_SINCE, _SCOPES_SINCE = 4, 6  # versions
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_SOCKETS, _SCOPE_SIGNALS = 1, 2


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


def restrict(rules: Mapping[Path, Access]) -> None:
    """Leaves this thread only what the rules name, for good; paths that are not there are passed over.

    Older kernels restrict less. Raises OSError where there is no Landlock. Needs no-new-privileges.
    """
    version = kernel.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)
    known = Access(0)
    for access in Access:
        known |= access if version >= _SINCE.get(access, 1) else Access(0)
    tcp = _BIND_TCP | _CONNECT_TCP if version >= _TCP_SINCE else 0
    scopes = _SCOPE_ABSTRACT_SOCKETS | _SCOPE_SIGNALS if version >= _SCOPES_SINCE else 0
    handled = struct.pack("=QQQ", known, tcp, scopes)
    # Kernels take a longer struct than their own as long as the rest is zero.
    ruleset = kernel.syscall(_CREATE_RULESET, handled, len(handled), 0)
    try:
        for path, access in rules.items():
            _allow(ruleset, path, access & known)
        kernel.syscall(_RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, access: Access) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        allowed = access if path.is_dir() else access & _FOR_FILES
        kernel.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", allowed, place), 0)
    finally:
        os.close(place)
