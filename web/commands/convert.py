"""The command that converts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import Progress

from engine import ConversionError, Options
from engine.registry import load_registry
from web import local
from web.processes import SandboxIncomplete
from web.terminal import FAILED, WRONG_USAGE, end, settings, tell


def run(files: Sequence[Path], to: str | None, quality: int | None, server: str | None, *, explain: bool) -> None:
    """Converts files, without a server or by one."""
    registry = load_registry()
    try:
        wanted = local.tasks(registry, files, to)
        options = Options(quality=quality)
        outcomes = (
            local.convert(registry, wanted, options, settings())
            if server is None
            else _by_server(server, wanted, options, explain=explain)
        )
    except (ValueError, ConversionError) as error:
        end(str(error), WRONG_USAGE)
    try:
        if asyncio.run(_count_failures(outcomes, len(wanted), explain=explain)):
            raise typer.Exit(FAILED)
    except SandboxIncomplete as error:
        end(str(error), FAILED)


def _by_server(
    server: str, wanted: Sequence[local.Task], options: Options, *, explain: bool
) -> AsyncIterator[local.Outcome]:
    from web import remote  # noqa: PLC0415, as nothing else needs an HTTP client

    if explain:
        raise local.WrongUsage("--explain is for conversions without a server.")
    return remote.convert(remote.client(server), wanted, options)


async def _count_failures(outcomes: AsyncIterator[local.Outcome], total: int, *, explain: bool) -> int:
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
        tell(f"{balance} credits remain.")
    return failures


def _report(outcome: local.Outcome, *, explain: bool) -> list[str]:
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
