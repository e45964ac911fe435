"""The `convert` command: converts files in worker processes of this machine, or on a server with `--remote`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from config.settings import Settings
from engine import ConversionError, FileFormat, OptionValues
from engine.executor import Executor, Job, JobResult
from engine.pipeline import WarningRecord
from engine.planner import Plan
from engine.registry import Registry, load_registry
from web.cli_output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit, print_message, progress
from web.executor_setup import SandboxIncomplete, check_sandbox, command_executor

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
    """The outcome of a task: `result` and the path of its `output` if it succeeded, else `error`."""

    task: ConversionTask
    result: JobResult | None = None
    output: Path | None = None
    error: ConversionError | None = None
    explanation: Sequence[str] = ()


def run(
    paths: Sequence[Path], to: str | None, given: Mapping[str, object], server: str | None, *, explain: bool
) -> None:
    """Runs the command with the given options, as text. Exits with FAILED if a conversion fails, with WRONG_USAGE for
    invalid arguments."""
    registry = load_registry()
    try:
        tasks = parse_tasks(registry, paths, to)
        options = registry.validate(given, from_text=True)
        if server is None:
            results = convert_locally(registry, tasks, options, load_settings_or_exit(), explain=explain)
            work = _report(results, len(tasks))
        elif explain:
            raise UsageError("--explain cannot be used with --remote.")
        else:
            work = _run_remotely(_open_client(server), tasks, options)
    except (ValueError, ConversionError) as error:
        exit_with(str(error), WRONG_USAGE)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes temporary files, as SIGINT does
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
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
    registry: Registry,
    tasks: Sequence[ConversionTask],
    options: OptionValues,
    settings: Settings,
    *,
    explain: bool = False,
) -> AsyncIterator[TaskResult]:
    """Yields results in order of completion. Raises SandboxIncomplete before the first conversion."""
    plans: list[tuple[ConversionTask, Plan]] = []
    for task in tasks:
        try:
            plan = _make_plan(registry, task, options)
        except ConversionError as error:
            yield TaskResult(task, error=error)
        else:
            plans.append((task, plan))
    if not plans:
        return
    modules = frozenset[str]().union(*(plan.modules for _, plan in plans))
    executor = command_executor(settings, len(plans), modules)
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        works = [_convert_locally(executor, task, plan, options, explain=explain) for task, plan in plans]
        for result in asyncio.as_completed(works):
            yield await result
    finally:
        await executor.close()


def _make_plan(registry: Registry, task: ConversionTask, options: OptionValues) -> Plan:
    """Returns the plan of a task. Raises ConversionError."""
    with task.input.open("rb") as source:
        format = registry.identify_descriptor(source.fileno(), task.input.name)
    return registry.plan([format], task.target, options=options)


async def _convert_locally(
    executor: Executor, task: ConversionTask, plan: Plan, options: OptionValues, *, explain: bool
) -> TaskResult:
    jobs = [Job.of(plan, options, task.input.stem)]
    if explain:
        jobs.insert(0, Job.of(plan, options, inspect=True))
    try:
        with task.input.open("rb") as source, _temporary_file(task.output.parent) as file:
            results = [await executor.run(job, _ACCOUNT, [source.fileno()], file.fileno()) for job in jobs]
            output = _result_path(task.output, results[-1].container)
            os.replace(file.name, output)  # noqa: PTH105
    except ConversionError as error:
        return TaskResult(task, error=error)
    return TaskResult(task, results[-1], output, explanation=_explain(plan, options, *results) if explain else ())


def _result_path(path: Path, container: str | None) -> Path:
    """The path of a result. The suffix of a ZIP archive is .zip, whatever the output format."""
    return path.with_suffix(".zip") if container == "zip" else path


@contextmanager
def _temporary_file(folder: Path) -> Iterator[IO[bytes]]:
    """A new file in the folder, which is deleted after the block unless it has been renamed."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".convertd-", delete=False) as file:
        try:
            yield file
        finally:
            Path(file.name).unlink(missing_ok=True)


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
        failures = await _report(_convert_remotely(client, tasks, options), len(tasks))
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

    slots = asyncio.Semaphore(_MAX_REQUESTS)
    fields: dict[str, Any] = {**options}

    async def convert(task: ConversionTask) -> TaskResult:
        async with slots:
            try:
                converted = await client.convert(task.input, task.target.name, to=task.output, **fields)
            except ConvertdError as error:
                return TaskResult(task, error=ConversionError(error.message, reason=error.reason))
        warnings = tuple(WarningRecord(warning.code, warning.message) for warning in converted.warnings)
        result = JobResult(converted.processed_size, (), warnings, file_count=converted.file_count or 1)
        return TaskResult(task, result=result, output=converted.path)

    for result in asyncio.as_completed([convert(task) for task in tasks]):
        yield await result


async def _report(results: AsyncIterator[TaskResult], total: int) -> int:
    """Prints progress, warnings and errors. Returns the number of failures."""
    failures = 0
    with progress(total) as show:
        async for result in results:
            failures += result.error is not None
            show(_describe(result))
    return failures


def _describe(task_result: TaskResult) -> list[str]:
    """The lines to print for a task."""
    name, result, error = task_result.task.input, task_result.result, task_result.error
    if error is not None:
        reason = f" ({error.reason})" if error.reason else ""
        return [f"{name}: {error}{reason}"]
    assert result is not None  # set unless `error` is set
    lines = [f"{name}: {warning.message} ({warning.code})" for warning in result.warnings]
    if result.container:
        lines.append(f"{name}: {result.file_count} files in {task_result.output}")
    return [*lines, *(f"{name}: {line}" for line in task_result.explanation)]


def _explain(plan: Plan, options: OptionValues, inspected: JobResult, result: JobResult) -> list[str]:
    """What is in the file, what the conversion loses, and the options and times of its steps, as lines."""
    found, facts = inspected.inspection, [plan.source.name]
    if found is not None and found.width is not None:
        facts.append(f"{found.width} x {found.height} pixels")
    if found is not None and found.pages is not None:
        facts.append(f"{found.pages} page{'' if found.pages == 1 else 's'}")
    quality = f", quality {result.quality_used}" if result.quality_used else ""
    return [
        ", ".join(facts),
        f"{plan}, {result.size} bytes{quality}",
        f"loses {', '.join(plan.losses) or 'nothing'}",
        *(
            f"  {name}: {json.dumps(value)}{'' if name in options else ' (default)'}"
            for name, value in plan.effective_options(options).items()
        ),
        *(f"  {timing.step}: {timing.seconds * 1000:.1f} ms" for timing in result.trace),
    ]
