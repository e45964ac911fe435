"""A worker process, as the server sees it: its messages, its end, and what /proc shows of its memory and CPU time.

A process opens its files in /proc for others, as /proc may hide it from them.
"""

import asyncio
import os
import re
import signal
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ExecutorUnavailable
from engine.sandbox import LOW_PRIORITY

PID = struct.Struct("=i")
"""The format of status messages: a process ID, followed by the path of the process's folder, or an exit code.

The first has descriptors: the process's pidfd, and its files in /proc.
"""

_MAX_FILE = 8192  # bytes that are read of a file in /proc
# Only at the start of a line: a process chooses its name. Memory in swap and memory shared with a child count, too.
_MEMORY = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s*(\d+) kB$", re.MULTILINE)
_THREADS = re.compile(rb"^Threads:\s*(\d+)$", re.MULTILINE)
_CPU_CLOCK = 2  # CPUCLOCK_SCHED, of a whole process
_TICKS = os.sysconf("SC_CLK_TCK")  # per second


@dataclass(eq=False)
class WorkerProcess:
    """A worker process and its own folder.

    `connection` carries requests and replies. `status` receives the exit code from the fork server. `proc_files` are
    descriptors of the files of `open_files`, `pidfd` refers to the process.
    """

    pid: int
    folder: Path
    connection: socket.socket
    status: socket.socket
    proc_files: Sequence[int]
    pidfd: int
    ended: bool = False

    def is_waiting(self) -> bool:
        """Returns whether the process is alive and has sent nothing that has not been received."""
        return is_silent(self.connection)

    def memory_and_threads(self) -> tuple[int, int]:
        """Returns the bytes of memory of it and its descendants, and its threads. Raises OSError if it has ended."""
        text = os.pread(self.proc_files[0], _MAX_FILE, 0)
        memory, threads = used_memory(text), _THREADS.search(text)
        if not memory or not threads:  # a process that is about to end has no memory
            raise ProcessLookupError
        children = b"".join(os.pread(file, _MAX_FILE, 0) for file in self.proc_files[2:]).split()
        memory += sum(memory_of(pid) for child in children for pid in descendants(int(child)))
        return memory, int(threads[1])

    def cpu_seconds(self, *, children: bool) -> float:
        """Returns its CPU time; with `children`, also that of all processes that it has started, ended ones included.

        Raises OSError if it has ended.
        """
        seconds = cpu_seconds(self.pid)
        if children:
            stat, *running = [os.pread(file, _MAX_FILE, 0) for file in self.proc_files[1:]]
            seconds += cpu_seconds_of_children(stat, b"".join(running))
        return seconds

    def lower_priority(self) -> None:
        """Lowers the priority of the threads and children of the process. Only root could raise it again."""
        with suppress(OSError):
            os.setpriority(os.PRIO_PGRP, self.pid, LOW_PRIORITY)

    async def exitcode(self, seconds: float) -> int | None:
        """Waits up to `seconds` for the process to end.

        Returns its exit code, negative for a signal, or None if the process is still running. Raises
        ExecutorUnavailable if the fork server has died.
        """
        try:
            async with asyncio.timeout(seconds):
                message = await asyncio.get_running_loop().sock_recv(self.status, PID.size)
        except TimeoutError:
            return None
        self.ended = True
        if not message:
            raise ExecutorUnavailable("The conversion's process was killed together with its fork server.")
        return int(PID.unpack(message)[0])

    def stop(self) -> None:
        """Stops the process and those of its group until `resume`."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continues a stopped process, and those of its group."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kills the process and all processes of its process group."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if not self.ended and is_silent(self.status):
            for send in (os.killpg, os.kill):
                with suppress(ProcessLookupError):
                    send(self.pid, number)

    def discard(self) -> None:
        """Kills the process and closes its descriptors."""
        self.kill()
        self.connection.close()
        self.status.close()
        for file in (*self.proc_files, self.pidfd):
            os.close(file)


def is_silent(connection: socket.socket) -> bool:
    """Whether a connection is open and has nothing to receive."""
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def open_files(pid: int) -> list[int]:
    """Opens the status of a process, its statistics, and the list of its children, if the kernel has that."""
    files = []
    with suppress(FileNotFoundError):
        for name in ("status", "stat", f"task/{pid}/children"):
            files.append(os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC))
    return files


def used_memory(status: bytes) -> int:
    """Returns the memory in bytes of a process, given its status file in /proc, without pages of files."""
    return 1024 * sum(int(size) for size in _MEMORY.findall(status))


def memory_of(pid: int) -> int:
    """Returns the memory in bytes of a process; 0 if it has ended."""
    with suppress(OSError):
        return used_memory(Path(f"/proc/{pid}/status").read_bytes())
    return 0


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process without its children. Raises OSError if it has ended."""
    return time.clock_gettime(~pid << 3 | _CPU_CLOCK)


def cpu_seconds_of_children(stat: bytes, children: bytes) -> float:
    """Returns the CPU time of the descendants of a process, given its statistics and its list of children."""
    running = [pid for child in children.split() for pid in descendants(int(child))]
    return _cpu_of_ended(stat) + sum(map(_cpu_with_ended, running))


def descendants(pid: int) -> Iterator[int]:
    """Yields the process and its descendants, which stay so: it adopts those whose parents end."""
    yield pid
    with suppress(OSError):  # it has ended, or /proc hides it
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))


def _cpu_with_ended(pid: int) -> float:
    with suppress(OSError):
        return cpu_seconds(pid) + _cpu_of_ended(Path(f"/proc/{pid}/stat").read_bytes())
    return 0.0


def _cpu_of_ended(stat: bytes) -> float:
    """The CPU time in seconds of the children that have ended: the fields after the name, which can have any text."""
    user, system = stat.rpartition(b")")[2].split()[13:15]
    return (int(user) + int(system)) / _TICKS
