"""What a process of a server shares with the others: `convertd serve --processes N` has N, each a full server."""

from __future__ import annotations

import mmap
import os
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path

from storage.ids import random_text

_CODE_LENGTH = 12  # characters: 71 bits
_CELL_SIZE = 8  # bytes of a 64-bit integer


class SharedUsage:
    """How much each process of a server uses of something, in memory that the processes share after a fork."""

    def __init__(self, processes: int) -> None:
        self._cells = memoryview(mmap.mmap(-1, _CELL_SIZE * processes)).cast("q")
        self._number = 0

    def of(self, number: int) -> SharedUsage:
        """Returns the usage for a new process with this number, which uses nothing yet."""
        usage = copy(self)
        usage._number = number
        usage.publish(0)
        return usage

    @property
    def elsewhere(self) -> int:
        """How much the other processes use."""
        return sum(self._cells) - self._cells[self._number]

    @property
    def is_above_mean(self) -> bool:
        """Whether this process uses more than the others do on average."""
        return self._cells[self._number] * (len(self._cells) - 1) > self.elsewhere

    def publish(self, used: int) -> None:
        """Sets how much this process uses, which the others can read."""
        self._cells[self._number] = used


@dataclass(frozen=True)
class ServerProcess:
    """One of the `count` processes of a server, by its `number` from 0. A server of one process needs no arguments.

    If there are several, `connections` counts clients' connections, and `files` the bytes of uploads and results in
    progress, in memory and on the disk. `checkout_code` is the code of the simulated checkout. `parent` is a descriptor
    that is readable once the parent has ended; on `ready`, the parent waits for a byte. Only the process that
    `announces` logs what concerns the whole server.
    """

    number: int = 0
    count: int = 1
    announces: bool = True
    connections: SharedUsage | None = None
    files: tuple[SharedUsage, SharedUsage] | None = None
    checkout_code: str = field(default_factory=lambda: random_text(_CODE_LENGTH))
    parent: int | None = None
    ready: int | None = None

    def folder(self, data_dir: Path) -> Path:
        """Returns the folder for what only this process uses: for the first process, the data folder itself."""
        return data_dir if self.number == 0 else data_dir / f"process-{self.number + 1}"

    def report_ready(self) -> None:
        """Reports to the parent that this process serves requests."""
        if self.ready is not None:
            with suppress(BrokenPipeError):  # the parent has ended
                os.write(self.ready, b"1")
            os.close(self.ready)


class ProcessGroup:
    """Objects that `count` processes share, which their parent creates before it forks the first one."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._connections = SharedUsage(count)
        self._memory = SharedUsage(count)
        self._space = SharedUsage(count)
        self._checkout_code = random_text(_CODE_LENGTH)

    def process(self, number: int, *, parent: int, ready: int | None) -> ServerProcess:
        """Returns the value for a new process. Only the first one, which has `ready`, announces the server."""
        return ServerProcess(
            number,
            self.count,
            announces=ready is not None,
            connections=self._connections.of(number),
            files=(self._memory.of(number), self._space.of(number)),
            checkout_code=self._checkout_code,
            parent=parent,
            ready=ready,
        )
