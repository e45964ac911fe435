"""Backups: one file with a copy of the database, the blobs, and a text. A TAR archive, for its owner only."""

from __future__ import annotations

import os
import tarfile
import tempfile
from errno import EEXIST
from pathlib import Path

from storage.blobs.blob_store import BlobStore
from storage.database import dumps
from storage.database.dumps import NotRestorable
from storage.errors import NotFound

_DATABASE = "database/"
_BLOBS = "blobs/"
_NOTES = "settings.toml"
_TEMPORARY = ("put_", "ready")  # keys of puts that go on, and of the check whether a store is ready
_ANY_SIZE = 1 << 40  # bytes


async def back_up(file: Path, url: str, blobs: BlobStore, notes: str) -> int:
    """Writes the backup, while servers run. Returns the number of blobs. Raises FileExistsError and StorageError.

    The database is copied first, so that all blobs that it names exist. Blobs deleted meanwhile are left out.
    """
    _check_absent(file)
    unfinished = file.with_name(f"{file.name}.unfinished")
    try:
        with tempfile.TemporaryDirectory(dir=file.parent, prefix=".convertd-") as name:
            count = await _write(unfinished, Path(name), url, blobs, notes)
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


async def restore(file: Path, url: str, blobs: BlobStore, notes: Path) -> int:
    """Restores a backup into an unused database and an empty blob store, and writes its text to the file `notes`.

    Returns the number of blobs. Raises NotRestorable before anything is written if one of them is used or the file is
    no backup; and StorageError.
    """
    dumps.check_unused(url)
    if any([not key.startswith(_TEMPORARY) async for key in blobs.list(0)]):
        raise NotRestorable("The blob store has files.")
    try:
        archive = tarfile.open(file, mode="r:")  # noqa: SIM115, the block below closes it
    except tarfile.ReadError:
        raise NotRestorable(f"{file} is not a backup.") from None
    with archive, tempfile.TemporaryDirectory(dir=file.parent, prefix=".convertd-") as name:
        folder = Path(name)
        count = 0
        members = {member.name: member for member in archive.getmembers() if member.isfile()}
        if _NOTES not in members:
            raise NotRestorable(f"{file} is not a backup.")
        for path, member in members.items():
            if path.startswith(_DATABASE):
                _extract(archive, member, folder / Path(path).name)
        dumps.load(url, folder)
        for path, member in members.items():
            if path.startswith(_BLOBS):
                _extract(archive, member, folder / "blob")
                with (folder / "blob").open("rb") as content:
                    await blobs.put(path.removeprefix(_BLOBS), content.fileno())
                count += 1
        _extract(archive, members[_NOTES], notes)
    return count


async def _write(file: Path, folder: Path, url: str, blobs: BlobStore, notes: str) -> int:
    """Writes the backup to a file, with copies of its parts in the folder. Returns the number of blobs."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as output:
        with tarfile.open(fileobj=output, mode="w") as archive:
            (folder / "notes").write_text(notes)
            archive.add(folder / "notes", _NOTES)
            (folder / "database").mkdir()
            dumps.dump(url, folder / "database")
            for part in sorted((folder / "database").iterdir()):
                archive.add(part, _DATABASE + part.name)
            count = await _add_blobs(archive, blobs, folder / "blob")
        output.flush()
        os.fsync(output.fileno())
    return count


def _check_absent(file: Path) -> None:
    if file.exists():
        raise FileExistsError(EEXIST, "File exists", str(file))


async def _add_blobs(archive: tarfile.TarFile, blobs: BlobStore, place: Path) -> int:
    """Adds all blobs, each of which is first copied to the `place`. Returns their number."""
    count = 0
    async for key in blobs.list(0):
        if key.startswith(_TEMPORARY):
            continue
        try:
            with place.open("wb") as copy:
                async for block in blobs.read(key, 0, _ANY_SIZE):
                    copy.write(block)
        except NotFound:
            continue
        archive.add(place, _BLOBS + key)
        count += 1
    return count


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    content = archive.extractfile(member)
    assert content is not None  # it is a file
    with content, os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as target:
        while block := content.read(1 << 20):
            target.write(block)
