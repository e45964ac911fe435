"""`convertd watch`: converts the files that arrive in a folder, each when it is complete, until it is stopped.

A file in the output folder lists what has been converted, for the next start, whenever this one is stopped.
"""

import fcntl
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from engine.registry import load_registry
from web.cli import conversion
from web.cli.conversion_arguments import Arguments, SkippedFile, UsageError
from web.cli.output import FAILED, WRONG_USAGE, exit_with, print_message
from web.cli.results import CommandResult
from web.cli.tasks import expand

_PERIOD = 1.0  # seconds between two looks; a file that is the same at both, and that nobody writes, is complete
_LIST = ".convertd-watch"


def run(arguments: Arguments, given: Mapping[str, object], mode: conversion.Mode) -> None:
    """Converts what is in the first path and what arrives there, into the second one, until SIGINT or SIGTERM."""
    paths = [*arguments.paths, *([] if arguments.output is None else [arguments.output])]
    if len(paths) != 2 or not paths[0].is_dir() or len(arguments.to) != 1 or mode.submit or mode.dry_run:
        exit_with("expected: convertd watch FOLDER OUTPUT --to FORMAT, where OUTPUT is another folder.", WRONG_USAGE)
    folder, output = paths
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # as for conversions
    try:
        output.mkdir(parents=True, exist_ok=True)
        if output.samefile(folder):
            exit_with(f"{output} is the folder of the inputs; expected another one for the results.", WRONG_USAGE)
        print_message(f"watching {folder}; Ctrl+C ends it.")
        _watch(folder, output, replace(arguments, folder=True), given, mode)
    except OSError as error:
        exit_with(f"cannot use {error.filename}: {error.strerror}", FAILED)
    except KeyboardInterrupt:
        print_message("stopped.")


def _watch(
    folder: Path, output: Path, arguments: Arguments, given: Mapping[str, object], mode: conversion.Mode
) -> None:
    journal = output / _LIST
    lines = journal.read_text(errors="surrogateescape").split("\0") if journal.exists() else []
    converted, tried, before = {*lines}, set[str](), set[str]()
    entries: dict[Path, str] = {}
    reported = set[SkippedFile]()

    def record(result: CommandResult) -> None:
        if result.error is None:
            with journal.open("a", errors="surrogateescape") as file:
                file.write(entries[result.task.inputs[0]] + "\0")

    mode = replace(mode, display=replace(mode.display, on_result=record))
    while True:
        folder.stat()  # raises OSError once the folder has been removed
        skipped: list[SkippedFile] = []
        entries = {path: _entry(path, folder, arguments) for path in _files(folder, output, arguments, skipped)}
        for one in {*skipped} - reported:
            print_message(f"{one.path} is skipped: {one.reason}")
        reported |= {*skipped}
        places: dict[Path, list[Path]] = {}
        for path, entry in entries.items():
            if entry in before - converted - tried and not _is_open_for_writing(path):
                places.setdefault(output / path.parent.relative_to(folder), []).append(path)
        before = {*entries.values()}
        for place, files in places.items():
            try:
                conversion.convert(replace(arguments, paths=files, output=place), given, mode)
                tried |= {entries[path] for path in files}
            except typer.Exit:
                if all(path.exists() for path in files):
                    raise  # an argument is invalid
        time.sleep(_PERIOD)


def _files(folder: Path, output: Path, arguments: Arguments, skipped: list[SkippedFile]) -> list[Path]:
    registry, recursive, changes = load_registry(), arguments.recursive, arguments.changes
    try:
        target = registry.format(arguments.to[0])
        return expand(registry, folder, target, skipped, output, recursive=recursive, changes=changes)
    except UsageError:
        return []


def _entry(path: Path, folder: Path, arguments: Arguments) -> str:
    """The line of a file in the list: its size, its last change, its name and the output format."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return f"{found.st_size} {found.st_mtime_ns} {path.relative_to(folder)} {arguments.to[0]}"
    return ""


def _is_open_for_writing(path: Path) -> bool:
    """Whether a process still writes the file. False where the system does not tell."""
    with suppress(OSError), path.open("rb") as file:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return True
    return False
