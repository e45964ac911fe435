"""What remains of SQLite's files after a power cut: an SQLite VFS that records each file when it is synced."""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes.util import find_library
from pathlib import Path
from random import Random

_OPEN = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_int, ctypes.c_void_p)
_SYNC = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int)
_SUFFIXES = ("", "-wal")  # the index in shared memory is built again
_BLOCK = 4096  # bytes that a disk writes as a whole


class _Vfs(ctypes.Structure):
    """The beginning of `sqlite3_vfs`, up to the methods that are passed on."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("max_path", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("open", _OPEN),
        ("others", ctypes.c_void_p * 14),
    )


class _Methods(ctypes.Structure):
    """`sqlite3_io_methods`."""

    _fields_ = (
        ("version", ctypes.c_int),
        ("before_sync", ctypes.c_void_p * 4),
        ("sync", _SYNC),
        ("others", ctypes.c_void_p * 13),
    )


class SyncedFiles:
    """The contents of a database's files when they were last synced. `syncs` is their number.

    `before_sync` is called before each, when all that was written since the previous one may be lost.
    """

    def __init__(self, database: Path) -> None:
        self.syncs = 0
        self.before_sync: Callable[[], object] = lambda: None
        self._paths = [database.with_name(database.name + suffix) for suffix in _SUFFIXES]
        self._synced: dict[Path, bytes] = {}

    def record(self, path: Path) -> int:
        """Records the content of a file, which is on the disk now. Returns the status SQLITE_OK."""
        if path in self._paths:
            self.before_sync()
            self.syncs += 1
            self._synced[path] = path.read_bytes()
        return 0

    def after_power_cut(self, random: Random) -> dict[str, bytes]:
        """Returns the files, by name, as a power cut at this moment can leave them. Nobody may write meanwhile.

        Of each block that was written since the last sync of its file, the disk has either the old or the new content.
        """
        return {path.name: _mixed(self._synced.get(path, b""), path, random) for path in self._paths}


def _mixed(synced: bytes, path: Path, random: Random) -> bytes:
    written = path.read_bytes() if path.exists() else b""
    size = random.choice((len(synced), len(written)))
    contents = [content.ljust(size, b"\0") for content in (synced, written)]
    return b"".join(random.choice(contents)[start : start + _BLOCK] for start in range(0, size, _BLOCK))[:size]


@contextmanager
def recorded_syncs(database: Path) -> Iterator[SyncedFiles]:
    """Records the files of a database that is opened in the block, in this process."""
    files = SyncedFiles(database)
    library = ctypes.CDLL(find_library("sqlite3"))
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_Vfs)
    default = library.sqlite3_vfs_find(None)
    vfs = _Vfs.from_buffer_copy(default.contents)
    kept: list[object] = []  # what the library has pointers to

    def open_file(own: int, name: int | None, file: int, flags: int, opened: int | None) -> int:
        # The name is passed on as an address, because SQLite keeps it while the file is open.
        status: int = default.contents.open(own, name, file, flags, opened)
        place = ctypes.cast(file, ctypes.POINTER(ctypes.POINTER(_Methods)))
        if status == 0 and place.contents and name is not None:
            path, methods = Path(ctypes.string_at(name).decode()), _Methods.from_buffer_copy(place.contents.contents)
            methods.sync = _SYNC(lambda _file, _flags: files.record(path))
            kept.append(methods)
            place[0] = ctypes.pointer(methods)
        return status

    vfs.name, vfs.open = b"recorded", _OPEN(open_file)
    library.sqlite3_vfs_register(ctypes.byref(vfs), 1)
    try:
        yield files
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(vfs))
        library.sqlite3_vfs_register(default, 1)
