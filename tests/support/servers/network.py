"""A network of this process and those that it starts, in which the packets of single ports can be dropped."""

import ctypes
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine.sandbox import libc

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_LOCAL_RULE = 100  # the rule for addresses of this machine, which has to come after those that drop packets
_SETNS = ctypes.CDLL(None, use_errno=True).setns


def cut_off(port: int) -> None:
    """Drops all packets that the program at this port sends, so that nothing it receives is ever acknowledged."""
    _ip("rule", "add", "pref", "1", "ipproto", "tcp", "sport", str(port), "blackhole")


def reconnect(port: int) -> None:
    """Ends what `cut_off` has begun."""
    _ip("rule", "del", "pref", "1", "ipproto", "tcp", "sport", str(port))


def add_address(address: str) -> None:
    """Gives this machine an address, which must be in a network of its own."""
    _ip("addr", "add", address, "dev", "lo")


@contextmanager
def own_network() -> Iterator[None]:
    """A network with nothing but this machine, for what the current thread starts in the block. Skips without root."""
    with Path("/proc/thread-self/ns/net").open() as before:
        try:
            libc.unshare(_NEW_NETWORK)
        except PermissionError:
            pytest.skip("networks cannot be created here")
        try:
            _ip("link", "set", "lo", "up")
            _ip("rule", "add", "pref", str(_LOCAL_RULE), "lookup", "local")
            _ip("rule", "del", "pref", "0")
            yield
        finally:
            if _SETNS(before.fileno(), _NEW_NETWORK):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
