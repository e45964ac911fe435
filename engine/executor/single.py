"""The worker process of a command that converts one file: a child of the command itself, without a fork server."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import signal
import socket
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from engine import sandbox
from engine.errors import ExecutorUnavailable
from engine.executor import preload
from engine.executor.folders import BaseFolder
from engine.executor.forkserver import WorkerProcess, job_environment
from engine.executor.forkserver_main import PID, kill_group
from engine.executor.pool import Worker
from engine.executor.worker import run_worker
from engine.registry import load_registry

_ARENA_MAX = -8  # the parameter of mallopt that MALLOC_ARENA_MAX sets when a process starts


class SingleWorker:
    """Forks a worker process per job from this process, which must have one thread.

    The workers have the sandbox `layers`. They import `modules` before: those that their jobs can import.
    """

    def __init__(self, layers: Collection[str], modules: Collection[str]) -> None:
        self._layers = layers
        self._modules = modules

    async def start(self) -> None:
        """Does nothing: a process is forked for each job."""

    async def close(self) -> None:
        """Does nothing: a process ends with its job."""

    async def ready(self) -> bool:
        """Returns True."""
        return True

    @asynccontextmanager
    async def worker(self, account: str, *, isolated: bool) -> AsyncIterator[Worker]:
        """A worker for one job of the account, which is killed on exit. Raises ExecutorUnavailable."""
        base_folder = BaseFolder()
        try:
            process, status = self._fork(f"{base_folder.path}/1")
            loop = asyncio.get_running_loop()
            loop.add_reader(process.pidfd, _reap, process, status)
            try:
                yield Worker(process, account, (0, 0), final=True)
            finally:
                loop.remove_reader(process.pidfd)
                process.kill()
                _reap(process, status)
                process.discard()
        finally:
            base_folder.remove()

    def _fork(self, folder: str) -> tuple[WorkerProcess, socket.socket]:
        """Returns a worker process with a new folder, and the socket that takes its exit code."""
        Path(folder).mkdir(0o700)
        connection, remote_connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status, remote_status = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        prepare = partial(self._prepare, os.getpid(), folder)
        try:
            pid = os.fork()
        except OSError as error:
            raise ExecutorUnavailable("No process can be started for the conversion.") from error
        if pid == 0:
            run_worker(remote_connection.fileno(), folder, prepare)
        remote_connection.close()
        connection.setblocking(False)
        status.setblocking(False)
        proc_status = os.open(f"/proc/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        process = WorkerProcess(pid, Path(folder), connection, status, proc_status, os.pidfd_open(pid))
        return process, remote_status

    def _prepare(self, parent: int, folder: str) -> tuple[Mapping[str, bool], int]:
        """Imports the modules and applies the sandbox, in the worker process."""
        for number in (signal.SIGINT, signal.SIGTERM):  # the command handles these
            signal.signal(number, signal.SIG_IGN)
        gc.freeze()  # objects that the garbage collector visits in a fork are copied
        environment = {**job_environment(), "TMPDIR": folder}
        os.environ.clear()
        os.environ.update(environment)
        ctypes.CDLL(None).mallopt(_ARENA_MAX, int(environment["MALLOC_ARENA_MAX"]))
        network = sandbox.enter_network_namespace(self._layers)
        preload.import_modules(self._modules)
        address_space = sandbox.address_space()
        path_rules = sandbox.allowed_path_rules(load_registry().programs)
        return network | sandbox.apply_layers(self._layers, parent, path_rules, folder), address_space


def _reap(process: WorkerProcess, status: socket.socket) -> None:
    """Ends the group of a process that has ended, and sends its exit code. Does nothing the second time."""
    if status.fileno() < 0:
        return
    kill_group(process.pid)
    exitcode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
    with status:
        status.send(PID.pack(exitcode))
