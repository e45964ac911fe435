"""What runs in a fork server: a child for every request, and word of its end."""

from __future__ import annotations

import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import NoReturn

from engine import sandbox
from engine.executor import preload, worker
from engine.lazy_import import seal
from engine.registry import load_registry

FULL, LIGHT = "full", "light"
"""Whether a fork server has loaded what has been put off."""
PID = struct.Struct("=i")
"""A process id, which its folder follows, or an exit code, as it is told to who asked for the process."""


def main() -> None:
    """Serves the socket that the first argument numbers. Ends when it closes.

    The second is the folder that those of the jobs are made in, the third tells what is loaded for them, the others
    are the sandbox's layers. What takes a second is done once: should the process that serves be killed, another is
    forked at once.
    """
    for number in (signal.SIGINT, signal.SIGTERM):  # these are for the server, which hangs up when it ends
        signal.signal(number, signal.SIG_IGN)
    home, loaded, *layers = sys.argv[2:]
    shared = sandbox.enter_network_namespace(layers)
    preload.preload(full=loaded == FULL)
    places = sandbox.known_places(load_registry().programs)
    missing = seal() if loaded == LIGHT else ()
    control = socket.socket(fileno=int(sys.argv[1]))
    while (serving := os.fork()) and os.WIFSIGNALED(os.waitpid(serving, 0)[1]):
        clear(home)
    if not serving:
        enter = partial(sandbox.apply_layers, layers, os.getpid(), places)
        _ChildTable(control, home, lambda folder: shared | enter(folder), missing).run()
    remove(home)


def remove(home: str) -> None:
    """Removes the folder with those of jobs that nobody is there to bury. Blocks."""
    clear(home)
    with suppress(OSError):
        Path(home).rmdir()


def clear(home: str) -> None:
    """Removes what is in the folder. Blocks."""
    with suppress(OSError):
        left = list(Path(home).iterdir())
        if left:
            subprocess.run(["rm", "-rf", "--", *left], check=False)


class _ChildTable:
    """The children: of each, the line on which its end is to be told, and the folder that goes with it."""

    def __init__(
        self, control: socket.socket, home: str, enter: Callable[[str], Mapping[str, bool]], missing: Sequence[str]
    ) -> None:
        self._control = control
        self._home = home
        self._enter = enter
        self._missing = missing
        self._addresses = sandbox.addresses()  # children begin with the same
        self._children: dict[int, tuple[int, str]] = {}
        self._numbers = count(1)  # of folders

    def run(self) -> None:
        """Forks and buries until the control line closes; then none is left."""
        ended, wakeup = socket.socketpair()
        wakeup.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakeup.fileno(), warn_on_full_buffer=False)
        open_ = True
        while open_:
            ready, _, _ = select.select([self._control, ended], [], [])
            if ended in ready:
                ended.recv(4096)
                self._bury()
            if self._control in ready:
                open_ = self._fork()
        for child in list(self._children):
            _kill_group(child)
            os.waitpid(child, 0)
            self._forget(child, -signal.SIGKILL)

    def _fork(self) -> bool:
        request, descriptors, _, _ = socket.recv_fds(self._control, 64, 2)
        if not request:
            return False
        line, status = descriptors
        with suppress(OSError):  # no process or no disk: the line closes without a word
            folder = f"{self._home}/{next(self._numbers)}"
            os.mkdir(folder, 0o700)  # noqa: PTH102  # a Path would touch, and so have copied, three times as much
            child = os.fork()
            if child == 0:
                self._become_job(line, folder)
            self._children[child] = (os.dup(status), folder)
            os.write(status, PID.pack(child) + os.fsencode(folder))
        os.close(line)
        os.close(status)
        return True

    def _become_job(self, line: int, folder: str) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.chdir(folder)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            layers = self._enter(folder)
            _detach_stdio(line)
            worker.serve(socket.socket(fileno=line), layers, self._addresses, self._missing)
        except Exception:
            traceback.print_exc()  # of our own code: a job's exceptions are its answer
        finally:
            # The interpreter would spend milliseconds on tidying up what ends with the process anyway.
            os._exit(0)

    def _bury(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                if child in self._children:
                    _kill_group(child)
                    self._forget(child, os.waitstatus_to_exitcode(status))

    def _forget(self, child: int, exitcode: int) -> None:
        status, folder = self._children.pop(child)
        try:
            os.rmdir(folder)  # noqa: PTH106  # as above
        except OSError:  # not empty; a hostile job may have left more than is cleared in a moment
            os.posix_spawnp("rm", ["rm", "-rf", "--", folder], os.environ)
        with suppress(BrokenPipeError):
            os.write(status, PID.pack(exitcode))
        os.close(status)


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _detach_stdio(line: int) -> None:
    """Closes all descriptors but one. Libraries print what hostile files make them say: that goes nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.closerange(3, line)
    os.closerange(line + 1, os.sysconf("SC_OPEN_MAX"))
