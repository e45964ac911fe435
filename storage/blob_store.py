"""Blobs: bytes by key, in a folder or in any store that speaks S3."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from storage.errors import NotFound
from storage.ids import new_id

BLOCK = 256 << 10  # bytes that are read at a time

_KEY = re.compile(r"[0-9A-Za-z][0-9A-Za-z_.-]{0,199}")


class BlobStore(Protocol):
    """Keeps bytes by key. A key is an id of ours, or its methods raise ValueError.

    All but `delete` and `list` concern one blob; `fetch` and `read` raise Missing where it is not there.
    """

    async def put(self, key: str, path: Path) -> None:
        """Takes the file over, which may be gone afterwards. The blob is there as a whole or not at all."""

    async def fetch(self, key: str, path: Path) -> None:
        """Makes a file of the blob; what is done to that file does nothing to the blob."""

    def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes from `start` to before `end`, which lie within the blob, in blocks of about BLOCK."""

    async def delete(self, keys: Iterable[str]) -> None:
        """Erases these blobs, as far as they are there."""

    def list(self, older_than: int) -> AsyncIterator[str]:
        """The keys that were put at least so many seconds ago, those of puts that were cut off among them."""

    async def ready(self) -> bool:
        """Whether blobs can be put now."""

    async def close(self) -> None:
        """Lets go of connections."""


def open_blob_store(url: str | None, folder: Path) -> BlobStore:
    """The store of that URL, `s3://bucket/prefix`, or the folder where there is none. Works on the disk."""
    if url is None:
        return FolderBlobStore(folder)
    # Loaded by its name, because the library below it is an extra that need not be installed.
    opened: BlobStore = resolve_name("storage.blob_store_s3:S3BlobStore")(url)
    return opened


def checked(key: str) -> str:
    """The key. Raises ValueError where it is none."""
    if not _KEY.fullmatch(key):
        raise ValueError("A key has 1 to 200 letters, digits and _ . -, and begins with a letter or digit.")
    return key


async def read_blocks(path: Path, start: int, end: int) -> AsyncIterator[bytes]:
    """The bytes of a file from `start` to before `end`, read in threads, in blocks of BLOCK at most."""
    blocks = _blocks(path, start, end)
    while block := await asyncio.to_thread(next, blocks, b""):
        yield block
        start += len(block)
        if start >= end:
            return


def regular(path: Path) -> Path:
    """The path. Raises OSError where a link lies there, which a job may have made to a file that is not its own."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise OSError(f"{path.name} is no regular file.")
    return path


class FolderBlobStore:
    """Blobs as the files of a folder, which is made. The disk is worked on in threads."""

    def __init__(self, folder: Path, *, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._clock = clock
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    async def put(self, key: str, path: Path) -> None:
        await asyncio.to_thread(self._put, self._path(key), path)

    async def fetch(self, key: str, path: Path) -> None:
        # Copied, not linked: a job could change the bytes through a link.
        await asyncio.to_thread(_copy, self._path(key), path)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        try:
            async for block in read_blocks(self._path(key), start, end):
                yield block
        except FileNotFoundError:
            raise NotFound("file") from None

    async def delete(self, keys: Iterable[str]) -> None:
        await asyncio.to_thread(_unlink, [self._path(key) for key in keys])

    async def list(self, older_than: int) -> AsyncIterator[str]:
        until = self._clock() - older_than
        # In one go: a scan that another thread closes, as it would where this is cancelled, crashes the process.
        for name in await asyncio.to_thread(_put_before, self._folder, until):
            yield name

    async def ready(self) -> bool:
        return await asyncio.to_thread(writable, self._folder)

    async def close(self) -> None:
        """There is nothing to let go of."""

    def _path(self, key: str) -> Path:
        return self._folder / checked(key)

    def _put(self, blob: Path, path: Path) -> None:
        whole = blob.with_name(new_id("put"))  # a key that no file refers to: what is left of it gets swept
        try:
            shutil.move(path, whole, copy_function=shutil.copyfile)
            _settle(whole, self._clock())
            whole.rename(blob)
        except BaseException:
            whole.unlink(missing_ok=True)
            raise
        _sync_folder(self._folder)


def _blocks(path: Path, start: int, end: int) -> Iterator[bytes]:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        while start < end and (block := os.pread(file, min(BLOCK, end - start), start)):
            yield block
            start += len(block)
    finally:
        os.close(file)


def _settle(path: Path, now: float) -> None:
    """Sees to it that the bytes survive a power cut, and that nobody writes to them."""
    with regular(path).open("rb") as file:
        os.fchmod(file.fileno(), 0o400)
        os.utime(file.fileno(), (now, now))
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _copy(blob: Path, path: Path) -> None:
    try:
        source = blob.open("rb")
    except FileNotFoundError:
        raise NotFound("file") from None
    with source, path.open("wb") as target:
        shutil.copyfileobj(source, target, BLOCK)


def _unlink(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


def _put_before(folder: Path, until: float) -> list[str]:
    names = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # deleted meanwhile
                if entry.stat(follow_symlinks=False).st_mtime <= until:
                    names.append(entry.name)
    return names


def writable(folder: Path) -> bool:
    """Whether the folder can be written to. Works on the disk."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return file.write(b"ready") > 0
    except OSError:
        return False
