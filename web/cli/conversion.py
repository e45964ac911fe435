"""`convert` and the commands of tools: in worker processes of this machine, or on a server with `--remote`."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import typer

from engine import ConversionError, OptionValue, OptionValues
from engine.lazy import lazy_imports
from engine.options import validate_options
from engine.registry import Registry, load_registry
from web.cli import units
from web.cli.conversion_arguments import Arguments, ConversionTask, SkippedFile, ToolArguments, UsageError
from web.cli.local import convert_locally
from web.cli.output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit, print_message
from web.cli.results import CommandResult, Display, report, summarize
from web.cli.tasks import make_tasks, make_tool_tasks
from web.workers.executor_setup import SandboxIncomplete

with lazy_imports():
    import convertd_client
    from web.api import errors, field_types, output_fields
    from web.cli import remote
    from web.services.conversions import conversion_plan


@dataclass(frozen=True)
class Mode:
    """How tasks run: here or on a `server`, `jobs` at a time; a `dry_run` or `submit` instead of converting.

    `outputs` is the JSON of several results, `preset` the name of one of the account.
    """

    server: str | None = None
    dry_run: bool = False
    submit: bool = False
    jobs: int | None = None
    display: Display = field(default_factory=Display)
    outputs: str | None = None
    preset: str | None = None

    @property
    def target(self) -> dict[str, str]:
        """The fields of a request that determine its results, besides its output format."""
        fields = {"outputs": self.outputs, "preset": self.preset}
        return {name: value for name, value in fields.items() if value is not None}


def run(arguments: Arguments, given: Mapping[str, object], mode: Mode) -> None:
    """Runs `convert` as `convert` does. Exits with FAILED if a conversion fails."""
    _exit_on_failure(convert(arguments, given, mode))


def convert(arguments: Arguments, given: Mapping[str, object], mode: Mode) -> list[CommandResult]:
    """Converts with the given options, as text. Exits with WRONG_USAGE for invalid arguments."""
    if arguments.url is not None and mode.server is None:
        exit_with("--url needs --remote: a server fetches the file.", WRONG_USAGE)
    if mode.preset is not None and mode.server is None:
        exit_with("--preset needs --remote: a server keeps the presets.", WRONG_USAGE)
    if mode.submit and (mode.server is None or mode.dry_run or mode.display.as_json):
        exit_with("--async needs --remote, no --dry-run and no --json", WRONG_USAGE)
    registry = load_registry()
    return _run(registry, given, mode, partial(make_tasks, registry, arguments))


def run_tool(arguments: ToolArguments, given: Mapping[str, object], mode: Mode) -> None:
    """Runs a tool as `run` runs `convert`."""
    registry = load_registry()
    _exit_on_failure(_run(registry, given, mode, lambda files: (make_tool_tasks(registry, arguments, files), [])))


def _exit_on_failure(results: Sequence[CommandResult]) -> None:
    if any(result.error for result in results):
        raise typer.Exit(FAILED)


def _run(
    registry: Registry,
    given: Mapping[str, object],
    mode: Mode,
    make: Callable[[ExitStack], tuple[list[ConversionTask], list[SkippedFile]]],
) -> list[CommandResult]:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes temporary files, as SIGINT does
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # the kernel sends it on behalf of processes that share a descriptor
    with ExitStack() as files:
        try:
            client = None if mode.server is None else remote.open_client(mode.server)
            tasks, skipped = make(files)
            tool = tasks[0].tool
            known = registry.options if tool is None else registry.tool_options(tool)
            given, shares = units.without_units(given)
            options = validate_options(known, given, from_text=True)
            if shares and (tool is not None or mode.outputs is not None):
                raise UsageError("Shares of a size are for conversions to one output, not for tools.")
            if tool is None:
                tasks, options = _with_files(registry, tasks, options)
            _check_mode(tasks, mode)
            if mode.outputs is not None and mode.server is None:
                tasks = _with_files_of_outputs(registry, tasks, mode.outputs, options)
        except (ValueError, ConversionError) as error:
            exit_with(str(error), WRONG_USAGE)
        except OSError as error:
            exit_with(f"cannot read {error.filename or 'standard input'}: {error.strerror}", FAILED)
        if client is None:
            settings = load_settings_or_exit()
            convert = partial(convert_locally, registry, options=options, settings=settings, jobs=mode.jobs)
            work = _run_locally(convert, tasks, shares, skipped, mode)
        else:
            work = _run_remotely(client, tasks, options, shares, skipped, mode)
        try:
            done = asyncio.run(work)
        except SandboxIncomplete as error:
            exit_with(str(error), FAILED)
        except UsageError as error:
            exit_with(str(error), WRONG_USAGE)
        if not mode.submit:
            summarize(done, skipped, mode.display)
    return done


def _with_files(
    registry: Registry, tasks: Sequence[ConversionTask], options: OptionValues
) -> tuple[list[ConversionTask], dict[str, OptionValue]]:
    """The tasks with the files that options name by their paths, and the other options. Raises OSError."""
    files = {name: Path(str(value)) for name, value in options.items() if registry.options[name].is_file(value)}
    for path in files.values():
        path.open("rb").close()
    others = {name: value for name, value in options.items() if name not in files}
    return [replace(task, files=[*files.items()]) for task in tasks], others


def _check_mode(tasks: Sequence[ConversionTask], mode: Mode) -> None:
    """Raises ValueError if the tasks cannot run in this mode."""
    if tasks[0].tool is not None and (mode.dry_run or mode.submit):
        raise ValueError("--dry-run and --async are for conversions of single files; this makes one file of several.")
    if mode.display.as_json and not mode.dry_run and any(task.output is None for task in tasks):
        raise ValueError("--json needs standard output, which the result uses, too.")


def _with_files_of_outputs(
    registry: Registry, tasks: Sequence[ConversionTask], text: str, options: OptionValues
) -> list[ConversionTask]:
    """The tasks with the files that the JSON of several outputs names by their paths.

    Raises ValueError and InvalidOption if it is invalid, and OSError.
    """
    try:
        given = field_types.validate(output_fields.KeptFields, {"outputs": text}, from_text=True).outputs or ()
        outputs = conversion_plan.read_outputs(registry.options, given, options)
    except errors.ApiError as error:
        raise ValueError(str(error)) from None
    files: dict[str, Path] = {}
    for one in outputs:
        _, others = _with_files(registry, (), one.options)
        own = {name: str(value) for name, value in one.options.items() if name not in others}
        files |= {conversion_plan.own_file(name, value): Path(value) for name, value in own.items()}
    return [replace(task, files=[*task.files, *files.items()]) for task in tasks]


async def _run_locally(
    convert: Callable[..., AsyncIterator[CommandResult]],
    tasks: Sequence[ConversionTask],
    shares: Mapping[str, float],
    skipped: list[SkippedFile],
    mode: Mode,
) -> list[CommandResult]:
    run = partial(convert, outputs=mode.outputs, dry_run=mode.dry_run)
    results = _at_shares(shares, tasks, partial(convert, dry_run=True), run) if shares else run(tasks)
    return await report(results, len(tasks), skipped, mode.display)


async def _at_shares(
    shares: Mapping[str, float],
    tasks: Sequence[ConversionTask],
    dry_run: Callable[[Sequence[ConversionTask]], AsyncIterator[CommandResult]],
    run: Callable[[Sequence[ConversionTask]], AsyncIterator[CommandResult]],
) -> AsyncIterator[CommandResult]:
    """Runs the tasks with shares of the size that each result would have, in pixels. Yields failed dry runs, too.

    Raises UsageError if a result has no size.
    """
    sized: list[ConversionTask] = []
    async for result in dry_run(tasks):
        if (outcome := result.outcome) is None:
            yield result
            continue
        if outcome.width is None or outcome.height is None:
            raise UsageError(f"{result.task.label}: the result has no size of which it could be a share.")
        sizes = {"width": outcome.width, "height": outcome.height}
        sides = {name: max(1, round(share * sizes[name])) for name, share in shares.items()}
        sized.append(replace(result.task, options=sides))
    async for result in run(sized):
        yield result


async def _run_remotely(
    client: convertd_client.AsyncClient,
    tasks: Sequence[ConversionTask],
    options: OptionValues,
    shares: Mapping[str, float],
    skipped: list[SkippedFile],
    mode: Mode,
) -> list[CommandResult]:
    """Converts on the server, prints the results and the remaining credits."""
    fields = {**options, **mode.target}
    async with client:
        dry_run = partial(remote.dry_run_remotely, client, options=fields)
        run = partial(remote.convert_remotely, client, options=fields, jobs=mode.jobs)
        if mode.submit:
            run = partial(remote.submit_remotely, client, options=fields)
        elif mode.dry_run:
            run = dry_run
        results = _at_shares(shares, tasks, dry_run, run) if shares else run(tasks)
        done = await report(results, len(tasks), skipped, mode.display)
        hidden = mode.dry_run or mode.display.quiet or mode.display.as_json
        if not hidden and any(not result.error for result in done):
            with suppress(convertd_client.ConvertdError):
                # Not earlier: while conversions run, credits are reserved for them.
                print_message(f"{(await client.account()).credits_remaining} credits remain.")
    return done
