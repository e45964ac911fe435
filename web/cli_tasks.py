"""The arguments of `convert` and of the commands of tools: which files are read, and where results are written."""

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import typer

from engine import FileFormat
from engine.registry import Registry

_STANDARD_STREAM = Path("-")  # standard input as INPUT, standard output as OUTPUT


class UsageError(ValueError):
    """Invalid arguments; `str(error)` explains how to correct them."""


@dataclass(frozen=True)
class Arguments:
    """The arguments, as given. `overwrite`: replace existing files, keep them, or None. `url`: of the only input."""

    paths: Sequence[Path]
    to: str | None
    source_format: str | None
    overwrite: bool | None
    url: str | None = None


@dataclass(frozen=True)
class ToolArguments:
    """The arguments of a tool, as given. `files` are its further files by name. `overwrite` is as in Arguments."""

    tool: str
    paths: Sequence[Path]
    output: Path
    overwrite: bool | None
    files: Mapping[str, Path]


@dataclass(frozen=True)
class ConversionTask:
    """A file to convert, the output format, and the output file, None for standard output.

    With a tool, `inputs` can be several files, and `files` are the tool's further files by name. `label` names the
    input in messages. The format of the first input is detected by its content and its filename `name`; it is
    `source_format` if the content is not recognized. `overwrite` is whether to replace an existing output; None: fail.
    """

    inputs: tuple[Path, ...]
    label: str
    name: str
    source_format: FileFormat | None
    output: Path | None
    target: FileFormat
    overwrite: bool | None
    tool: str | None = None
    files: Mapping[str, Path] = field(default_factory=dict)
    url: str | None = None


def make_tool_task(registry: Registry, arguments: ToolArguments, files: ExitStack) -> ConversionTask:
    """Returns the task of a tool. Copies standard input as `make_tasks` does. Raises UsageError and OSError."""
    target = registry.tools[arguments.tool].target
    output = None if arguments.output == _STANDARD_STREAM else arguments.output
    for path in (*arguments.paths, *arguments.files.values()):
        _check(path, output)
    overwrite = arguments.overwrite
    if overwrite is None and output is not None:
        overwrite = _may_replace(output)
    opened = [_open(path, None, files) for path in arguments.paths]
    inputs, (_, label, name) = tuple(path for path, _, _ in opened), opened[0]
    return ConversionTask(inputs, label, name, None, output, target, overwrite, arguments.tool, arguments.files)


def _may_replace(output: Path) -> bool | None:
    """The answer to the question whether to replace an existing file, asked at a terminal; None elsewhere."""
    if os.path.lexists(output) and sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(f"{output} exists. Replace it?", err=True)
    return None


def _make_url_task(registry: Registry, arguments: Arguments, url: str) -> ConversionTask:
    """Returns the task of --url URL OUTPUT, whose input the server fetches. Raises UsageError."""
    if len(arguments.paths) != 1 or arguments.source_format:
        raise UsageError("with --url, expected one OUTPUT; the server finds out the format of the file.")
    (output,) = arguments.paths
    target = _target_of(registry, output) if arguments.to is None else _format(registry, arguments.to)
    destination = None if output == _STANDARD_STREAM else output
    _check_output(destination)
    overwrite = arguments.overwrite
    if overwrite is None and destination is not None:
        overwrite = _may_replace(destination)
    return ConversionTask((), url, "", None, destination, target, overwrite, url=url)


def make_tasks(registry: Registry, arguments: Arguments, files: ExitStack) -> list[ConversionTask]:
    """Returns the tasks of INPUT OUTPUT, or of INPUT... [OUTPUT] with an output format.

    Copies standard input to a temporary file, which `files` deletes. Asks at a terminal whether to replace the file
    OUTPUT. Raises UsageError, and OSError for an input that cannot be read.
    """
    if arguments.url is not None:
        return [_make_url_task(registry, arguments, arguments.url)]
    source_format = _format(registry, arguments.source_format) if arguments.source_format else None
    overwrite = arguments.overwrite
    if arguments.to is None:
        path, output, target = _input_and_output(registry, arguments.paths)
        _check(path, output)
        if overwrite is None:
            overwrite = _may_replace(output)
        pairs: list[tuple[Path, Path | None]] = [(path, output)]
    else:
        target = _format(registry, arguments.to)
        pairs = list(_inputs_and_outputs(registry, arguments.paths, target))
        for pair in pairs:
            _check(*pair)
    outputs = Counter(output for _, output in pairs)
    if len(outputs) < len(pairs):
        raise UsageError(f"two inputs have the output file {outputs.most_common(1)[0][0]}.")
    opened = [(_open(path, source_format, files), output) for path, output in pairs]
    return [
        ConversionTask((path,), label, name, source_format, output, target, overwrite)
        for (path, label, name), output in opened
    ]


def _open(path: Path, source_format: FileFormat | None, files: ExitStack) -> tuple[Path, str, str]:
    """The input, its label and its name."""
    name, label = path.name, str(path)
    if path == _STANDARD_STREAM:
        name, label = "stdin", "standard input"
        path = _copy_standard_input(files)
    if source_format is not None:
        name = f"{Path(name).stem}.{source_format.extensions[0]}"
    return path, label, name


def _format(registry: Registry, name: str) -> FileFormat:
    found = registry.format(name)
    if found is None:
        raise UsageError(f"{name} is not a known format; see 'convertd formats'.")
    return found


def _input_and_output(registry: Registry, paths: Sequence[Path]) -> tuple[Path, Path, FileFormat]:
    """The input, the output and its format of a command without --to."""
    if len(paths) != 2 or any(path.is_dir() for path in paths):
        raise UsageError("expected one INPUT and one OUTPUT; use --to FORMAT to convert several files or a folder.")
    path, output = paths
    return path, output, _target_of(registry, output)


def _target_of(registry: Registry, output: Path) -> FileFormat:
    """The format of an output, by its extension."""
    if output == _STANDARD_STREAM:
        raise UsageError("the format of standard output is unknown; use --to FORMAT.")
    target = registry.format(output.suffix[1:])
    if target is None:
        raise UsageError(f"{output} does not have the extension of a known format; see 'convertd formats'.")
    return target


def _inputs_and_outputs(
    registry: Registry, paths: Sequence[Path], target: FileFormat
) -> Iterator[tuple[Path, Path | None]]:
    """The inputs and outputs of a command with --to. The inputs of a folder are its files."""
    *first, last = paths
    folder = last if first and last.is_dir() else None
    if last == _STANDARD_STREAM:
        (path, *others) = first or [last]
        if others or path.is_dir():
            raise UsageError("only one INPUT can be converted to standard output.")
        yield path, None
        return
    for path in first if folder else paths:
        for file in _files(registry, path, target) if path.is_dir() else [path]:
            stem = "stdin" if file == _STANDARD_STREAM else file.stem
            yield file, (folder or file.parent) / f"{stem}.{target.extensions[0]}"


def _files(registry: Registry, folder: Path, target: FileFormat) -> list[Path]:
    """The files of a folder that have the extension of another readable format, sorted. Leaves out subfolders."""
    files = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".") and path.is_file()]
    formats = {path: registry.format(path.suffix[1:]) for path in files}
    found = [path for path, fmt in formats.items() if fmt is not None and fmt != target and registry.targets(fmt)]
    if not found:
        raise UsageError(f"{folder} has no files to convert: none has the extension of another readable format.")
    return found


def _check(path: Path, output: Path | None) -> None:
    """Raises UsageError if there is no such input, no folder for the output, or if they are the same file."""
    if path != _STANDARD_STREAM and not path.is_file():
        raise UsageError(f"{path} is not a file or folder." if not path.exists() else f"{path} is not a regular file.")
    _check_output(output)
    if output is not None and path.exists() and output.exists() and output.samefile(path):
        raise UsageError(f"the output would overwrite the input {path}.")


def _check_output(output: Path | None) -> None:
    """Raises UsageError if there is no folder for the output."""
    if output is None and os.isatty(1):
        raise UsageError("standard output is a terminal; redirect it to a file or a program.")
    if output is not None and not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder.")


def _copy_standard_input(files: ExitStack) -> Path:
    """Copies standard input to a temporary file, because its size must be known before it is converted."""
    copy = files.enter_context(tempfile.NamedTemporaryFile(prefix="convertd-"))  # noqa: SIM115, `files` closes it
    shutil.copyfileobj(sys.stdin.buffer, copy)
    copy.flush()
    return Path(copy.name)
