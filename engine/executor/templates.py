"""The processes of a fork server: a tree of templates, and the worker processes that they fork.

The supervisor is the template at the root: it has imported the plugins and what most tasks need. Each other is a copy
of the one above, and has also imported what the tasks of a family need. What they have in common is in memory once.
"""

import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple, NoReturn

from engine import sandbox
from engine.executor import preload
from engine.executor.disk_quota import remove_folder
from engine.executor.worker import run_worker
from engine.executor.worker_process import PID, open_files
from engine.registry import load_registry

FORK = b"fork "
"""A request to a template, with the connection and the status socket of the new worker process.

With the control socket of a new template, the request has the name of that template after it.
"""

READY = b"ready"
"""What a template sends when it has imported its modules."""

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
    apply_layers = partial(_apply_layers, layers, shared_layers)
    programs = preload.programs_of(modules)
    _Template(socket.socket(fileno=int(sys.argv[1])), base_folder, apply_layers, programs).run()
    remove_folder(base_folder)


def _apply_layers(
    layers: Collection[str], shared: Mapping[str, bool], *arguments: Any, several_processes: bool
) -> Mapping[str, bool]:
    """Applies the layers of a worker process. Returns which are active, also of those that it shares."""
    return {**shared, **sandbox.apply_layers(layers, *arguments, several_processes=several_processes)}


class _Child(NamedTuple):
    """A process: a descriptor that becomes readable when it ends, its folder, and the status socket of a worker."""

    pidfd: int
    folder: str
    status: int | None = None


class _Template:
    """Forks worker processes, each with a folder of its own, and reports their exit codes. Forks other templates.

    They end when their control sockets close, or with this one. Each has a folder in `base_folder` for its workers,
    which start its `programs`.
    """

    def __init__(
        self,
        control: socket.socket,
        base_folder: str,
        apply_layers: Callable[..., Mapping[str, bool]],
        programs: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._programs = programs
        self._control = control
        self._base_folder = base_folder
        self._apply_layers = apply_layers
        self._pid = os.getpid()
        self._folder = f"{base_folder}/{self._pid}"
        os.mkdir(self._folder, 0o711)  # noqa: PTH102  # as below; tasks run as other users
        self._path_rules = sandbox.allowed_path_rules(load_registry().programs)
        self._address_space = sandbox.address_space()  # inherited by children
        self._children: dict[int, _Child] = {}
        self._folder_numbers = count(1)

    def run(self) -> None:
        """Forks and reaps until the control socket closes, then kills the remaining children."""
        with suppress(BrokenPipeError):  # the server has ended
            self._control.send(READY)
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
            kill_group(child)  # templates have none, and end by themselves because the server closes their sockets, too
            os.waitpid(child, 0)
            self._remove(child, -signal.SIGKILL)

    def _fork(self) -> bool:
        """Serves one request. Returns False if the control socket is closed."""
        request, descriptors, _, _ = socket.recv_fds(self._control, _MAX_REQUEST, 2)
        if not request:
            return False
        with suppress(OSError):  # process limit or disk full: the sockets close, which the client notices
            if len(descriptors) == 1:
                self._fork_template(request.removeprefix(FORK).decode(), *descriptors)
            else:
                self._fork_worker(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        return True

    def _fork_template(self, name: str, control: int) -> None:
        child = os.fork()
        if child == 0:
            self._run_template(name, control)
        self._children[child] = _Child(os.pidfd_open(child), f"{self._base_folder}/{child}")

    def _run_template(self, name: str, control: int) -> NoReturn:
        try:
            sandbox.set_parent_death_signal(self._pid)
            self._control.close()  # otherwise the client would not notice that the template above has ended
            for each in self._children.values():
                os.close(each.pidfd)
                if each.status is not None:
                    os.close(each.status)
            preload.preload_template(name)
            programs = preload.programs_of(load_registry().templates.get(name, ()))
            _Template(socket.socket(fileno=control), self._base_folder, self._apply_layers, programs).run()
        except (FileNotFoundError, ConnectionError):
            pass  # the server has ended, and removed the base folder
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(0)

    def _fork_worker(self, connection: int, status: int) -> None:
        folder = f"{self._folder}/{next(self._folder_numbers)}"
        os.mkdir(folder, 0o700)  # noqa: PTH102  # Path would write to, and so copy, three times as many pages
        child = os.fork()
        if child == 0:
            self._run_worker(connection, status, folder)
        self._children[child] = _Child(os.pidfd_open(child), folder, os.dup(status))

    def _run_worker(self, connection: int, status: int, folder: str) -> NoReturn:
        def prepare() -> tuple[Mapping[str, bool], int]:
            _announce(status, folder)
            several = bool(self._programs)
            layers = self._apply_layers(self._pid, self._path_rules, folder, several_processes=several)
            return layers, self._address_space

        run_worker(connection, folder, prepare, self._programs)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                child, status = ended
                if child in self._children:
                    kill_group(child)
                    self._remove(child, os.waitstatus_to_exitcode(status))

    def _remove(self, child: int, exitcode: int) -> None:
        pidfd, folder, status = self._children.pop(child)
        os.close(pidfd)
        try:
            os.rmdir(folder)  # noqa: PTH106  # as above
        except OSError:  # not empty; a hostile task can leave so many files that removing them takes long
            os.posix_spawnp("rm", ["rm", "-rf", "--", folder], os.environ)
        if status is not None:
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
