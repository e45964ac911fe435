"""The `convert` command: converts files in worker processes of this machine, or on a server with `--remote`."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import Progress

from config.settings import Settings
from engine import ConversionError, FileFormat, OptionValues
from engine.executor import Executor, Job, JobResult
from engine.pipeline import WarningRecord
from engine.planner import Plan
from engine.registry import Registry, load_registry
from web.cli_output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit, print_message
from web.executor_setup import SandboxIncomplete, check_sandbox, local_executor

if TYPE_CHECKING:
    from web.client import AsyncClient

_ACCOUNT = "command"  # all files of a command belong to one user
_MAX_REQUESTS = 2  # concurrent requests; more would only wait in the server's queue


class UsageError(ValueError):
    """Invalid arguments; `str(error)` explains how to correct them."""


@dataclass(frozen=True)
class ConversionTask:
    """A file to convert, its output file, and the output format."""

    input: Path
    output: Path
    target: FileFormat


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task: `result` if it succeeded, else `error`. `plan` is known for local conversions only."""

    task: ConversionTask
    plan: Plan | None = None
    result: JobResult | None = None
    error: ConversionError | None = None


def run(paths: Sequence[Path], to: str | None, quality: int | None, server: str | None, *, explain: bool) -> None:
    """Runs the command. Exits with FAILED if a conversion fails, with WRONG_USAGE for invalid arguments."""
    registry = load_registry()
    try:
        tasks = parse_tasks(registry, paths, to)
        options = registry.validate({"quality": quality})
        if server is None:
            results = convert_locally(registry, tasks, options, load_settings_or_exit())
            work = _report(results, len(tasks), explain=explain)
        elif explain:
            raise UsageError("--explain cannot be used with --remote.")
        else:
            work = _run_remotely(_open_client(server), tasks, options)
    except (ValueError, ConversionError) as error:
        exit_with(str(error), WRONG_USAGE)
    try:
        failures = asyncio.run(work)
    except SandboxIncomplete as error:
        exit_with(str(error), FAILED)
    if failures:
        raise typer.Exit(FAILED)


def parse_tasks(registry: Registry, paths: Sequence[Path], to: str | None) -> list[ConversionTask]:
    """Returns the tasks of INPUT OUTPUT, or of INPUT... [FOLDER] with an output format. Raises UsageError."""
    if to is None:
        *inputs, output = paths
        if len(inputs) != 1 or output.is_dir():
            raise UsageError("expected one INPUT and one OUTPUT; use --to FORMAT to convert several files.")
        target = registry.format(output.suffix[1:])
        if target is None:
            raise UsageError(f"{output} does not have the extension of a known format; see 'convertd formats'.")
        return [_make_task(inputs[0], output, target)]
    target = registry.format(to)
    if target is None:
        raise UsageError(f"{to} is not a known format; see 'convertd formats'.")
    folder = paths[-1] if paths[-1].is_dir() else None
    inputs = list(paths[:-1] if folder else paths)
    if not inputs:
        raise UsageError("expected at least one INPUT.")
    extension = target.extensions[0]
    tasks = [_make_task(path, (folder or path.parent) / f"{path.stem}.{extension}", target) for path in inputs]
    if len({task.output for task in tasks}) < len(tasks):
        raise UsageError("two inputs have the same output file.")
    return tasks


def _make_task(path: Path, output: Path, target: FileFormat) -> ConversionTask:
    if not path.is_file():
        raise UsageError(f"{path} is not a file.")
    if not output.parent.is_dir():
        raise UsageError(f"{output.parent} is not a folder.")
    if output.exists() and output.samefile(path):
        raise UsageError(f"the output would overwrite the input {path}.")
    return ConversionTask(path, output, target)


async def convert_locally(
    registry: Registry, tasks: Sequence[ConversionTask], options: OptionValues, settings: Settings
) -> AsyncIterator[TaskResult]:
    """Yields results in order of completion. Raises SandboxIncomplete before the first."""
    executor = local_executor(settings, min(settings.workers, len(tasks)))
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        for result in asyncio.as_completed([_convert_locally(registry, executor, task, options) for task in tasks]):
            yield await result
    finally:
        await executor.close()


async def _convert_locally(
    registry: Registry, executor: Executor, task: ConversionTask, options: OptionValues
) -> TaskResult:
    try:
        with task.input.open("rb") as source, _replacement(task.output) as output:
            format = registry.identify_descriptor(source.fileno(), task.input.name)
            plan = registry.plan([format], task.target, options=options)
            result = await executor.run(Job.of(plan, options), _ACCOUNT, [source.fileno()], output)
    except ConversionError as error:
        return TaskResult(task, error=error)
    return TaskResult(task, plan, result)


@contextmanager
def _replacement(path: Path) -> Iterator[int]:
    """The descriptor of a new file, which replaces the one at `path` after the block and is deleted after an error."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".convertd-", delete=False) as file:
        try:
            yield file.fileno()
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _open_client(server: str) -> AsyncClient:
    """Returns a client of the server. Raises ValueError for an invalid URL or API key."""
    from web.client import AsyncClient  # noqa: PLC0415, local conversions do not need httpx

    if not os.environ.get("CONVERTD_API_KEY"):
        raise UsageError("set CONVERTD_API_KEY to your API key for the server.")
    return AsyncClient(server)


async def _run_remotely(client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues) -> int:
    """Converts on the server, prints the results and the remaining credits. Returns the number of failures."""
    from web.client import ConvertdError  # noqa: PLC0415, as above

    async with client:
        failures = await _report(_convert_remotely(client, tasks, options), len(tasks), explain=False)
        if failures < len(tasks):
            with suppress(ConvertdError):
                # Not earlier: while conversions run, credits are reserved for them.
                print_message(f"{(await client.account()).credits_remaining} credits remain.")
    return failures


async def _convert_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[TaskResult]:
    """Yields results in order of completion."""
    from web.client import ConvertdError  # noqa: PLC0415, as above

    slots, quality = asyncio.Semaphore(_MAX_REQUESTS), options.get("quality")

    async def convert(task: ConversionTask) -> TaskResult:
        async with slots:
            try:
                converted = await client.convert(
                    task.input, task.target.name, to=task.output, quality=quality if isinstance(quality, int) else None
                )
            except ConvertdError as error:
                return TaskResult(task, error=ConversionError(error.message, reason=error.reason))
        warnings = tuple(WarningRecord(warning.code, warning.message) for warning in converted.warnings)
        return TaskResult(task, result=JobResult(converted.processed_size, (), warnings))

    for result in asyncio.as_completed([convert(task) for task in tasks]):
        yield await result


async def _report(results: AsyncIterator[TaskResult], total: int, *, explain: bool) -> int:
    """Prints progress, warnings and errors. Returns the number of failures."""
    failures = 0
    console = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with Progress(console=console, transient=True, disable=total == 1) as progress:
        bar = progress.add_task("converting", total=total)
        async for result in results:
            progress.advance(bar)
            failures += result.error is not None
            for line in _describe(result, explain=explain):
                console.print(line)
    return failures


def _describe(task_result: TaskResult, *, explain: bool) -> list[str]:
    """The lines to print for a task."""
    name, result, error = task_result.task.input, task_result.result, task_result.error
    if error is not None:
        reason = f" ({error.reason})" if error.reason else ""
        return [f"{name}: {error}{reason}"]
    assert result is not None  # set unless `error` is set
    lines = [f"{name}: {warning.message} ({warning.code})" for warning in result.warnings]
    if explain:
        lines.append(f"{name}: {task_result.plan}, {result.size} bytes")
        lines += [f"  {timing.step}: {timing.seconds * 1000:.1f} ms" for timing in result.trace]
    return lines
