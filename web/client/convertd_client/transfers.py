"""The files that requests send, and the ones that responses are written to."""

from __future__ import annotations

import errno
import io
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

import httpx

FilePath: TypeAlias = "str | os.PathLike[str]"

Source: TypeAlias = "FilePath | bytes | BinaryIO"
"""A file to send: a path, the content, or an open binary file, which is read from its start."""

Progress: TypeAlias = "Callable[[str, int, int | None], object]"
"""Callback with "upload" or "download", the bytes transferred so far, and the total in bytes, None if unknown."""


class _Upload:
    """An open file that calls `report` after each read."""

    def __init__(self, file: BinaryIO, report: Callable[[], object]) -> None:
        self._file = file
        self._report = report

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, size: int = -1) -> bytes:
        block = self._file.read(size)
        self._report()
        return block


class PartialDownload:
    """A file that a response is written to. A retry requests only the missing bytes."""

    def __init__(self, file: BinaryIO, path: Path | None, progress: Progress | None) -> None:
        self.path = path
        """Where the file will be when the block of `open_download` has ended; None for a buffer in memory."""
        self._file = file
        self._progress = progress
        self._etag = ""
        self._total: int | None = None

    @property
    def size(self) -> int:
        """The number of bytes received."""
        return self._file.tell()

    @property
    def content(self) -> bytes:
        """The bytes received, empty if they are written to a path."""
        return self._file.getvalue() if isinstance(self._file, io.BytesIO) else b""

    def headers(self) -> dict[str, str]:
        resume = {"Range": f"bytes={self.size}-", "If-Range": self._etag} if self.size and self._etag else {}
        return {"Accept-Encoding": "identity", **resume}

    def start(self, response: httpx.Response) -> None:
        if response.status_code != httpx.codes.PARTIAL_CONTENT:
            self._file.truncate(self._file.seek(0))
        self._etag = response.headers.get("ETag", "")
        length = response.headers.get("Content-Length", "")
        self._total = self.size + int(length) if length.isdecimal() else None

    def write(self, block: bytes) -> None:
        self._file.write(block)
        if self._progress is not None:
            self._progress("download", self.size, self._total)


@contextmanager
def open_download(
    to: FilePath | None, *, overwrite: bool, progress: Progress | None = None
) -> Iterator[PartialDownload]:
    """Opens a temporary file that is renamed to `to` on success; without `to`, a buffer in memory.

    Raises OSError at once if `to` exists and must not be overwritten, or if no file can be created there.
    """
    if to is None:
        yield PartialDownload(io.BytesIO(), None, progress)
        return
    path = Path(to)
    _check_target(path, overwrite=overwrite)
    part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            download = PartialDownload(file, path, progress)
            yield download
        path = download.path or path
        _check_target(path, overwrite=overwrite)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _check_target(path: Path, *, overwrite: bool) -> None:
    """Raises OSError if no file can be written at the path, or if one exists there and must not be overwritten."""
    problems = {
        errno.EISDIR: path.is_dir(),
        errno.EEXIST: not overwrite and os.path.lexists(path),
        errno.ENOENT: not path.parent.is_dir(),
        errno.EACCES: not os.access(path.parent, os.W_OK),
    }
    for code, found in problems.items():
        if found:
            raise OSError(code, os.strerror(code), str(path))


def check_access(source: Path, output: Path, *, overwrite: bool) -> None:
    """Raises OSError if the source cannot be read, or the output cannot be written."""
    source.open("rb").close()
    _check_target(output, overwrite=overwrite)


def output_paths(paths: Sequence[Path], target: str, folder: FilePath | None) -> dict[Path, Path]:
    """Returns the path of the result for each path. Raises ValueError if another result or a source has this path."""
    sources: dict[Path, Path] = {}
    for path in paths:
        output = Path(folder or path.parent, f"{path.stem}.{target.lower()}")
        if (other := sources.setdefault(output, path)) is not path:
            raise ValueError(f"The results of {other} and {path} would have the same path, {output}.")
        with suppress(FileNotFoundError):
            if output.samefile(path):
                raise ValueError(f"The result of {path} would overwrite it.")
    return {path: output for output, path in sources.items()}


@contextmanager
def open_form(
    fields: Mapping[str, str], files: Sequence[tuple[str, Source]], name: str | None, progress: Progress | None
) -> Iterator[list[tuple[str, Any]]]:
    """Opens files, each with its form field, and yields the parts of the form. `name` replaces the first filename.

    Copies unseekable ones to temporary files, so that they can be sent again.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(_open_source(source)) for _, source in files]
        total = sum(file.seek(0, os.SEEK_END) for file in opened)
        for file in opened:
            file.seek(0)

        def report() -> None:
            if progress is not None:
                progress("upload", sum(file.tell() for file in opened), total)

        names = [name if name and not index else _filename(source) for index, (_, source) in enumerate(files)]
        texts = [(field, (None, text)) for field, text in fields.items()]  # a form of texts alone has parts, too
        yield [*texts, *((files[index][0], (names[index], _Upload(file, report))) for index, file in enumerate(opened))]


@contextmanager
def _open_source(source: Source) -> Iterator[BinaryIO]:
    if isinstance(source, bytes):
        yield io.BytesIO(source)
    elif isinstance(source, str | os.PathLike):
        with Path(source).open("rb") as file:
            yield file
    elif source.seekable():
        yield source
    else:
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(source, copy)
            yield copy


def _filename(source: Source) -> str:
    path = source if isinstance(source, str | os.PathLike) else getattr(source, "name", None)
    return (Path(path).name if isinstance(path, str | os.PathLike) else "") or "file"
