"""Runs tasks of commands in worker processes of this machine."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO

from config.settings import Settings
from engine import AnyTool, ConversionError, FileFormat, OptionValues
from engine.errors import ExecutorUnavailable, UnknownFormat
from engine.executor import Executor, Task, TaskOutput, TaskResult
from engine.executor.tasks import PlannedOutput, task_of
from engine.file_names import FILENAME, file_name
from engine.formats import ANY_FILE
from engine.lazy import lazy_imports
from engine.outcome import Outcome
from engine.registry import Registry
from web.cli.conversion_arguments import AUTO_FORMAT, ConversionTask
from web.cli.results import CommandResult, Explanation, failure, publish, refusal, temporary_path
from web.workers.executor_setup import check_sandbox, command_executor

with lazy_imports():
    from web.services.conversions import conversion_plan

_ACCOUNT = "command"  # all files of a command belong to one user


async def convert_locally(
    registry: Registry,
    tasks: Sequence[ConversionTask],
    options: OptionValues,
    settings: Settings,
    *,
    outputs: str | None = None,
    dry_run: bool = False,
    jobs: int | None = None,
) -> AsyncIterator[CommandResult]:
    """Yields results in order of completion, of at most `jobs` at a time. Raises SandboxIncomplete before the first."""
    planned: list[tuple[ConversionTask, tuple[PlannedOutput, ...]]] = []
    for task in tasks:
        if not dry_run and (refused := refusal(task, task.known_output)) is not None:
            yield refused
            continue
        try:
            planned.append((task, make_plans(registry, task, {**options, **task.options}, outputs)))
        except (ConversionError, OSError) as error:
            yield failure(task, error)
    if not planned:
        return
    modules = frozenset[str]().union(*(plan.modules for _, made in planned for one in made for plan in one.plans))
    executor = command_executor(settings, len(planned), modules, jobs)
    try:
        with suppress(ExecutorUnavailable):  # raised again for the tasks
            await executor.start()  # the first start of an installation, which compiles it, outlasts the wait of a task
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        run = dry_run_task if dry_run else convert_task
        works = [run(executor, task, made, {**options, **task.options}) for task, made in planned]
        for result in asyncio.as_completed(works):
            yield await result
    finally:
        await executor.close()


def make_plans(
    registry: Registry, task: ConversionTask, options: OptionValues, outputs: str | None = None
) -> tuple[PlannedOutput, ...]:
    """Plans a task, with several `outputs` if there is JSON that lists them.

    Raises ConversionError, and OSError if an input cannot be read.
    """
    first, *others = task.inputs
    try:
        formats = [registry.identify(first, task.name)]
    except UnknownFormat as error:
        if task.source_format is None or error.reason == "empty_file":
            raise
        formats = [task.source_format]
    formats += [registry.identify(path) for path in others]
    names = tuple(name for name, _ in task.files)
    tool = registry.tools.get(task.tool or "")
    formats += [_identified(registry, tool, name, path) for name, path in task.files]
    if outputs is None and task.target != AUTO_FORMAT:
        plan = registry.plan(formats, task.target, task.tool, options, names)
        files = tuple(range(len(formats))), names
        return (PlannedOutput((plan,), TaskOutput((plan.target.name,), options, None, *files)),)
    listed = conversion_plan.read_outputs(registry.options, json.loads(outputs or "[]"), options)
    return conversion_plan.plan_outputs(registry, formats, task.target.name, options, listed, names)


def _identified(registry: Registry, tool: AnyTool | None, name: str, path: Path) -> FileFormat:
    """The format of an additional file. Raises UnknownFormat."""
    if tool is not None and tool.takes_any(name):
        return ANY_FILE
    try:
        return registry.identify(path)
    except UnknownFormat:
        if tool is None or tool.stages_parameter is None:
            raise
        return ANY_FILE


async def convert_task(
    executor: Executor, task: ConversionTask, planned: Sequence[PlannedOutput], options: OptionValues
) -> CommandResult:
    """Converts, and writes the result to the output of the task."""
    try:
        with temporary_path(task.output) as path:
            with path.open("x+b") as file:
                names = [path.stem for path in task.inputs] + [path.name for _, path in task.files]
                job = task_of(planned, Path(task.name).stem, input_names=names)
                result = await _run_job(executor, task, job, file)
            outcome = _named(task, planned, options, result.outcome)
            return publish(task, path, outcome, sum(one.stat().st_size for one in task.inputs))
    except (ConversionError, OSError) as error:
        return failure(task, error)


def _named(task: ConversionTask, planned: Sequence[PlannedOutput], options: OptionValues, outcome: Outcome) -> Outcome:
    """The outcome with the name of the result, if the task leaves it to the outcome."""
    if not task.named:
        return outcome
    targets = {plan.target.name: plan.target for one in planned for plan in one.plans}
    target = targets.get(outcome.output_format, task.target)
    template = options.get(FILENAME.name, "{name}.{ext}")
    size = None if outcome.width is None or outcome.height is None else (outcome.width, outcome.height)
    return replace(outcome, filename=file_name(str(template), Path(task.name).stem, target, size))


async def dry_run_task(
    executor: Executor, task: ConversionTask, planned: Sequence[PlannedOutput], options: OptionValues
) -> CommandResult:
    """Finds out what the conversion would do; of several outputs or formats, the first one."""
    plan = planned[0].plans[0]
    options = planned[0].output.options
    needed = planned[0].output.inputs
    try:
        with tempfile.TemporaryFile() as file:
            result = await _run_job(executor, task, Task.of(plan, options, dry_run=True), file, needed)
    except (ConversionError, OSError) as error:
        return failure(task, error)
    effective = plan.effective_options(options)
    explanation = Explanation(plan.source.name, plan.step_names, plan.losses, effective, frozenset(options))
    return CommandResult(task, result.outcome, explanation=explanation)


async def _run_job(
    executor: Executor, task: ConversionTask, job: Task, output: IO[bytes], needed: Sequence[int] | None = None
) -> TaskResult:
    """Runs a job on all files of a task, or on those with the `needed` indexes."""
    paths = [*task.inputs, *(path for _, path in task.files)]
    paths = paths if needed is None else [paths[index] for index in needed]
    with ExitStack() as stack:
        sources = [stack.enter_context(path.open("rb")) for path in paths]
        return await executor.run(job, _ACCOUNT, [source.fileno() for source in sources], output.fileno())
