"""Conversions of local files, without a server: the same jobs in the same processes."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from config.settings import Settings
from engine import ConversionError, FileFormat, Options
from engine.executor import Executor, Job, JobResult
from engine.pipeline import WarningRecord
from engine.planner import Plan
from engine.registry import Registry, load_registry
from web.cli_output import FAILED, WRONG_USAGE, fail, say, settings_or_exit
from web.client import AsyncClient, ConvertdError
from web.executor_setup import SandboxIncomplete, examine, local_executor


class WrongUsage(ValueError):
    """Arguments that do not say what is wanted; `str(error)` tells what to change."""


@dataclass(frozen=True)
class Task:
    """A file to convert, and where its result goes."""

    input: Path
    output: Path
    target: FileFormat


@dataclass(frozen=True)
class Outcome:
    """How a task ended: `done` and the plan it took, or `error`.

    A server tells no plan, but with the last outcome the `balance`: the credits that it has left for us.
    """

    task: Task
    plan: Plan | None = None
    done: JobResult | None = None
    error: ConversionError | None = None
    balance: int | None = None


def make_tasks(registry: Registry, paths: Sequence[Path], to: str | None) -> list[Task]:
    """INPUT… OUTPUT, or INPUT… [FOLDER] with a format, as tasks. Raises WrongUsage."""
    if to is None:
        *inputs, output = paths
        if len(inputs) != 1 or output.is_dir():
            raise WrongUsage("name one INPUT and one OUTPUT, or say with --to FORMAT what to make of many.")
        target = registry.format(output.suffix[1:])
        if target is None:
            raise WrongUsage(f"{output} has no extension of a known format; see 'convertd formats'.")
        return [_make_task(inputs[0], output, target)]
    target = registry.format(to)
    if target is None:
        raise WrongUsage(f"{to} is no known format; see 'convertd formats'.")
    folder = paths[-1] if paths[-1].is_dir() else None
    inputs = list(paths[:-1] if folder else paths)
    if not inputs:
        raise WrongUsage("name at least one INPUT.")
    made = [
        _make_task(path, (folder or path.parent) / f"{path.stem}.{target.extensions[0]}", target) for path in inputs
    ]
    if len({task.output for task in made}) < len(made):
        raise WrongUsage("two inputs would be written to the same file.")
    return made


def _make_task(path: Path, output: Path, target: FileFormat) -> Task:
    if not path.is_file():
        raise WrongUsage(f"{path} is no file.")
    if not output.parent.is_dir():
        raise WrongUsage(f"{output.parent} is no folder.")
    if output.exists() and output.samefile(path):
        raise WrongUsage(f"{path} would be overwritten with its own conversion.")
    return Task(path, output, target)


async def convert_locally(
    registry: Registry, wanted: Sequence[Task], options: Options, settings: Settings
) -> AsyncIterator[Outcome]:
    """The outcomes, as they come. Raises SandboxIncomplete before the first."""
    executor = local_executor(settings, min(settings.workers, len(wanted)))
    try:
        if settings.sandbox == "required":
            await examine(settings, executor)
        for outcome in asyncio.as_completed([_convert_locally(registry, executor, task, options) for task in wanted]):
            yield await outcome
    finally:
        await executor.close()


async def _convert_locally(registry: Registry, executor: Executor, task: Task, options: Options) -> Outcome:
    try:
        plan = registry.plan([registry.identify(task.input)], task.target)
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, f"result.{task.target.extensions[0]}")
            done = await executor.run(Job.of(plan, [task.input.absolute()], result, options))
            shutil.move(result, task.output)
    except ConversionError as error:
        return Outcome(task, error=error)
    return Outcome(task, plan, done)


_CONCURRENT_REQUESTS = 2  # conversions, as many as the server runs side by side for anybody


def remote_client(server: str) -> AsyncClient:
    """A client with the key of the environment. Raises ValueError where there is none, or the URL is none."""
    if not os.environ.get("CONVERTD_API_KEY"):
        raise WrongUsage("set CONVERTD_API_KEY to your key for the server.")
    return AsyncClient(server)


async def convert_remotely(client: AsyncClient, wanted: Sequence[Task], options: Options) -> AsyncIterator[Outcome]:
    """The outcomes, as they come."""
    job_queue = asyncio.Semaphore(_CONCURRENT_REQUESTS)
    async with client:
        converted = False
        coming = asyncio.as_completed([_convert_remotely(client, job_queue, task, options) for task in wanted])
        for left, outcome in zip(range(len(wanted) - 1, -1, -1), coming, strict=True):
            done = await outcome
            converted |= done.error is None
            yield done if left or not converted else replace(done, balance=await _balance(client))


async def _balance(client: AsyncClient) -> int | None:
    """The credits that are left when all is over: before, some are held for what may yet fail."""
    try:
        return (await client.account()).credits_remaining
    except ConvertdError:
        return None


async def _convert_remotely(client: AsyncClient, job_queue: asyncio.Semaphore, task: Task, options: Options) -> Outcome:
    async with job_queue:
        try:
            made = await client.convert(task.input, task.target.name, to=task.output, quality=options.quality)
        except ConvertdError as error:
            return Outcome(task, error=ConversionError(error.message, reason=error.reason))
    warnings = tuple(WarningRecord(warned.code, warned.message) for warned in made.warnings)
    return Outcome(task, done=JobResult(made.processed_size, (), warnings))


def run(files: Sequence[Path], to: str | None, quality: int | None, server: str | None, *, explain: bool) -> None:
    """Converts files, without a server or by one."""
    registry = load_registry()
    try:
        wanted = make_tasks(registry, files, to)
        options = Options(quality=quality)
        outcomes = (
            convert_locally(registry, wanted, options, settings_or_exit())
            if server is None
            else _by_server(server, wanted, options, explain=explain)
        )
    except (ValueError, ConversionError) as error:
        fail(str(error), WRONG_USAGE)
    try:
        if asyncio.run(_count_failures(outcomes, len(wanted), explain=explain)):
            raise typer.Exit(FAILED)
    except SandboxIncomplete as error:
        fail(str(error), FAILED)


def _by_server(server: str, wanted: Sequence[Task], options: Options, *, explain: bool) -> AsyncIterator[Outcome]:

    if explain:
        raise WrongUsage("--explain is for conversions without a server.")
    return convert_remotely(remote_client(server), wanted, options)


async def _count_failures(outcomes: AsyncIterator[Outcome], total: int, *, explain: bool) -> int:
    """Converts and reports; the number of failures."""
    failures, balance = 0, None
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with Progress(console=errors, transient=True, disable=total == 1) as progress:
        bar = progress.add_task("converting", total=total)
        async for outcome in outcomes:
            progress.advance(bar)
            failures += outcome.error is not None
            balance = outcome.balance
            for line in _report(outcome, explain=explain):
                errors.print(line)
    if balance is not None:
        say(f"{balance} credits remain.")
    return failures


def _report(outcome: Outcome, *, explain: bool) -> list[str]:
    name = outcome.task.input
    if outcome.error is not None:
        reason = f" ({outcome.error.reason})" if outcome.error.reason else ""
        return [f"{name}: {outcome.error}{reason}"]
    assert outcome.done is not None  # there is one where there is no error
    lines = [f"{name}: {warned.message} ({warned.code})" for warned in outcome.done.warnings]
    if explain:
        lines.append(f"{name}: {outcome.plan}, {outcome.done.size} bytes")
        lines += [f"  {timing.step}: {timing.seconds * 1000:.1f} ms" for timing in outcome.done.trace]
    return lines
