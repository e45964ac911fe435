"""`convertd watch`: converts the files that arrive in a folder, each when it is complete, until it is stopped.

A file in the output folder lists what has been converted, so that a file is neither left out nor converted again by the
next start, whenever this one is stopped.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import typer

from engine.registry import Registry, load_registry
from web.cli import conversion
from web.cli.conversion_arguments import Arguments, SkippedFile, UsageError
from web.cli.output import FAILED, WRONG_USAGE, exit_with, print_message
from web.cli.results import CommandResult
from web.cli.tasks import expand

PERIOD = 1.0
"""Seconds between two looks at the folder. A file that is the same at both is complete."""

_LIST = ".convertd-watch"


def run(arguments: Arguments, given: Mapping[str, object], mode: conversion.Mode) -> None:
    """Converts what is in the first path and what arrives there, into the second one, until SIGINT or SIGTERM."""
    paths = [*arguments.paths, *([] if arguments.output is None else [arguments.output])]
    if len(paths) != 2 or not paths[0].is_dir() or len(arguments.to) != 1 or mode.submit or mode.dry_run:
        exit_with("expected: convertd watch FOLDER OUTPUT --to FORMAT, where OUTPUT is another folder.", WRONG_USAGE)
    folder, output = paths
    for number, handler in ((signal.SIGTERM, signal.default_int_handler), (signal.SIGIO, signal.SIG_IGN)):
        signal.signal(number, handler)
    try:
        output.mkdir(parents=True, exist_ok=True)
        if output.samefile(folder):
            exit_with(f"{output} is the folder of the inputs; expected another one for the results.", WRONG_USAGE)
        watched = _Folder(load_registry(), replace(arguments, paths=[folder], output=output, folder=True))
        print_message(f"watching {folder}; Ctrl+C ends it.")
        while True:
            for place, files in watched.take_complete().items():
                chosen = replace(watched.arguments, paths=files, output=place)
                display = replace(mode.display, on_result=watched.record)
                try:
                    conversion.convert(chosen, given, replace(mode, display=display))
                except typer.Exit:
                    if all(path.exists() for path in files):
                        raise  # an argument is invalid
                    watched.retry(files)
            time.sleep(PERIOD)
    except OSError as error:
        exit_with(f"cannot use {error.filename}: {error.strerror}", FAILED)
    except KeyboardInterrupt:
        print_message("stopped.")


class _Folder:
    """The files of the first path, and which of them have been converted."""

    def __init__(self, registry: Registry, arguments: Arguments) -> None:
        self.arguments = arguments
        self._registry = registry
        (self._path,), self._output = arguments.paths, arguments.output or Path()
        self._list = self._output / _LIST
        self._seen: dict[Path, str] = {}
        self._tried: dict[Path, str] = {}
        self._skipped = set[SkippedFile]()
        self._converted: dict[str, str] = {}
        with suppress(FileNotFoundError):
            states = (line.split(" ", 2) for line in self._list.read_text(errors="surrogateescape").split("\0") if line)
            self._converted = {name: f"{size} {changed}" for size, changed, name in states}

    def take_complete(self) -> dict[Path, list[Path]]:
        """The files that are to be converted now, by the folders of their results."""
        before, self._seen = self._seen, {path: _state(path) for path in self._files()}
        found: dict[Path, list[Path]] = {}
        for path, state in self._seen.items():
            known = (self._tried.get(path), self._converted.get(self._name(path)))
            if before.get(path) == state and state not in known and not _is_open_for_writing(path):
                self._tried[path] = state
                found.setdefault(self._output / path.parent.relative_to(self._path), []).append(path)
        return found

    def retry(self, files: Iterable[Path]) -> None:
        """Has files that have not been tried, because others are gone, taken again."""
        for path in files:
            self._tried.pop(path, None)

    def record(self, result: CommandResult) -> None:
        """Notes a file as converted, with the size and time that it had before. The next start tries others again."""
        (path,) = result.task.inputs
        if result.error is None:
            with self._list.open("a", errors="surrogateescape") as file:
                file.write(f"{self._tried[path]} {self._name(path)}\0")

    def _name(self, path: Path) -> str:
        """What the list calls a file that is converted to the output format."""
        return f"{self.arguments.to[0]} {path.relative_to(self._path)}"

    def _files(self) -> Iterable[Path]:
        arguments = self.arguments
        target = self._registry.format(arguments.to[0])
        options = {"recursive": arguments.recursive, "changes": arguments.changes}
        skipped: list[SkippedFile] = []
        try:
            return expand(self._registry, self._path, target, skipped, self._output, **options)
        except UsageError:
            return ()
        finally:
            for one in {*skipped} - self._skipped:
                print_message(f"{one.path} is skipped: {one.reason}")
            self._skipped |= {*skipped}


def _state(path: Path) -> str:
    """The size and the time of the last change of a file; empty if it is gone."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return f"{found.st_size} {found.st_mtime_ns}"
    return ""


def _is_open_for_writing(path: Path) -> bool:
    """Whether a process still writes the file. False where the system does not tell."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False
