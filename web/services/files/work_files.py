"""Work files: uploads and results, from the arrival of the body until the response is sent."""

from __future__ import annotations

import asyncio
import hashlib
import os
import resource
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from engine.errors import ExecutorUnavailable, StepFailed
from storage.blobs.blob_store import BlobStore
from storage.descriptors import copy, read_blocks, run_in_thread, write_all
from storage.errors import NotFound
from web.api.errors import NoSpace, RateLimited
from web.services.operation.processes import SharedUsage

MEMORY_LIMIT = 1 << 20
"""Bytes of a file in memory; larger files are on the disk."""

_TOTAL_MEMORY = 256 << 20  # bytes of all uploads in memory; beyond it, small ones are on the disk, too
_SPACE = 2 << 30  # bytes of all files on the disk
_SCARCE = 4  # if less than 1/4 of the space is free, requests of slow clients are ended
DISK_RESERVE = 1 << 30  # bytes of the disk to leave free
DISK_RESERVE_SHARE = 20  # or 1/20 of a small disk
_BLOCK = 1 << 20  # bytes written to the disk at a time
_RETRY_AFTER = 5  # seconds


class OtherResult(ExecutorUnavailable):
    """A worker of the cluster has not stored the result that it has reported."""

    def __init__(self) -> None:
        super().__init__("A worker of the cluster has not stored the result that it has reported.")


@contextmanager
def of_worker() -> Iterator[None]:
    """Raises OtherResult if the block does not find a blob."""
    try:
        yield
    except NotFound:
        raise OtherResult from None


@dataclass(frozen=True)
class StoredContent:
    """A blob with the content of a work file: its key, its size in bytes and its SHA-256, if that is to be checked.

    `delete` deletes the blob, unless it has to stay.
    """

    key: str
    size: int
    digest: str | None = None
    delete: Callable[[], None] = lambda: None


class WorkFile(AbstractContextManager["WorkFile"]):
    """A temporary file without a name, which exists until it is closed: in memory first, and on the disk if large.

    `descriptor` is open for reading and writing. `account` is the id of the account that uses the space: `memory` and
    `on_disk` are its bytes. `give_up` ends the request of the file if its client is slow, and returns whether it is.
    The content may be in the blob store instead, as `stored`, until it is written to the descriptor, too.
    """

    def __init__(self, work_files: WorkFiles, account: str, give_up: Callable[[], bool]) -> None:
        self.descriptor = os.memfd_create("convertd-work-file", os.MFD_CLOEXEC)
        self._work_files = work_files
        self.account = account
        self.give_up = give_up
        self.given_up = False
        self.memory = 0
        self.on_disk = 0
        self._pending = bytearray()  # not yet written to the disk
        self.in_memory = True
        self.stored: StoredContent | None = None

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Size in bytes, including those that are not flushed."""
        return os.fstat(self.descriptor).st_size + len(self._pending)

    async def write(self, data: bytes) -> None:
        """Appends bytes. Raises RateLimited, reason `queue_full`, and NoSpace."""
        if self.in_memory:
            if self.memory + len(data) <= MEMORY_LIMIT and self._work_files.take_memory(self, len(data)):
                write_all(self.descriptor, data)
                return
            await self._move_to_disk(self.size)
        self._pending += data
        if len(self._pending) >= _BLOCK:
            await self.flush()

    async def flush(self) -> None:
        """Writes buffered bytes to the disk. Raises as `write` does."""
        if self._pending and self.descriptor >= 0:
            data = self._pending
            self._pending = bytearray()
            self._work_files.take_disk(self, len(data))
            await run_in_thread(self.descriptor, self._work_files.append, data)

    async def load(self, blobs: BlobStore) -> None:
        """Writes the content to the descriptor, if it is in the blob store.

        Raises NotFound, or OtherResult if the SHA-256 is known and the blob has another or is missing; and as `write`.
        """
        if (stored := self.stored) is None:
            return
        digest = hashlib.sha256()
        with of_worker() if stored.digest else nullcontext():
            async for block in blobs.read(stored.key, 0, stored.size):
                digest.update(block)
                await self.write(block)
        await self.flush()
        if stored.digest not in (None, digest.hexdigest()):
            raise OtherResult

    async def seal(self, size: int) -> None:
        """Replaces a file of `size` bytes that a job has written by a copy of them, on the disk if it is large.

        The process of the job may have kept its descriptor. Raises StepFailed for a shorter file, and as `write` does.
        """
        if size > MEMORY_LIMIT:
            await self._move_to_disk(size)
        else:
            copied = os.memfd_create("convertd-work-file", os.MFD_CLOEXEC)
            write_all(copied, os.pread(self.descriptor, size, 0))
            self._replace_by(copied)
            os.close(copied)
        if self.size != size:
            raise StepFailed("The conversion's process changed its result after the conversion.")

    def read(self) -> bytes:
        """Returns the whole content. Blocks if it is on the disk."""
        return os.pread(self.descriptor, self.size, 0)

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yields the content, at once if it is in memory."""
        if self.in_memory:
            yield self.read()
        else:
            async for block in read_blocks(self.descriptor, 0, self.size):
                yield block

    async def digest(self) -> str:
        """Returns the SHA-256 of the content in hexadecimal digits."""
        return _digest(self.descriptor) if self.in_memory else await run_in_thread(self.descriptor, _digest)

    def close(self) -> None:
        """Deletes the file."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self._pending.clear()
            if self.stored is not None:
                self.stored.delete()
            self._work_files.release(self)

    async def _move_to_disk(self, size: int) -> None:
        self._work_files.take_disk(self, size)
        moving = asyncio.ensure_future(run_in_thread(self.descriptor, self._work_files.copy_to_disk, size))
        try:
            disk = await asyncio.shield(moving)
        except asyncio.CancelledError:
            moving.add_done_callback(_close_result)
            raise
        if self.descriptor >= 0:
            self._replace_by(disk)
            self.in_memory = False
            self._work_files.release_memory(self)
        os.close(disk)

    def _replace_by(self, copied: int) -> None:
        os.ftruncate(self.descriptor, 0)  # frees the memory even if another process keeps the file open
        os.dup2(copied, self.descriptor, inheritable=False)


class WorkFiles:
    """Creates work files, those on the disk in `folder`, and limits their number and size.

    Files on the disk have at most `space` bytes in all. An account may use as much of the space, and of the open files,
    as it leaves to all others: its share shrinks as the space does. If little space is free, the accounts that use more
    than an equal share lose their largest files whose clients are slow.

    `used_memory` is the number of bytes in memory, `used_space` the number of bytes on the disk by account, and
    `open_files` the number of files by account. `memory` and `space` limit all processes of a server together. If there
    are several, they share their `usage` of both; accounts are counted by each process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        space: int = _SPACE,
        memory: int = _TOTAL_MEMORY,
        usage: tuple[SharedUsage, SharedUsage] | None = None,
    ) -> None:
        self.folder = folder
        self._space = space
        self._memory = memory
        self._usage = usage
        self._files = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        self.used_memory = 0
        self.used_space: Counter[str] = Counter()
        self.open_files: Counter[str] = Counter()
        self._on_disk: set[WorkFile] = set()

    def prepare(self) -> None:
        """Creates the folder, and deletes files of an earlier server. Blocks."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def create(self, account: str, give_up: Callable[[], bool] = lambda: False) -> WorkFile:
        """Creates an empty file of an account. Raises RateLimited, reason `queue_full`, if too many are open.

        `give_up` ends the request of the file if its client is slow, and returns whether it is.
        """
        _take(self.open_files, account, 1, self._files)
        try:
            return WorkFile(self, account, give_up)
        except OSError:
            _give_back(self.open_files, account, 1)
            raise

    def take_memory(self, file: WorkFile, size: int) -> bool:
        """Counts bytes of a file in memory. Returns whether there was memory for them."""
        elsewhere = self._usage[0].elsewhere if self._usage else 0
        if self.used_memory + elsewhere + size > self._memory:
            return False
        self.used_memory += size
        file.memory += size
        self._publish()
        return True

    def take_disk(self, file: WorkFile, size: int) -> None:
        """Counts bytes of a file on the disk. Raises RateLimited, reason `queue_full`."""
        space = self._space - (self._usage[1].elsewhere if self._usage else 0)
        if (space - self.used_space.total() - size) * _SCARCE < self._space:
            self._reclaim()
        _take(self.used_space, file.account, size, space)
        file.on_disk += size
        self._on_disk.add(file)
        self._publish()

    def release_memory(self, file: WorkFile) -> None:
        """Counts the bytes of a file as no longer in memory."""
        self.used_memory -= file.memory
        file.memory = 0
        self._publish()

    def release(self, file: WorkFile) -> None:
        """Counts a file as closed."""
        _give_back(self.open_files, file.account, 1)
        _give_back(self.used_space, file.account, file.on_disk)
        self._on_disk.discard(file)
        self.release_memory(file)

    def _publish(self) -> None:
        """Shares how much this process uses with the others of the server."""
        if self._usage is not None:
            memory, space = self._usage
            memory.publish(self.used_memory)
            space.publish(self.used_space.total())

    def _reclaim(self) -> None:
        """Ends the request of one slow client, unless the space of the previous one is not free yet."""
        if any(file.given_up for file in self._on_disk):
            return
        equal_share = self._space // (len(self.used_space) + 1)
        candidates = [file for file in self._on_disk if self.used_space[file.account] > equal_share]
        for file in sorted(candidates, key=lambda file: (-self.used_space[file.account], -file.on_disk)):
            file.given_up = file.give_up()
            if file.given_up:
                return

    def append(self, descriptor: int, data: bytearray) -> None:
        """Writes bytes to a file on the disk. Raises NoSpace. Blocks."""
        self._check_disk(len(data))
        write_all(descriptor, data)

    def copy_to_disk(self, descriptor: int, size: int) -> int:
        """Copies `size` bytes of a file to a new one on the disk. Returns its descriptor. Raises NoSpace. Blocks."""
        self._check_disk(size)
        file = _unnamed_file(self.folder)
        try:
            copy(descriptor, file, size)
        except BaseException:
            os.close(file)
            raise
        return file

    def has_space(self, size: int = 0) -> bool:
        """Whether the disk has space for `size` bytes and the reserve. Blocks."""
        disk = shutil.disk_usage(self.folder)
        return disk.free >= size + min(DISK_RESERVE, disk.total // DISK_RESERVE_SHARE)

    def _check_disk(self, size: int) -> None:
        if not self.has_space(size):
            raise NoSpace


def _unnamed_file(folder: Path) -> int:
    """The descriptor of a new file without a name, which a folder of blobs on the same disk can give one."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:  # not every file system has them
        with tempfile.TemporaryFile(buffering=0, dir=folder) as file:
            return os.dup(file.fileno())


def too_many_uploads() -> RateLimited:
    """The error of a request for whose files there is no space."""
    return RateLimited("Too many uploads at once.", retry_after=_RETRY_AFTER, reason="queue_full")


def _take(used: Counter[str], account: str, amount: int, limit: int) -> None:
    free = limit - used.total() - amount
    if used[account] + amount > free:
        raise too_many_uploads()
    used[account] += amount


def _give_back(used: Counter[str], account: str, amount: int) -> None:
    used[account] -= amount
    if not used[account]:
        del used[account]


def _digest(descriptor: int) -> str:
    with os.fdopen(descriptor, "rb", closefd=False) as file:
        file.seek(0)
        return hashlib.file_digest(file, "sha256").hexdigest()


def _close_result(moving: asyncio.Future[int]) -> None:
    if not moving.cancelled() and moving.exception() is None:
        os.close(moving.result())
