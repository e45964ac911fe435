"""Messages, tables, progress, exit codes and settings shared by all commands."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from config.settings import Settings

FAILED = 1
WRONG_USAGE = 2
"""Exit codes of commands that do not succeed."""

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_message(message: str) -> None:
    """Prints a message to standard error; standard output is for results."""
    print(f"convertd: {message}", file=sys.stderr)


def exit_with(message: str, status: int) -> NoReturn:
    """Prints the message and exits."""
    print_message(message)
    raise typer.Exit(status) from None


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]], *, fold: bool = True) -> None:
    """Prints a table, or, into files and pipes, a line without headers for each row, whose cells are divided by tabs.

    None is an empty cell. Unless `fold` is false, the table is not wider than the terminal.
    """
    cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in cells:
            print("\t".join(" ".join(cell.split()) for cell in row))
        return
    from rich.console import Console  # noqa: PLC0415, which most commands do not need
    from rich.table import Column, Table  # noqa: PLC0415, as above

    table = Table(Column(headers[0], no_wrap=True), *headers[1:])
    for row in cells:
        table.add_row(*row)
    Console(soft_wrap=not fold, markup=False).print(table)


def load_settings_or_exit() -> Settings:
    """Returns the settings of this process. Exits if they are invalid."""
    from config.settings import SettingsError, load_settings  # noqa: PLC0415, which --help does not need

    try:
        return load_settings()
    except SettingsError as error:
        exit_with(str(error), WRONG_USAGE)


@contextmanager
def exit_on_storage_errors() -> Iterator[None]:
    """Exits with one line if the database, the file store or the data folder of the settings cannot be used."""
    try:
        yield
    except Exception as error:
        message = _storage_error(error)
        if message is None:
            raise
        exit_with(message, FAILED)


def _storage_error(error: Exception) -> str | None:
    """The cause of a storage error, and what to do about it; None for other errors."""
    from peewee import ImproperlyConfigured, PeeweeException  # noqa: PLC0415, as above

    from storage.database.connections import UnsupportedUrl  # noqa: PLC0415
    from storage.database.migrate import NewerSchema  # noqa: PLC0415
    from storage.errors import StorageError  # noqa: PLC0415

    first_line = str(error).partition("\n")[0]
    install = "install it with: pip install"
    match error:
        case ImproperlyConfigured():
            return f"PostgreSQL needs the package psycopg; {install} 'psycopg[binary]'"
        case ModuleNotFoundError(name="obstore"):
            return f"S3 needs the package obstore; {install} obstore"
        case ModuleNotFoundError(name="cryptography" | "dask" | "distributed" as package):
            return f"a cluster needs the package {package}; run: sh config/setup.sh cluster, or {install} {package}"
        case NewerSchema():
            return f"{first_line} Install that release."
        case PeeweeException():
            return f"cannot use the database: {first_line}; check CONVERTD_DATABASE_URL, or CONVERTD_DATA_DIR if unset"
        case OSError(filename=str() as path):
            return f"cannot use {path}: {error.strerror}; check CONVERTD_DATA_DIR, or the folder of CONVERTD_BLOB_URL"
        case UnsupportedUrl() | StorageError() | OSError():
            return first_line
    return None


def describe_change(before: int, after: int) -> str:
    """A sentence about two sizes in bytes, such as `1,204 bytes saved, 34.5 %`."""
    share = f", {abs(1 - after / before):.1%}".replace("%", " %") if before else ""
    return f"{abs(before - after):,} bytes {'saved' if before >= after else 'added'}{share}"


@contextmanager
def progress(total: int, *, hidden: bool = False) -> Iterator[Callable[[list[str]], None]]:
    """A function that prints the lines of a result to standard error. Shows a progress bar for several results."""
    if total == 1 or hidden:
        yield lambda lines: print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
        return
    from rich.console import Console  # noqa: PLC0415, one result needs no progress bar
    from rich.progress import Progress  # noqa: PLC0415

    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("converting", total=total)

        def show(lines: list[str]) -> None:
            bars.advance(bar)
            for line in lines:
                console.print(line)

        yield show
