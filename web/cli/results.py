"""Results of the tasks of a command: writes them to their outputs, describes them, and sums them up."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from stat import S_IMODE
from typing import Any
from zipfile import ZipFile

from engine import ConversionError
from engine.outcome import Outcome
from web.cli.conversion_arguments import ConversionTask, SkippedFile
from web.cli.output import describe_change, print_message, progress


@dataclass(frozen=True)
class Failure:
    """Why a task failed. The code is one of the API, or `file_error` if a file cannot be read or written."""

    message: str
    code: str = "file_error"
    reason: str | None = None

    def __str__(self) -> str:
        return f"{self.message} ({self.reason})" if self.reason else self.message


@dataclass(frozen=True)
class Explanation:
    """What a conversion would do: its formats, steps, losses, and all options with their values."""

    input_format: str
    steps: Sequence[str]
    losses: Sequence[str]
    options: Mapping[str, Any]
    given: frozenset[str]


@dataclass(frozen=True)
class CommandResult:
    """The result of a task: its outcome, its outputs and the size of its inputs in bytes; or `error`, or `skipped`.

    A dry run has the outcome that is foreseen, and an explanation.
    """

    task: ConversionTask
    outcome: Outcome | None = None
    outputs: tuple[str, ...] = ()
    original_size: int = 0
    error: Failure | None = None
    skipped: str | None = None
    explanation: Explanation | None = None

    @property
    def status(self) -> str:
        """`converted`, `failed` or `skipped`; `inspected` after a dry run."""
        if self.explanation is not None:
            return "inspected"
        return "failed" if self.error else "skipped" if self.skipped else "converted"

    def as_json(self) -> dict[str, Any]:
        """The result as JSON values."""
        values: dict[str, Any] = {"input": self.task.label, "status": self.status}
        if self.error is not None:
            return {**values, "error": vars(self.error)}
        if self.skipped is not None:
            return {**values, "reason": self.skipped}
        assert self.outcome is not None  # set unless `error` or `skipped` is set
        facts: dict[str, Any] = {
            name: getattr(self.outcome, name) for name in ("output_format", "width", "height", "pages", "file_count")
        }
        facts["warnings"] = [vars(warning) for warning in self.outcome.warnings]
        if self.explanation is not None:
            explained = self.explanation
            facts |= {"input_format": explained.input_format, "path": [*explained.steps], "losses": [*explained.losses]}
            return {**values, **facts, "options": dict(explained.options)}
        sizes = {"original_size": self.original_size, "processed_size": self.outcome.processed_size}
        return {**values, **facts, **sizes, "outputs": [*self.outputs]}


def failure(task: ConversionTask, error: ConversionError | OSError) -> CommandResult:
    """The result of a task that failed here."""
    if isinstance(error, ConversionError):
        return CommandResult(task, error=Failure(str(error), error.code, error.reason))
    if error.filename in map(str, task.inputs):
        return CommandResult(task, error=Failure(f"cannot read the file: {error.strerror}"))
    return CommandResult(task, error=Failure(f"cannot write {task.output or 'standard output'}: {error.strerror}"))


def refusal(task: ConversionTask, *outputs: Path | None) -> CommandResult | None:
    """The result of a task one of whose outputs exists and must not be replaced; None if all may be written."""
    existing = [one for one in outputs if one is not None and os.path.lexists(one) and not _is_stream(one)]
    if task.overwrite or not existing:
        return None
    if task.overwrite is None:
        return CommandResult(task, error=Failure(f"{existing[0]} exists; use -y to replace it or -n to keep it"))
    return CommandResult(task, skipped=f"{existing[0]} exists and is kept")


@contextmanager
def temporary_path(output: Path | None) -> Iterator[Path]:
    """The path of a new file for the result, which is deleted after the block unless it has been renamed.

    A file that is created there has the mode that the umask allows. Its folder is made if needed.
    """
    folder = Path(tempfile.gettempdir()) if output is None or _is_stream(output) else _destination(output).parent
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".convertd-{os.urandom(8).hex()}.zip"  # the client adds this suffix to paths of archives
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def publish(task: ConversionTask, path: Path, outcome: Outcome, original_size: int) -> CommandResult:
    """Renames the complete result to the task's output, or copies it to standard output. Raises OSError.

    The files of an archive are written one by one, unless the output is an archive, too.
    """
    if task.output is None:
        with path.open("rb") as file, os.fdopen(os.dup(1), "wb") as standard_output:
            shutil.copyfileobj(file, standard_output)
        return CommandResult(task, outcome, ("standard output",), original_size)
    if task.named:  # a server chooses the names
        place = task.output.parent
        output = place if outcome.container else place / Path(outcome.filename).name
        return publish(replace(task, output=output, named=False), path, outcome, original_size)
    if outcome.container and not task.archive:
        with ZipFile(path) as archive:
            has_folders = any("/" in name for name in archive.namelist())
        if has_folders:  # whose files the others name
            return publish(replace(task, output=task.output.with_suffix(".zip")), path, outcome, original_size)
        return _unpack(task, task.output, path, outcome, original_size)
    if (refused := refusal(task, task.output)) is not None:
        return refused
    if task.archive and not outcome.container:
        with temporary_path(task.output) as packed:
            with ZipFile(packed, "x") as archive:
                archive.write(path, f"{task.output.stem}.{task.target.extensions[0]}")
            _move(packed, task.output)
    else:
        _move(path, task.output)
    return CommandResult(task, outcome, (str(task.output),), original_size)


def _unpack(task: ConversionTask, output: Path, path: Path, outcome: Outcome, original_size: int) -> CommandResult:
    """Writes the files of an archive next to the output, or into it if it is a folder; all of them, or none."""
    place = output if output.is_dir() else output.parent
    with ZipFile(path) as archive, tempfile.TemporaryDirectory(dir=place, prefix=".convertd-") as folder:
        files: list[tuple[Path, Path]] = []
        for number, entry in enumerate(archive.namelist()):
            name = Path(entry).name  # a server chooses the names
            if not output.is_dir():
                base = Path(task.name).stem
                name = output.stem + (name.removeprefix(base) if name.startswith(base) else f"-{name}")
            files.append((Path(folder, str(number)), place / name))
            with archive.open(entry) as source, files[-1][0].open("xb") as file:
                shutil.copyfileobj(source, file)
        if (refused := refusal(task, *(target for _, target in files))) is not None:
            return refused
        for unpacked, target in files:
            _move(unpacked, target)
    return CommandResult(task, outcome, tuple(str(target) for _, target in files), original_size)


def _move(path: Path, output: Path) -> None:
    """Renames a file to the output. If the output is a symbolic link, the file that it leads to is replaced.

    A replaced file keeps its mode. Raises OSError.
    """
    if _is_stream(output):
        with path.open("rb") as file, output.open("wb") as stream:
            shutil.copyfileobj(file, stream)
        return
    destination = _destination(output)
    with suppress(FileNotFoundError):
        path.chmod(S_IMODE(destination.stat().st_mode))
    path.replace(destination)


def _destination(output: Path) -> Path:
    """The path that a symbolic link leads to; the output itself if it is no link."""
    return Path(os.path.realpath(output)) if output.is_symlink() else output


def _is_stream(output: Path) -> bool:
    """Whether the output is a device or a pipe, which is written to and never replaced."""
    return output.is_char_device() or output.is_fifo()


@dataclass(frozen=True)
class Display:
    """How much a command prints: `quiet`, only errors; `verbose`, a line for each file; or one JSON document.

    `on_result` is called with each result before it is described.
    """

    quiet: bool = False
    verbose: bool = False
    as_json: bool = False
    on_result: Callable[[CommandResult], None] = lambda _: None


async def report(
    results: AsyncIterator[CommandResult], total: int, skipped: Sequence[SkippedFile], display: Display
) -> list[CommandResult]:
    """Prints skipped files, progress, warnings and errors. Returns all results.

    Of several files, those with the same warning share a line, after all others.
    """
    done: list[CommandResult] = []
    hidden = display.quiet or display.as_json
    in_full = total == 1 or display.verbose
    for file in () if hidden else skipped:
        print(f"{file.path}: skipped, {file.reason}", file=sys.stderr)
    with progress(total, hidden=hidden) as show:
        async for result in results:
            done.append(result)
            display.on_result(result)
            show([] if display.as_json else describe(result, display, in_full=in_full))
    if not hidden and not in_full:
        _print_warnings(done)
    return done


def _print_warnings(results: Sequence[CommandResult]) -> None:
    """Prints a line for each warning, with the first of its files and the number of the others."""
    files: dict[str, list[str]] = {}
    for result in results:
        for warning in result.outcome.warnings if result.outcome is not None else ():
            files.setdefault(f"{warning.message} ({warning.code})", []).append(result.task.label)
    for text, (name, *others) in ((text, sorted(names)) for text, names in files.items()):
        print(name + (f" and {len(others)} more" if others else ""), text, sep=": ", file=sys.stderr)


def describe(result: CommandResult, display: Display, *, in_full: bool) -> list[str]:
    """The lines to print for a task; `in_full`, with its warnings, and the defaults of options if it is a dry run."""
    name = result.task.label
    outcome = result.outcome
    if result.error is not None:
        return [f"{name}: {result.error}"]
    if display.quiet:
        return []
    if result.skipped is not None:
        return [f"{name}: {result.skipped}"]
    assert outcome is not None  # set unless `error` or `skipped` is set
    lines = [f"{name}: {warning.message} ({warning.code})" for warning in outcome.warnings if in_full]
    if result.explanation is not None:
        explained = _explain(result.explanation, outcome, with_defaults=in_full)
        return [*lines, *(f"{name}: {line}" for line in explained)]
    if len(result.outputs) > 1:
        lines.append(f"{name}: {len(result.outputs)} files, {result.outputs[0]} to {result.outputs[-1]}")
    elif outcome.container and outcome.file_count > 1:
        lines.append(f"{name}: {outcome.file_count} files in {result.outputs[0]}")
    if display.verbose and len(result.outputs) > 1:
        lines += [f"{name}: {path}, {Path(path).stat().st_size:,} bytes" for path in result.outputs]
    elif display.verbose and result.outputs:
        change = describe_change(result.original_size, outcome.processed_size)
        lines.append(f"{name}: {result.outputs[0]}, {outcome.processed_size:,} bytes ({change})")
    return lines


def _explain(explanation: Explanation, outcome: Outcome, *, with_defaults: bool) -> list[str]:
    facts = [f"{explanation.input_format} to {outcome.output_format}"]
    facts += [f"{outcome.width} x {outcome.height} pixels"] if outcome.width is not None else []
    facts += [f"{outcome.pages} pages"] if (outcome.pages or 1) > 1 else []
    facts += [f"{outcome.file_count} files"] if outcome.container else []
    steps = ", ".join(explanation.steps)
    losses = ", ".join(explanation.losses) or "nothing"
    lines = [", ".join(facts), f"steps: {steps}", f"loses {losses}"]
    for name, value in explanation.options.items():
        if with_defaults or name in explanation.given:
            lines.append(f"  {name}: {json.dumps(value)}{'' if name in explanation.given else ' (default)'}")
    return lines


def summarize(results: Sequence[CommandResult], skipped: Sequence[SkippedFile], display: Display) -> None:
    """Prints the results of all files: as JSON on standard output, or their numbers in a line if there are several."""
    counts = Counter(result.status for result in results)
    counts["skipped"] += len(skipped)
    converted = [result for result in results if result.outcome is not None and result.explanation is None]
    before = sum(result.original_size for result in converted)
    after = sum(result.outcome.processed_size for result in converted if result.outcome is not None)
    if display.as_json:
        files = [result.as_json() for result in results]
        files += [{"input": str(file.path), "status": "skipped", "reason": file.reason} for file in skipped]
        totals = {status: counts[status] for status in ("converted", "skipped", "failed")}
        print(json.dumps({**totals, "bytes_saved": before - after, "files": files}, indent=2), file=sys.stdout)
    elif counts.total() > 1 and not display.quiet and not counts["inspected"]:
        change = f"; {describe_change(before, after)}" if before else ""
        print_message(", ".join(f"{counts[status]} {status}" for status in ("converted", "skipped", "failed")) + change)
