"""The processes of a fork server: a supervisor, the templates that it forks, and the worker processes that those fork.

The supervisor has imported the plugins and what all tasks need. A template is a copy of it which has imported what the
tasks of a family need: the memory of a process is copied, page by page, into each process that is forked from it.
"""

import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from typing import NamedTuple, NoReturn

from engine import sandbox
from engine.executor import preload
from engine.executor.disk_quota import remove_folder
from engine.executor.worker import run_worker
from engine.executor.worker_process import PID, open_files
from engine.registry import load_registry

FORK = b"fork "
"""A request to a template, with the connection and the status socket of the new worker process.

A request to the supervisor, with the control socket of the new template, has the name of the template after it.
"""

_MAX_REQUEST = 256  # bytes


def main() -> None:
    """Runs a supervisor until its control socket closes.

    Arguments: the descriptor of the control socket, the folder for the workers' folders, the modules that all tasks
    import (separated by commas; empty: each template imports its own), and the names of the sandbox layers.
    """
    # The web server handles the first two and closes the control socket. The kernel sends SIGIO on behalf of processes
    # that share a descriptor with this one.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGIO):
        signal.signal(number, signal.SIG_IGN)
    base_folder, names, *layers = sys.argv[2:]
    modules = names.split(",") if names else []
    sandbox.lower_session_priority()
    shared_layers = sandbox.enter_network_namespace(layers)
    preload.preload(modules)
    sandbox.compile_filters(layers)
    control = socket.socket(fileno=int(sys.argv[1]))
    _Supervisor(control, base_folder, layers, shared_layers, import_modules=not modules).run()
    remove_folder(base_folder)


class _Supervisor:
    """Forks a template for each request, which then imports its modules if `import_modules`.

    Templates end when their control sockets close.
    """

    def __init__(
        self,
        control: socket.socket,
        base_folder: str,
        layers: Collection[str],
        shared_layers: Mapping[str, bool],
        *,
        import_modules: bool,
    ) -> None:
        self._control = control
        self._base_folder = base_folder
        self._layers = layers
        self._shared_layers = shared_layers
        self._import_modules = import_modules
        self._templates: dict[int, tuple[int, str]] = {}  # pidfd: process ID and folder
        self._folder_numbers = count(1)

    def run(self) -> None:
        """Forks until the control socket closes, then waits for the templates."""
        is_open = True
        while is_open or self._templates:
            control = [self._control.fileno()] if is_open else []
            for ready in select.select([*control, *self._templates], [], [])[0]:
                if ready in self._templates:
                    self._reap(ready)
                else:
                    is_open = self._fork()

    def _fork(self) -> bool:
        """Serves one request. Returns False if the control socket is closed."""
        request, descriptors, _, _ = socket.recv_fds(self._control, _MAX_REQUEST, 1)
        if not request:
            return False
        (control,) = descriptors
        with suppress(OSError):  # process limit or disk full: the socket closes, which the client notices
            folder = f"{self._base_folder}/{next(self._folder_numbers)}"
            os.mkdir(folder, 0o711)  # noqa: PTH102  # as in templates; tasks run as other users
            child = os.fork()
            if child == 0:
                self._run_template(request.removeprefix(FORK).decode(), control, folder)
            self._templates[os.pidfd_open(child)] = child, folder
        os.close(control)
        return True

    def _run_template(self, name: str, control: int, folder: str) -> NoReturn:
        try:
            self._control.close()  # otherwise the client would not notice that the supervisor has ended
            for pidfd in self._templates:
                os.close(pidfd)
            if self._import_modules:
                preload.preload_template(name)
            path_rules = sandbox.allowed_path_rules(load_registry().programs)
            apply_layers = partial(sandbox.apply_layers, self._layers, os.getpid(), path_rules)
            _Template(
                socket.socket(fileno=control), folder, lambda own: {**self._shared_layers, **apply_layers(own)}
            ).run()
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _reap(self, pidfd: int) -> None:
        child, folder = self._templates.pop(pidfd)
        os.close(pidfd)
        os.waitpid(child, 0)
        remove_folder(folder)


class _Child(NamedTuple):
    """A worker process: a descriptor that becomes readable when it ends, its status socket and its folder."""

    pidfd: int
    status: int
    folder: str


class _Template:
    """Forks worker processes, each with its own folder below `folder`, and reports their exit codes."""

    def __init__(self, control: socket.socket, folder: str, apply_layers: Callable[[str], Mapping[str, bool]]) -> None:
        self._control = control
        self._folder = folder
        self._apply_layers = apply_layers
        self._address_space = sandbox.address_space()  # inherited by children
        self._children: dict[int, _Child] = {}
        self._folder_numbers = count(1)

    def run(self) -> None:
        """Forks and reaps until the control socket closes, then kills the remaining children."""
        is_open = True
        while is_open:
            # Not SIGCHLD, which would also report each time that the server stops or continues an idle worker.
            control = self._control.fileno()
            ready, _, _ = select.select([control, *(child.pidfd for child in self._children.values())], [], [])
            if ready != [control]:
                self._reap()
            if control in ready:
                is_open = self._fork()
        for child in list(self._children):
            kill_group(child)
            os.waitpid(child, 0)
            self._remove(child, -signal.SIGKILL)

    def _fork(self) -> bool:
        """Serves one request. Returns False if the control socket is closed."""
        request, descriptors, _, _ = socket.recv_fds(self._control, _MAX_REQUEST, 2)
        if not request:
            return False
        connection, status = descriptors
        with suppress(OSError):  # process limit or disk full: the sockets close, which the client notices
            folder = f"{self._folder}/{next(self._folder_numbers)}"
            os.mkdir(folder, 0o700)  # noqa: PTH102  # Path would write to, and so copy, three times as many pages
            child = os.fork()
            if child == 0:
                self._run_child(connection, status, folder)
            self._children[child] = _Child(os.pidfd_open(child), os.dup(status), folder)
        os.close(connection)
        os.close(status)
        return True

    def _run_child(self, connection: int, status: int, folder: str) -> NoReturn:
        def prepare() -> tuple[Mapping[str, bool], int]:
            _announce(status, folder)
            return self._apply_layers(folder), self._address_space

        run_worker(connection, folder, prepare)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                if child in self._children:
                    kill_group(child)
                    self._remove(child, os.waitstatus_to_exitcode(status))

    def _remove(self, child: int, exitcode: int) -> None:
        pidfd, status, folder = self._children.pop(child)
        os.close(pidfd)
        try:
            os.rmdir(folder)  # noqa: PTH106  # as above
        except OSError:  # not empty; a hostile task can leave so many files that removing them takes long
            os.posix_spawnp("rm", ["rm", "-rf", "--", folder], os.environ)
        with suppress(BrokenPipeError, ConnectionResetError):  # the server has ended
            os.write(status, PID.pack(exitcode))
        os.close(status)


def kill_group(leader: int) -> None:
    """Kills the processes of a group. Ignores that it has none."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def _announce(status: int, folder: str) -> None:
    """Sends the ID and the folder of this process, its pidfd and its files in /proc."""
    # Opened before the sandbox is applied: the server may not be allowed to open them afterwards.
    pid = os.getpid()
    descriptors = [os.pidfd_open(pid), *open_files(pid)]
    with socket.socket(fileno=status) as client:
        socket.send_fds(client, [PID.pack(pid) + os.fsencode(folder)], descriptors)
