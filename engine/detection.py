"""Detection of the formats of files by their content, in two depths.

Bytes that formats declare are compared in any process. The functions of sniffers, which read as much of a file as they
like, are called for files that begin as their formats may: in a server, by a sandboxed process.
"""

import os
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path

from engine.errors import UnknownFormat
from engine.formats import Content, Declared, FileFormat, Pattern, SniffedContent, patterns_of

HEAD = 1 << 16
"""Bytes of a file that formats can declare."""

_OF_TEXT = (1, True)  # the rank of a file with nothing but an extension of text


class OpenFile:
    """The content of an open file, which is read when it is sliced."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: slice) -> bytes:
        start, stop, _ = index.indices(self._size)
        return os.pread(self._descriptor, max(0, stop - start), start)


class Detection:
    """Finds the format of a file: the longest match of its content wins, then the extension of its name.

    The extension alone decides on the formats of text. Of formats that match equally well, the first one wins. All
    methods raise UnknownFormat, reason `empty_file`, and take the names of formats that are left out.
    """

    def __init__(self, formats: Iterable[FileFormat]) -> None:
        self._formats = tuple(formats)
        self._beginning_with = cache(self._find_beginning_with)

    def compare(self, head: bytes, filename: str, without: Collection[str] = ()) -> FileFormat | None:
        """The format, if the bytes that formats declare decide on it; None if functions have to read the file.

        `head` is its first HEAD bytes, or all. Raises UnknownFormat, reason `unrecognized`.
        """
        best = None
        best_rank = (0, True)
        extension = _extension(filename)
        for fmt, (places, score) in self._beginning_as(head):
            if fmt.name in without or not all(head[place].startswith(magics) for place, magics in places):
                continue
            if not isinstance(score, int | Declared):
                return None
            rank = (score if isinstance(score, int) else score(head), extension in fmt.extensions)
            if rank > best_rank:
                best, best_rank = fmt, rank
        texts = (fmt for fmt in self._formats if extension in fmt.text_extensions)
        if best_rank <= _OF_TEXT and any(fmt.name not in without for fmt in texts):
            return None
        if best is None:
            raise unrecognized()
        return best

    def read(
        self,
        content: Content,
        filename: str,
        without: Collection[str] = (),
        begin: Callable[[FileFormat], object] = lambda _: None,
    ) -> tuple[FileFormat | None, dict[str, str]]:
        """The format, None if there is none, and the errors of sniffers by the names of their formats.

        Calls `begin` before each sniffer.
        """
        best = None
        best_rank = (0, True)
        errors = dict[str, str]()
        extension = _extension(filename)
        content = SniffedContent(content)
        beginning = {fmt for fmt, _ in self._beginning_as(content)}
        for fmt in self._formats:
            if fmt.name in without or not (fmt.text_extensions or fmt in beginning):
                continue
            begin(fmt)
            try:
                rank = fmt.match(content, extension)
                if rank > best_rank:
                    best = fmt
                    best_rank = rank
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # SystemExit, and panics of libraries in Rust
                errors[fmt.name] = f"{type(error).__name__}: {error}"
        return best, errors

    def _beginning_as(self, content: Content) -> tuple[tuple[FileFormat, Pattern], ...]:
        """The patterns of the files that can begin as this one does. Raises UnknownFormat, reason `empty_file`."""
        if not (byte := content[:1]):
            raise UnknownFormat("The file is empty.", reason="empty_file")
        return self._beginning_with(byte)

    def _find_beginning_with(self, byte: bytes) -> tuple[tuple[FileFormat, Pattern], ...]:
        patterns = ((fmt, pattern) for fmt in self._formats for pattern in patterns_of(fmt.sniff))
        return tuple((fmt, pattern) for fmt, pattern in patterns if pattern.can_begin_with(byte))


def unrecognized() -> UnknownFormat:
    """The error of a file without a supported format."""
    return UnknownFormat("The content of the file matches no supported format.")


def _extension(filename: str) -> str:
    return Path(filename).suffix[1:].lower()
