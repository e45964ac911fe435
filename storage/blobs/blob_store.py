"""Blob store: bytes by key, in a folder or in an S3-compatible store."""

import asyncio
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol
from urllib.parse import unquote, urlsplit

from storage.descriptors import BLOCK, copy, run_in_thread
from storage.errors import DISK_FULL, NotFound, StoreUnavailable
from storage.ids import new_id

TIMEOUT = 6.0
"""The default number of seconds that a store has to respond."""

log = logging.getLogger("convertd.blobs")

_KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,199}")


class BlobStore(Protocol):
    """Stores bytes by key.

    Methods raise ValueError for malformed keys, StoreUnavailable if the store fails or does not respond, and OSError
    (ENOSPC, EDQUOT) if it is full; `read` raises NotFound.
    """

    async def put(self, key: str, file: int) -> None:
        """Stores the open file with this descriptor, atomically: a copy, or the file itself if it has no name.

        A file without a name must not be changed afterwards.
        """

    def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Yields the bytes from `start` up to but excluding `end`, in blocks of about BLOCK bytes."""

    async def move(self, source: str, target: str) -> int:
        """Moves a blob to another key, as durably as `put` does. Returns its size in bytes. Raises NotFound."""

    async def read_url(self, key: str, seconds: float) -> str:
        """Returns a URL by which UrlTransfers reads this blob for some seconds."""

    async def write_url(self, key: str, seconds: float) -> str:
        """Returns a URL by which UrlTransfers stores this blob for some seconds."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Deletes blobs. Ignores keys that do not exist."""

    def list(self, older_than: int) -> AsyncIterator[str]:
        """Yields the keys stored at least `older_than` seconds ago, including keys of interrupted puts."""

    async def ready(self) -> bool:
        """Whether the store accepts blobs now."""


def open_blob_store(url: str | None, folder: Path, *, durable: bool = True, timeout: float = TIMEOUT) -> BlobStore:
    """Opens the store at `s3://bucket/prefix` or `file:///folder`, or the folder if there is no URL. Blocks.

    Unless `durable`, new blobs in a folder may be lost if the machine crashes. `timeout` is in seconds, for S3.
    """
    if url is None:
        return FolderBlobStore(folder, durable=durable)
    if url.startswith("file:"):
        return FolderBlobStore(Path(unquote(urlsplit(url).path)), durable=durable)
    # Imported by name because its library is an optional dependency.
    store: BlobStore = resolve_name("storage.blobs.s3:S3BlobStore")(url, timeout=timeout)
    return store


def validate_key(key: str) -> str:
    """Returns the key. Raises ValueError if it is malformed."""
    if not _KEY.fullmatch(key):
        raise ValueError("A key has 1 to 200 letters, digits and _ . -, and begins with a letter or digit.")
    return key


class FolderBlobStore:
    """Blobs as files in a folder, which is created if needed and unless `create` is False. Uses the disk in threads.

    New blobs are flushed to the disk if `durable`. URLs of blobs are paths, and do not expire.
    """

    def __init__(
        self, folder: Path, *, durable: bool = True, create: bool = True, clock: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._durable = durable
        self._clock = clock
        self._names = _NamesOnDisk(folder)
        if create:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def put(self, key: str, file: int) -> None:
        with _folder_errors():
            await run_in_thread(file, self._put, self._path(key))

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        blocks = _blocks(self._path(key), start, end)
        while start < end:
            with _folder_errors():
                try:
                    block = await asyncio.to_thread(next, blocks, b"")
                except FileNotFoundError:
                    raise NotFound("file") from None
            if not block:
                return
            yield block
            start += len(block)

    async def move(self, source: str, target: str) -> int:
        try:
            return await asyncio.to_thread(self._move, self._path(source), self._path(target))
        except FileNotFoundError:
            raise NotFound("file") from None

    async def read_url(self, key: str, seconds: float) -> str:
        return self._path(key).absolute().as_uri()

    async def write_url(self, key: str, seconds: float) -> str:
        return self._path(key).absolute().as_uri()

    async def delete(self, keys: Iterable[str]) -> None:
        paths = [self._path(key) for key in keys]
        with _folder_errors():
            await asyncio.to_thread(_unlink, paths)

    async def list(self, older_than: int) -> AsyncIterator[str]:
        until = self._clock() - older_than
        # Not an iterator: closing a scandir in another thread, on cancellation, would crash the process.
        with _folder_errors():
            names = await asyncio.to_thread(_put_before, self._folder, until)
        for name in names:
            yield name

    async def ready(self) -> bool:
        return await asyncio.to_thread(is_writable, self._folder)

    def _path(self, key: str) -> Path:
        return self._folder / validate_key(key)

    def _put(self, file: int, blob: Path) -> None:
        temporary = blob.with_name(new_id("put"))  # if left behind, the sweep of unreferenced keys deletes it
        target = os.dup(file) if _give_name(file, temporary) else _copy(file, temporary)
        try:
            now = self._clock()
            os.utime(target, (now, now))
            if self._durable:
                os.fsync(target)
            temporary.rename(blob)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(target)
        if self._durable:
            self._names.flush()

    def _move(self, source: Path, target: Path) -> int:
        file = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            source.rename(target)
            if self._durable:
                os.fsync(file)
                self._names.flush()
            return os.fstat(file).st_size
        finally:
            os.close(file)


def _give_name(file: int, path: Path) -> bool:
    """Gives a file without a name this one. Returns whether it is such a file, on the disk of the path."""
    status = os.fstat(file)
    if status.st_nlink or status.st_dev != path.parent.stat().st_dev:  # it has a name, or is on another disk
        return False
    root = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:  # With a folder, the link in /proc is followed.
        os.link(f"/proc/self/fd/{file}", path, src_dir_fd=root, follow_symlinks=True)
        os.fchmod(file, 0o400)
    except OSError:  # a file system without links
        return False
    finally:
        os.close(root)
    return True


def _copy(file: int, path: Path) -> int:
    """Copies a file to a new one, and returns the descriptor of the copy."""
    target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400)
    try:
        copy(file, target, os.fstat(file).st_size)
    except BaseException:
        os.close(target)
        path.unlink()
        raise
    return target


@contextmanager
def _folder_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise
        log.warning("blob store failed: %s", error, extra={"outage": True})
        raise StoreUnavailable from error


def _blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        while start < end and (block := os.pread(file, min(BLOCK, end - start), start)):
            yield block
            start += len(block)
    finally:
        os.close(file)


class _NamesOnDisk:
    """Flushes the names in a folder to the disk. Threads that change names at the same time share a flush."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes = count(1)
        self._latest = self._flushed = 0  # changes
        self._lock = threading.Lock()

    def flush(self) -> None:
        """Returns when the names are on the disk that the thread has changed before. Blocks."""
        change = self._latest = next(self._changes)
        with self._lock:
            if self._flushed >= change:
                return
            latest = self._latest
            file = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(file)
            finally:
                os.close(file)
            self._flushed = latest


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _put_before(folder: Path, until: float) -> list[str]:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted since the scan
                if entry.stat(follow_symlinks=False).st_mtime <= until:
                    names.append(entry.name)
    return names


def is_writable(folder: Path) -> bool:
    """Whether files can be written to the folder. Blocks."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return file.write(b"ready") > 0
    except OSError:
        return False
