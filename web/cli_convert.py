"""`convert` and the commands of tools: in worker processes of this machine, or on a server with `--remote`."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import typer

from config.settings import Settings
from engine import ConversionError, OptionValues
from engine.errors import UnknownFormat
from engine.executor import Executor, Job, JobResult
from engine.options import Option, validate_options
from engine.outcome import Outcome, WarningRecord
from engine.planner import Plan
from engine.registry import Registry, load_registry
from web.cli_output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit, print_message, progress
from web.cli_tasks import Arguments, ConversionTask, ToolArguments, UsageError, make_tasks, make_tool_task
from web.executor_setup import SandboxIncomplete, check_sandbox, command_executor

if TYPE_CHECKING:
    from convertd_client import AsyncClient, Result

_ACCOUNT = "command"  # all files of a command belong to one user
_MAX_REQUESTS = 2  # concurrent requests; more would only wait in the server's queue


@dataclass(frozen=True)
class TaskResult:
    """What became of a task: its outcome and the name of its `output`, or `error`, or the existing file `kept`."""

    task: ConversionTask
    outcome: Outcome | None = None
    output: str = ""
    error: str | None = None
    kept: Path | None = None
    explanation: Sequence[str] = ()


def run(arguments: Arguments, given: Mapping[str, object], server: str | None, *, explain: bool, submit: bool) -> None:
    """Runs `convert` with the given options, as text. Exits with FAILED if a conversion fails, with WRONG_USAGE for
    invalid arguments."""
    if arguments.url is not None and server is None:
        exit_with("--url needs --remote: a server fetches the file.", WRONG_USAGE)
    registry = load_registry()
    make = partial(make_tasks, registry, arguments)
    _run(registry, registry.options, given, server, make, explain=explain, submit=submit)


def run_tool(arguments: ToolArguments, given: Mapping[str, object], server: str | None) -> None:
    """Runs a tool as `run` runs `convert`."""
    registry = load_registry()
    known = registry.tool_options(arguments.tool)
    _run(registry, known, given, server, lambda files: [make_tool_task(registry, arguments, files)])


def _run(
    registry: Registry,
    known: Mapping[str, Option],
    given: Mapping[str, object],
    server: str | None,
    make: Callable[[ExitStack], list[ConversionTask]],
    *,
    explain: bool = False,
    submit: bool = False,
) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes temporary files, as SIGINT does
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    with ExitStack() as files:
        try:
            options = validate_options(known, given, from_text=True)
            client = None if server is None else _open_client(server)
            tasks = make(files)
        except (ValueError, ConversionError) as error:
            exit_with(str(error), WRONG_USAGE)
        except OSError as error:
            exit_with(f"cannot read {error.filename or 'standard input'}: {error.strerror}", FAILED)
        if client is None:
            results = convert_locally(registry, tasks, options, load_settings_or_exit(), explain=explain)
            work = _report(results, len(tasks))
        else:
            work = _run_remotely(client, tasks, options, explain=explain, submit=submit)
        try:
            failures = asyncio.run(work)
        except SandboxIncomplete as error:
            exit_with(str(error), FAILED)
    if failures:
        raise typer.Exit(FAILED)


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
        if not explain and (refused := _refusal(task, task.output)) is not None:
            yield refused
            continue
        try:
            plans.append((task, _make_plan(registry, task, options)))
        except (ConversionError, OSError) as error:
            yield _failure(task, error)
    if not plans:
        return
    modules = frozenset[str]().union(*(plan.modules for _, plan in plans))
    executor = command_executor(settings, len(plans), modules)
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        run = _explain_locally if explain else _convert_locally
        works = [run(executor, task, plan, options) for task, plan in plans]
        for result in asyncio.as_completed(works):
            yield await result
    finally:
        await executor.close()


def _make_plan(registry: Registry, task: ConversionTask, options: OptionValues) -> Plan:
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


async def _convert_locally(executor: Executor, task: ConversionTask, plan: Plan, options: OptionValues) -> TaskResult:
    try:
        with _temporary_path(task) as path:
            with path.open("x+b") as file:
                names = [path.stem for path in task.inputs]
                job = Job.of(plan, options, Path(task.name).stem, input_names=names)
                result = await _run_job(executor, task, job, file)
            return _publish(task, path, result.outcome)
    except (ConversionError, OSError) as error:
        return _failure(task, error)


async def _explain_locally(executor: Executor, task: ConversionTask, plan: Plan, options: OptionValues) -> TaskResult:
    try:
        with tempfile.TemporaryFile() as file:
            result = await _run_job(executor, task, Job.of(plan, options, dry_run=True), file)
    except (ConversionError, OSError) as error:
        return _failure(task, error)
    effective = plan.effective_options(options)
    return _explain(task, result.outcome, plan.source.name, plan.step_names, plan.losses, effective, options)


async def _run_job(executor: Executor, task: ConversionTask, job: Job, output: IO[bytes]) -> JobResult:
    with ExitStack() as stack:
        sources = [stack.enter_context(one.open("rb")) for one in (*task.inputs, *task.files.values())]
        return await executor.run(job, _ACCOUNT, [source.fileno() for source in sources], output.fileno())


@contextmanager
def _temporary_path(task: ConversionTask) -> Iterator[Path]:
    """The path of a new file for the result, which is deleted after the block unless it has been renamed.

    A file that is created there has the mode that the umask allows.
    """
    folder = Path(tempfile.gettempdir()) if task.output is None else task.output.parent
    path = folder / f".convertd-{os.urandom(8).hex()}.zip"  # the client adds this suffix to paths of archives
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _publish(task: ConversionTask, path: Path, outcome: Outcome) -> TaskResult:
    """Renames the complete result to the task's output, or copies it to standard output. Raises OSError."""
    if task.output is None:
        with path.open("rb") as file, os.fdopen(os.dup(1), "wb") as standard_output:
            shutil.copyfileobj(file, standard_output)
        return TaskResult(task, outcome, "standard output")
    output = task.output.with_suffix(".zip") if outcome.container == "zip" else task.output
    if (refused := _refusal(task, output)) is not None:
        return refused
    path.replace(output)
    return TaskResult(task, outcome, str(output))


def _refusal(task: ConversionTask, output: Path | None) -> TaskResult | None:
    """The result of a task whose output exists and must not be replaced; None if it may be written."""
    if output is None or task.overwrite or not os.path.lexists(output):
        return None
    if task.overwrite is None:
        return TaskResult(task, error=f"{output} exists; use -y to replace it or -n to keep it")
    return TaskResult(task, kept=output)


def _failure(task: ConversionTask, error: ConversionError | OSError) -> TaskResult:
    if isinstance(error, ConversionError):
        return TaskResult(task, error=f"{error} ({error.reason})" if error.reason else str(error))
    if error.filename in map(str, task.inputs):
        return TaskResult(task, error=f"cannot read the file: {error.strerror}")
    return TaskResult(task, error=f"cannot write {task.output or 'standard output'}: {error.strerror}")


def _open_client(server: str) -> AsyncClient:
    """Returns a client of the server. Raises ValueError for an invalid URL or API key."""
    from convertd_client import AsyncClient  # noqa: PLC0415, local conversions do not need httpx

    if not os.environ.get("CONVERTD_API_KEY"):
        raise UsageError("set CONVERTD_API_KEY to your API key for the server.")
    return AsyncClient(server)


async def _run_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues, *, explain: bool, submit: bool
) -> int:
    """Converts on the server, prints the results and the remaining credits. Returns the number of failures."""
    from convertd_client import ConvertdError  # noqa: PLC0415, as above

    async with client:
        run = _submit_remotely if submit else _explain_remotely if explain else _convert_remotely
        failures = await _report(run(client, tasks, options), len(tasks))
        if failures < len(tasks) and not explain:
            with suppress(ConvertdError):
                # Not earlier: while conversions run, credits are reserved for them.
                print_message(f"{(await client.account()).credits_remaining} credits remain.")
    return failures


async def _convert_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[TaskResult]:
    """Yields results in order of completion."""
    from convertd_client import ConvertdError  # noqa: PLC0415, as above

    slots = asyncio.Semaphore(_MAX_REQUESTS)
    fields: dict[str, Any] = {**options}

    async def convert(task: ConversionTask) -> TaskResult:
        if (refused := _refusal(task, task.output)) is not None:
            return refused
        async with slots:
            try:
                with _temporary_path(task) as path:
                    done = await _request(client, task, path, fields)
                    warnings = tuple(WarningRecord(warning.code, warning.message) for warning in done.warnings)
                    container: Literal["zip"] | None = "zip" if done.container else None
                    outcome = Outcome(
                        task.target.name,
                        done.processed_size,
                        warnings=warnings,
                        container=container,
                        file_count=done.file_count or 1,
                    )
                    return _publish(task, path, outcome)
            except ConvertdError as error:
                return _failure(task, ConversionError(error.message, reason=error.reason))
            except OSError as error:
                return _failure(task, error)

    for result in asyncio.as_completed([convert(task) for task in tasks]):
        yield await result


async def _submit_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[TaskResult]:
    """Submits the files, and prints the ids of their jobs."""
    from convertd_client import ConvertdError  # noqa: PLC0415, as above

    fields: dict[str, Any] = {**options}
    for task in tasks:
        try:
            source = next(iter(task.inputs), None)
            job = await client.submit(source, task.target.name, url=task.url, name=task.name, **fields)
        except ConvertdError as error:
            yield _failure(task, ConversionError(error.message, reason=error.reason))
        except OSError as error:
            yield _failure(task, error)
        else:
            print(job.job_id, flush=True)
            yield TaskResult(task, Outcome(task.target.name, 0))


async def _explain_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[TaskResult]:
    from convertd_client import ConvertdError  # noqa: PLC0415, as above

    fields: dict[str, Any] = {**options}
    for task in tasks:
        try:
            source = next(iter(task.inputs), None)
            found = await client.inspect(source, task.target.name, url=task.url, name=task.name, **fields)
        except ConvertdError as error:
            yield _failure(task, ConversionError(error.message, reason=error.reason))
        else:
            outcome = Outcome(
                task.target.name,
                0,
                warnings=tuple(WarningRecord(warning.code, warning.message) for warning in found.warnings),
                container="zip" if found.container else None,
                file_count=found.file_count,
                width=found.width,
                height=found.height,
                pages=found.pages,
            )
            yield _explain(task, outcome, found.input_format, found.path, found.losses, found.options, options)


async def _request(client: AsyncClient, task: ConversionTask, path: Path, options: Mapping[str, Any]) -> Result:
    """Converts on the server, and writes the result to the path."""
    if task.tool is None:
        source = next(iter(task.inputs), None)
        return await client.convert(source, task.target.name, url=task.url, to=path, name=task.name, **options)
    several = load_registry().tools[task.tool].takes_several
    files = task.inputs if several else task.inputs[0]
    return await client.tool(task.tool, files, to=path, name=task.name, **{**task.files, **options})


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
    name, outcome = task_result.task.label, task_result.outcome
    if task_result.error is not None:
        return [f"{name}: {task_result.error}"]
    if task_result.kept is not None:
        return [f"{name}: {task_result.kept} exists and is kept"]
    assert outcome is not None  # set unless `error` or `kept` is set
    lines = [f"{name}: {warning.message} ({warning.code})" for warning in outcome.warnings]
    if outcome.container and not task_result.explanation:
        lines.append(f"{name}: {outcome.file_count} files in {task_result.output}")
    return [*lines, *(f"{name}: {line}" for line in task_result.explanation)]


def _explain(
    task: ConversionTask,
    outcome: Outcome,
    source: str,
    steps: Sequence[str],
    losses: Sequence[str],
    options: Mapping[str, object],
    given: OptionValues,
) -> TaskResult:
    """The result of a dry run, with the lines that describe it."""
    facts = [f"{source} to {task.target}"]
    facts += [f"{outcome.width} x {outcome.height} pixels"] if outcome.width is not None else []
    facts += [f"{outcome.pages} pages"] if (outcome.pages or 1) > 1 else []
    facts += [f"{outcome.file_count} files"] if outcome.container else []
    lines = [", ".join(facts), f"steps: {', '.join(steps)}", f"loses {', '.join(losses) or 'nothing'}"]
    for name, value in options.items():
        lines.append(f"  {name}: {json.dumps(value)}{'' if name in given else ' (default)'}")
    return TaskResult(task, outcome, explanation=lines)
