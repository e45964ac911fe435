"""The tasks of `convert` and of the commands of tools: which files are read, and where results are written."""

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import TypeAlias

import typer

from engine import FileFormat
from engine.registry import Registry
from web.cli.conversion_arguments import (
    AUTO_FORMAT,
    CHOSEN_LATER,
    Arguments,
    ConversionTask,
    SkippedFile,
    ToolArguments,
    UsageError,
)

_STANDARD_STREAM = Path("-")  # standard input as INPUT, standard output as OUTPUT
_Planned: TypeAlias = tuple[Path, Path | None, FileFormat]
"""An input, its output, None for standard output, and the format of the output."""


def make_tool_tasks(registry: Registry, arguments: ToolArguments, files: ExitStack) -> list[ConversionTask]:
    """Returns the tasks of a tool: one of all files, or one for each file if the tool takes one and OUTPUT is a folder.

    Makes that folder, and copies standard input as `make_tasks` does. Raises UsageError, and OSError for an input that
    cannot be read, or a folder that cannot be made.
    """
    tool = registry.tools[arguments.tool]
    output = arguments.output
    several = len(arguments.paths) > 1 and not tool.takes_several
    if not _is_folder(registry, output, ends_with_slash=arguments.folder, several=several):
        _check_output(None if output == _STANDARD_STREAM else output)
        return [_make_tool_task(registry, arguments, arguments.paths, output, files)]
    if tool.takes_several:
        raise UsageError(f"{output} is a folder; expected the name of the file that {tool.name} makes.")
    outputs = [
        output if tool.archive else output / path.with_suffix(f".{tool.target.extensions[0]}").name
        for path in arguments.paths
    ]
    planned: list[_Planned] = [(path, place, tool.target) for path, place in zip(arguments.paths, outputs, strict=True)]
    planned = planned if tool.archive else _with_different_outputs(planned)
    tasks = [_make_tool_task(registry, arguments, [path], place or output, files) for path, place, _ in planned]
    output.mkdir(parents=True, exist_ok=True)
    return tasks


def _is_folder(registry: Registry, output: Path, *, ends_with_slash: bool, several: bool) -> bool:
    """Whether the output is a folder, which may have to be made: it ends with a slash, or is for `several` results."""
    if output.exists() or output == _STANDARD_STREAM:
        return output.is_dir()
    return ends_with_slash or (several and registry.format(output.suffix[1:]) is None)


def _make_tool_task(
    registry: Registry, arguments: ToolArguments, paths: Sequence[Path], output: Path, files: ExitStack
) -> ConversionTask:
    target = registry.tools[arguments.tool].target
    destination = None if output == _STANDARD_STREAM else output
    for path in (*paths, *(path for _, path in arguments.files)):
        _check(path, destination)
    overwrite = _may_replace(destination) if arguments.overwrite is None else arguments.overwrite
    opened = [_open(path, None, files) for path in paths]
    _, label, name = opened[0]
    return ConversionTask(
        inputs=tuple(path for path, _, _ in opened),
        label=label,
        name=name,
        output=destination,
        target=target,
        overwrite=overwrite,
        tool=arguments.tool,
        files=arguments.files,
    )


def _may_replace(output: Path | None) -> bool | None:
    """The answer to the question whether to replace an existing file, asked at a terminal; None elsewhere."""
    if output is not None and output.is_file() and sys.stdin.isatty() and sys.stderr.isatty():
        return typer.confirm(f"{output} exists. Replace it?", err=True)
    return None


def _make_url_task(registry: Registry, arguments: Arguments, url: str) -> ConversionTask:
    """Returns the task of --url URL OUTPUT, whose input the server fetches. Raises UsageError."""
    _check_not_named(arguments)
    outputs = [*arguments.paths, *([] if arguments.output is None else [arguments.output])]
    if len(outputs) != 1 or arguments.source_format or len(arguments.to) > 1:
        raise UsageError("with --url, expected one OUTPUT; the server finds out the format of the file.")
    (output,) = outputs
    target = _format(registry, arguments.to[0]) if arguments.to else _target_of(registry, output)
    destination = None if output == _STANDARD_STREAM else output
    _check_output(destination)
    overwrite = _may_replace(destination) if arguments.overwrite is None else arguments.overwrite
    return ConversionTask((), label=url, name="", output=destination, target=target, overwrite=overwrite, url=url)


def make_tasks(
    registry: Registry, arguments: Arguments, files: ExitStack
) -> tuple[list[ConversionTask], list[SkippedFile]]:
    """Returns the tasks of INPUT... OUTPUT, or of INPUT... [OUTPUT] with output formats, and the skipped files.

    Without an output format, several inputs become one file, by a tool. Copies standard input to a temporary file,
    which `files` deletes. Asks at a terminal whether to replace the file OUTPUT. Raises UsageError, and OSError for an
    input that cannot be read.
    """
    if arguments.url is not None:
        return [_make_url_task(registry, arguments, arguments.url)], []
    skipped: list[SkippedFile] = []
    source_format = _format(registry, arguments.source_format) if arguments.source_format else None
    overwrite = arguments.overwrite
    if not arguments.to and not arguments.chosen_later:
        _check_not_named(arguments)
        task = _make_named_task(registry, arguments, source_format, files, skipped)
        return [task], skipped
    targets = [_format(registry, name) for name in dict.fromkeys(arguments.to)] or [CHOSEN_LATER]
    planned: list[_Planned] = [
        (path, output, target) for target in targets for path, output in _pairs(registry, arguments, target, skipped)
    ]
    if not arguments.chosen_later and arguments.filename is None and AUTO_FORMAT not in targets:
        planned = _with_different_outputs(planned)
    _check_planned(arguments, planned)
    if overwrite is None and arguments.output is not None and len(planned) == 1 and not arguments.numbered:
        overwrite = _may_replace(planned[0][1])
    opened = {path: _open(path, source_format, files) for path in dict.fromkeys(path for path, _, _ in planned)}
    tasks = []
    for path, output, target in planned:
        source, label, name = opened[path]
        names_result = arguments.filename is not None or target in (AUTO_FORMAT, CHOSEN_LATER)
        tasks.append(
            ConversionTask(
                inputs=(source,),
                label=label,
                name=name,
                output=output,
                target=target,
                overwrite=overwrite,
                source_format=source_format,
                named=names_result and output not in (None, arguments.output),
                numbered=arguments.numbered,
            )
        )
    return tasks, list(dict.fromkeys(skipped))


def _make_named_task(
    registry: Registry,
    arguments: Arguments,
    source_format: FileFormat | None,
    files: ExitStack,
    skipped: list[SkippedFile],
) -> ConversionTask:
    """The task of INPUT... OUTPUT, whose extension is the output format. A tool makes one file of several."""
    *paths, output = [*arguments.paths, *([] if arguments.output is None else [arguments.output])]
    if not paths or output.is_dir() or arguments.folder:
        raise UsageError("expected INPUT and OUTPUT; use --to FORMAT to convert into a folder.")
    target = _target_of(registry, output)
    tool = None
    found = [
        file for path in paths for file in expand(registry, path, None, skipped, output, recursive=arguments.recursive)
    ]
    _check_output(output)
    for path in found:
        _check(path, output)
    if len(found) > 1 or any(path.is_dir() for path in paths):
        tool = _joining_tool(registry, found, target)
    overwrite = arguments.overwrite
    if overwrite is None and not arguments.numbered:
        overwrite = _may_replace(output)
    opened = [_open(path, source_format, files) for path in found]
    label, name = opened[0][1:] if len(opened) == 1 else (f"{len(opened)} files", output.name)
    return ConversionTask(
        inputs=tuple(path for path, _, _ in opened),
        label=label,
        name=name,
        output=output,
        target=target,
        overwrite=overwrite,
        source_format=source_format,
        tool=tool,
        numbered=arguments.numbered,
    )


def _with_different_outputs(planned: Sequence[_Planned]) -> list[_Planned]:
    """The plans; of those with the same output, all but the first have a number: photo.webp, photo_2.webp."""
    taken = {output for _, output, _ in planned}
    numbers: dict[Path, Iterator[int]] = {}
    found: list[_Planned] = []
    for path, output, target in planned:
        place = output
        if output in numbers:
            names = (output.with_stem(f"{output.stem}_{number}") for number in numbers[output])
            place = next(name for name in names if name not in taken)
        elif output is not None:
            numbers[output] = count(2)
        found.append((path, place, target))
    return found


def _check_planned(arguments: Arguments, planned: Sequence[_Planned]) -> None:
    """Raises UsageError for an input or output that cannot be used, and if two results would have the same name."""
    for path, output, _ in planned:
        _check(path, output)
    _check_different([output for _, output, _ in planned])
    if any(output in (None, arguments.output) for _, output, _ in planned):
        _check_not_named(arguments)
    if arguments.filename is not None and len(planned) > 1 and "{name}" not in arguments.filename:
        raise UsageError("--filename needs {name}, so that the results of several inputs have different names.")


def _check_not_named(arguments: Arguments) -> None:
    """Raises UsageError if an option names a result whose output is not a folder."""
    if arguments.filename is not None:
        raise UsageError("--filename names the files in a folder; use it with --to FORMAT.")


def _joining_tool(registry: Registry, paths: Sequence[Path], target: FileFormat) -> str:
    """The tool that makes one file of several: of those that take them, the one for the fewest formats."""
    formats = {registry.identify(path) for path in paths if path != _STANDARD_STREAM}
    tools = [
        tool
        for tool in registry.tools.values()
        if tool.takes_several and tool.target == target and not tool.archive and formats <= {*tool.accepted}
    ]
    if not tools:
        raise UsageError(
            f"no tool makes one {target} of these files; to convert each, use --to {target} and a folder as OUTPUT."
        )
    return min(tools, key=lambda tool: len(tool.accepted)).name


def _check_different(outputs: Sequence[Path | None]) -> None:
    """Raises UsageError if two outputs are the same."""
    if len(counts := Counter(outputs)) < len(outputs):
        raise UsageError(f"two inputs have the output file {counts.most_common(1)[0][0]}.")


def _open(path: Path, source_format: FileFormat | None, files: ExitStack) -> tuple[Path, str, str]:
    """The input, its label and its name."""
    name = path.name
    label = str(path)
    if path == _STANDARD_STREAM:
        name = "stdin"
        label = "standard input"
        path = _copy_standard_input(files)
    if source_format is not None:
        name = f"{Path(name).stem}.{source_format.extensions[0]}"
    return path, label, name


def _format(registry: Registry, name: str) -> FileFormat:
    found = AUTO_FORMAT if name.lower() == AUTO_FORMAT.name else registry.format(name)
    if found is None:
        raise UsageError(f"{name} is not a known format; see 'convertd formats'.")
    return found


def _target_of(registry: Registry, output: Path) -> FileFormat:
    """The format of an output, by its extension."""
    if output == _STANDARD_STREAM:
        raise UsageError("the format of standard output is unknown; use --to FORMAT.")
    if output.suffix.lower() == ".zip":
        raise UsageError(f"{output} can hold files of any format; use --to FORMAT -o {output}.")
    target = registry.format(output.suffix[1:])
    if target is None:
        raise UsageError(f"{output} does not have the extension of a known format; see 'convertd formats'.")
    return target


def _pairs(
    registry: Registry, arguments: Arguments, target: FileFormat, skipped: list[SkippedFile]
) -> Iterator[tuple[Path, Path | None]]:
    """The inputs and outputs of a command with --to. The inputs of a folder are its files."""
    paths = [*arguments.paths]
    output = arguments.output
    if output is None and paths[1:] and (arguments.folder or paths[-1].is_dir() or paths[-1] == _STANDARD_STREAM):
        output = paths.pop()
    elif output is None and paths == [_STANDARD_STREAM]:
        output = _STANDARD_STREAM
    several = len(paths) > 1 or paths[0].is_dir() or len(arguments.to) > 1
    if output == _STANDARD_STREAM:
        if several:
            raise UsageError("only one INPUT can be converted to standard output.")
        _check_output(None)
        yield paths[0], None
        return
    if output is not None and not _is_folder(registry, output, ends_with_slash=arguments.folder, several=several):
        if several:
            raise UsageError(f"{output} is not a folder, and cannot hold several results.")
        _check_output(output)
        yield paths[0], output
        return
    for path in paths:
        changes = arguments.changes and output is not None and output.resolve() != path.resolve()
        found = expand(registry, path, target, skipped, output, recursive=arguments.recursive, changes=changes)
        for file in found:
            name = "stdin" if file == _STANDARD_STREAM else file.stem
            place = (
                file.parent if output is None else output / file.parent.relative_to(path) if path.is_dir() else output
            )
            yield file, place / f"{name}.{target.extensions[0]}"


def expand(
    registry: Registry,
    path: Path,
    target: FileFormat | None,
    skipped: list[SkippedFile],
    output: Path | None,
    *,
    recursive: bool,
    changes: bool = False,
) -> list[Path]:
    """The path, or the files of a folder that can be converted, sorted. Adds all others to `skipped`.

    Files of the target format are converted if options make `changes`. Leaves out hidden files, and the folder
    `output`. Raises UsageError if a folder has no such file.
    """
    if not path.is_dir():
        return [path]
    found: list[Path] = []
    for one in sorted(path.iterdir()):
        if one.name.startswith(".") or (output is not None and _is_same(one, output)):
            continue
        if one.is_dir() and recursive and not one.is_symlink():
            with suppress(UsageError):  # other folders may have files
                found += expand(registry, one, target, skipped, output, recursive=recursive, changes=changes)
        elif (reason := _reason_to_skip(registry, one, target, changes)) is None:
            found.append(one)
        else:
            skipped.append(SkippedFile(one, reason))
    if not found:
        raise UsageError(f"{path} has no files to convert: none has the extension of another readable format.")
    return found


def _reason_to_skip(registry: Registry, path: Path, target: FileFormat | None, changes: bool) -> str | None:
    """Why a file of a folder is not converted to the format, if there is one; None if it is."""
    if path.is_dir():
        return "it is a folder; use -r to convert its files"
    if not path.is_file():
        return "it is not a regular file"
    fmt = registry.format(path.suffix[1:])
    if fmt is None or not (targets := registry.targets(fmt)):
        return "its extension is of no readable format"
    if fmt == target and not changes:
        return f"its format is {target} already"
    if target is not None and target.name in registry.formats and target not in targets:
        return f"{fmt} cannot be converted to {target}"
    return None


def _check(path: Path, output: Path | None) -> None:
    """Raises UsageError if there is no such input, or if the output is the same file."""
    if path != _STANDARD_STREAM and not path.is_file():
        raise UsageError(f"{path} is not a file or folder." if not path.exists() else f"{path} is not a regular file.")
    if output is not None and _is_same(path, output):
        raise UsageError(f"the output would overwrite the input {path}.")


def _is_same(path: Path, other: Path) -> bool:
    """Whether two paths are the same file. False if one is missing, such as a file that has just been renamed."""
    with suppress(OSError):
        return path.samefile(other)
    return False


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
