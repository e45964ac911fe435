"""Copies of a new SQLite database. Its migrations take ten times as long as a copy."""

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from storage.database import Database

_FILE = "convertd.db"


def new_sqlite_url(folder: Path) -> str:
    """Creates a database without rows, with the schema of this release, in a new or existing folder. Returns its URL.

    Keeps a database that the folder has.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _FILE
    if not path.exists():
        path.touch(mode=0o600)  # as the server creates it
        path.write_bytes(_new_database())
    return f"sqlite:///{path}"


@cache
def _new_database() -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / _FILE
        Database(f"sqlite:///{path}").close()
        return path.read_bytes()
