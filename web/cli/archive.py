"""The `archive` command, which moves usage and charges of past months from the database into a file."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TextIO

import typer

from storage.database import Database
from storage.tables import archives
from web.cli.output import FAILED, WRONG_USAGE, exit_on_storage_errors, exit_with, load_settings_or_exit, print_message

Month = Annotated[str, typer.Option(metavar="MONTH", help="The first month that stays in the database, as YYYY-MM.")]
File = Annotated[Path, typer.Argument(help="The file to write: JSON, a line for each row, compressed with gzip.")]

cli = typer.Typer(add_completion=False)


@cli.command()
def archive(file: File, before: Month) -> None:
    """Balances and usage reports stay as they are. The servers may keep running.

    If it was interrupted, the same command continues.
    """
    end = _start_of_month(before)
    with exit_on_storage_errors():
        database = Database(load_settings_or_exit().resolved_database_url())
        try:
            moved = _archive(database, end, file)
        except archives.NotArchivable as error:
            exit_with(str(error), FAILED)
        finally:
            database.close()
    print_message(moved)


def _archive(database: Database, before: int, file: Path) -> str:
    """Writes the file if there is none, then removes the rows that it has. Returns a message."""
    database.run_blocking(archives.check, before)
    recorded = database.run_blocking(archives.find, before)
    if recorded is None:
        if file.exists():
            raise archives.NotArchivable(f"{file} exists, and is not the archive of these months.")
        _write(database, before, file)
        database.run_blocking(archives.begin, before, _sha256(file))
    elif not file.exists() or _sha256(file) != recorded:
        raise archives.NotArchivable(f"These months are archived already, in a file other than {file}.")
    position: archives.Position | None = archives.START
    while position is not None:
        position = database.run_blocking(archives.remove, position, before)
    with gzip.open(file, "rt") as lines:
        return f"{file} has {sum(1 for _ in lines)} rows that are no longer in the database."


def _write(database: Database, before: int, file: Path) -> None:
    """Writes the rows of all months before this time. A file with its final name is complete, and on the disk."""
    unfinished = file.with_name(f"{file.name}.unfinished")
    unfinished.touch(mode=0o600)
    with unfinished.open("wb") as target:
        with gzip.open(target, "wt") as lines:
            _write_rows(database, before, lines)
        target.flush()
        os.fsync(target.fileno())
    unfinished.rename(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the rows are deleted next, so the name must survive a power cut, too
    finally:
        os.close(folder)


def _write_rows(database: Database, before: int, lines: TextIO) -> None:
    position: archives.Position | None = archives.START
    while position is not None:
        batch = database.run_blocking(archives.read, position, before)
        for table, rows in (("usage", batch.usage), ("entry", batch.entries)):
            for row in rows:
                lines.write(json.dumps({"table": table, **row}) + "\n")
        position = batch.next


def _start_of_month(text: str) -> int:
    """The beginning of a month (Unix time). Exits if the text is no month."""
    try:
        return int(datetime.strptime(text, "%Y-%m").replace(tzinfo=UTC).timestamp())
    except ValueError:
        exit_with(f"{text} is not a month such as 2026-06.", WRONG_USAGE)


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
