"""Runs tasks of commands in worker processes of this machine."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from config.settings import Settings
from engine import ConversionError, OptionValues
from engine.errors import UnknownFormat
from engine.executor import Executor, Job, JobResult
from engine.planner import Plan
from engine.registry import Registry
from web.cli_results import Explanation, TaskResult, failure, publish, refusal, temporary_path
from web.cli_tasks import ConversionTask
from web.executor_setup import check_sandbox, command_executor

_ACCOUNT = "command"  # all files of a command belong to one user


async def convert_locally(
    registry: Registry,
    tasks: Sequence[ConversionTask],
    options: OptionValues,
    settings: Settings,
    *,
    explain: bool = False,
    jobs: int | None = None,
) -> AsyncIterator[TaskResult]:
    """Yields results in order of completion, of at most `jobs` at a time. Raises SandboxIncomplete before the first."""
    plans: list[tuple[ConversionTask, Plan]] = []
    for task in tasks:
        if not explain and (refused := refusal(task, task.output if _has_one_output(task) else None)) is not None:
            yield refused
            continue
        try:
            plans.append((task, make_plan(registry, task, options)))
        except (ConversionError, OSError) as error:
            yield failure(task, error)
    if not plans:
        return
    modules = frozenset[str]().union(*(plan.modules for _, plan in plans))
    executor = command_executor(settings, len(plans), modules, jobs)
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        run = explain_task if explain else convert_task
        works = [run(executor, task, plan, options) for task, plan in plans]
        for result in asyncio.as_completed(works):
            yield await result
    finally:
        await executor.close()


def _has_one_output(task: ConversionTask) -> bool:
    """Whether the result of the task is written to its output, as far as it is known before the conversion."""
    return task.output is None or not task.output.is_dir()


def make_plan(registry: Registry, task: ConversionTask, options: OptionValues) -> Plan:
    """Returns the plan of a task. Raises ConversionError, and OSError if an input cannot be read."""
    first, *others = task.inputs
    try:
        formats = [registry.identify(first, task.name)]
    except UnknownFormat as error:
        if task.source_format is None or error.reason == "empty_file":
            raise
        formats = [task.source_format]
    formats += [registry.identify(path) for path in (*others, *task.files.values())]
    return registry.plan(formats, task.target, task.tool, options, tuple(task.files))


async def convert_task(executor: Executor, task: ConversionTask, plan: Plan, options: OptionValues) -> TaskResult:
    """Converts, and writes the result to the output of the task."""
    try:
        with temporary_path(task.output) as path:
            with path.open("x+b") as file:
                names = [path.stem for path in task.inputs]
                job = Job.of(plan, options, Path(task.name).stem, input_names=names)
                result = await _run_job(executor, task, job, file)
            return publish(task, path, result.outcome, sum(one.stat().st_size for one in task.inputs))
    except (ConversionError, OSError) as error:
        return failure(task, error)


async def explain_task(executor: Executor, task: ConversionTask, plan: Plan, options: OptionValues) -> TaskResult:
    """Finds out what the conversion would do."""
    try:
        with tempfile.TemporaryFile() as file:
            result = await _run_job(executor, task, Job.of(plan, options, dry_run=True), file)
    except (ConversionError, OSError) as error:
        return failure(task, error)
    effective = plan.effective_options(options)
    explanation = Explanation(plan.source.name, plan.step_names, plan.losses, effective, frozenset(options))
    return TaskResult(task, result.outcome, explanation=explanation)


async def _run_job(executor: Executor, task: ConversionTask, job: Job, output: IO[bytes]) -> JobResult:
    with ExitStack() as stack:
        sources = [stack.enter_context(one.open("rb")) for one in (*task.inputs, *task.files.values())]
        return await executor.run(job, _ACCOUNT, [source.fileno() for source in sources], output.fileno())
