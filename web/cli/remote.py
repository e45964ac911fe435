"""Runs tasks of commands on a server, by the client of its API. Local conversions do not import this module."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from convertd_client import AsyncClient, ConvertdError, Inspection, Result
from engine import OptionValues
from engine.outcome import Outcome, WarningRecord
from engine.registry import load_registry
from web.agents.calls import by_name
from web.cli.conversion_arguments import CHOSEN_LATER, ConversionTask
from web.cli.login import find_key
from web.cli.results import CommandResult, Explanation, Failure, failure, publish, refusal, temporary_path

_MAX_REQUESTS = 2  # concurrent requests; more would only wait in the server's queue


def open_client(server: str) -> AsyncClient:
    """Returns a client of the server. Raises ValueError for an invalid URL or API key."""
    return AsyncClient(server, find_key(server))


async def convert_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues, jobs: int | None = None
) -> AsyncIterator[CommandResult]:
    """Converts on the server, `jobs` files at a time. Yields results in order of completion."""

    async def convert(task: ConversionTask) -> CommandResult:
        if (refused := refusal(task, task.known_output)) is not None:
            return refused
        with temporary_path(task.output) as path:
            done = await _request(client, task, path, options)
            return publish(task, path, _outcome(done, done.processed_size), done.original_size)

    async for result in _run_all(tasks, convert, jobs or _MAX_REQUESTS):
        yield result


async def submit_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[CommandResult]:
    """Submits the files in their order, and prints the ids of their jobs."""

    async def submit(task: ConversionTask) -> CommandResult:
        job = await client.submit(*_source(task), url=task.url, name=task.name, **_fields(task, options))
        print(job.job_id, flush=True)
        return CommandResult(task, Outcome(task.target.name, 0))

    async for result in _run_all(tasks, submit, 1):
        yield result


async def dry_run_remotely(
    client: AsyncClient, tasks: Sequence[ConversionTask], options: OptionValues
) -> AsyncIterator[CommandResult]:
    """Yields what the conversions would do."""

    async def dry_run(task: ConversionTask) -> CommandResult:
        found = await client.inspect(*_source(task), url=task.url, name=task.name, **_fields(task, options))
        explanation = Explanation(found.input_format, found.path, found.losses, found.options, frozenset(options))
        return CommandResult(task, _outcome(found, 0), explanation=explanation)

    async for result in _run_all(tasks, dry_run, _MAX_REQUESTS):
        yield result


async def _run_all(
    tasks: Sequence[ConversionTask], run: Callable[[ConversionTask], Awaitable[CommandResult]], requests: int
) -> AsyncIterator[CommandResult]:
    """Runs the tasks, some at a time and the first ones first. Yields results in order of completion."""
    slots = asyncio.Semaphore(requests)

    async def attempt(task: ConversionTask) -> CommandResult:
        async with slots:
            try:
                return await run(task)
            except ConvertdError as error:
                return CommandResult(task, error=Failure(error.message, error.code, error.reason))
            except OSError as error:
                return failure(task, error)

    works = [asyncio.ensure_future(attempt(task)) for task in tasks]
    try:
        for result in asyncio.as_completed(works):
            yield await result
    finally:
        for work in works:
            work.cancel()


def _source(task: ConversionTask) -> tuple[Path | None, str | None]:
    """The input of a conversion, None if the server fetches it, and the format, None if other fields determine it."""
    return next(iter(task.inputs), None), None if task.target == CHOSEN_LATER else task.target.name


def _fields(task: ConversionTask, options: OptionValues) -> dict[str, Any]:
    """The options of a conversion or tool, and its additional files."""
    return {**by_name(task.files), **options, **task.options}


def _outcome(described: Result | Inspection, size: int) -> Outcome:
    """The outcome that a response describes."""
    names = {field.name for field in fields(Outcome)} - {"processed_size", "warnings", "processing_time_ms"}
    known = {name: value for name in names if (value := getattr(described, name, None)) is not None}
    warnings = tuple(WarningRecord(one.code, one.message) for one in described.warnings)
    return Outcome(**{**known, "processed_size": size, "warnings": warnings})


async def _request(client: AsyncClient, task: ConversionTask, path: Path, options: OptionValues) -> Result:
    """Converts on the server, and writes the result to the path."""
    if task.tool is None:
        source, target = _source(task)
        fields = _fields(task, options)
        return await client.convert(source, target, url=task.url, to=path, name=task.name, **fields)
    several = load_registry().tools[task.tool].takes_several
    files = task.inputs if several else task.inputs[0]
    return await client.tool(task.tool, files, to=path, name=task.name, **_fields(task, options))
