"""Conversions of local files, without a server: the same jobs in the same processes."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from config.settings import Settings
from engine import ConversionError, FileFormat, Options
from engine.executor import Done, Executor, Job
from engine.planner import Plan
from engine.registry import Registry
from web.processes import examine, local_executor


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
    done: Done | None = None
    error: ConversionError | None = None
    balance: int | None = None


def tasks(registry: Registry, paths: Sequence[Path], to: str | None) -> list[Task]:
    """INPUT… OUTPUT, or INPUT… [FOLDER] with a format, as tasks. Raises WrongUsage."""
    if to is None:
        *inputs, output = paths
        if len(inputs) != 1 or output.is_dir():
            raise WrongUsage("name one INPUT and one OUTPUT, or say with --to FORMAT what to make of many.")
        target = registry.format(output.suffix[1:])
        if target is None:
            raise WrongUsage(f"{output} has no extension of a known format; see 'convertd formats'.")
        return [_task(inputs[0], output, target)]
    target = registry.format(to)
    if target is None:
        raise WrongUsage(f"{to} is no known format; see 'convertd formats'.")
    folder = paths[-1] if paths[-1].is_dir() else None
    inputs = list(paths[:-1] if folder else paths)
    if not inputs:
        raise WrongUsage("name at least one INPUT.")
    made = [_task(path, (folder or path.parent) / f"{path.stem}.{target.extensions[0]}", target) for path in inputs]
    if len({task.output for task in made}) < len(made):
        raise WrongUsage("two inputs would be written to the same file.")
    return made


def _task(path: Path, output: Path, target: FileFormat) -> Task:
    if not path.is_file():
        raise WrongUsage(f"{path} is no file.")
    if not output.parent.is_dir():
        raise WrongUsage(f"{output.parent} is no folder.")
    if output.exists() and output.samefile(path):
        raise WrongUsage(f"{path} would be overwritten with its own conversion.")
    return Task(path, output, target)


async def convert(
    registry: Registry, wanted: Sequence[Task], options: Options, settings: Settings
) -> AsyncIterator[Outcome]:
    """The outcomes, as they come. Raises SandboxIncomplete before the first."""
    executor = local_executor(settings, min(settings.workers, len(wanted)))
    try:
        if settings.sandbox == "required":
            await examine(settings, executor)
        for outcome in asyncio.as_completed([_convert(registry, executor, task, options) for task in wanted]):
            yield await outcome
    finally:
        await executor.close()


async def _convert(registry: Registry, executor: Executor, task: Task, options: Options) -> Outcome:
    try:
        plan = registry.plan([registry.identify(task.input)], task.target)
        with tempfile.TemporaryDirectory() as folder:
            result = Path(folder, f"result.{task.target.extensions[0]}")
            done = await executor.run(Job.of(plan, [task.input.absolute()], result, options))
            shutil.move(result, task.output)
    except ConversionError as error:
        return Outcome(task, error=error)
    return Outcome(task, plan, done)
