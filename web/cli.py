"""The command: serve, convert, formats, account, config, doctor."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from dataclasses import asdict
from importlib.metadata import version as distribution_version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from config.settings import Settings
from engine import ConversionError, Options
from engine.registry import Registry, load_registry
from engine.sandbox import Findings
from web import config_cli, local, remote
from web.accounts_cli import account_cli
from web.client import AsyncClient
from web.processes import SandboxIncomplete, local_executor
from web.services.catalogue import formats_catalogue
from web.terminal import FAILED, WRONG_USAGE, end, settings, tell

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Converts files between image, document and camera-RAW formats.",
)
cli.add_typer(account_cli, name="account")
cli.command("config")(config_cli.show)
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def main() -> None:
    """The entry point of the command."""
    cli()


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8000,
) -> None:
    """Serve the API until stopped."""
    from web import app as service  # noqa: PLC0415, as no other command needs what takes half a second

    try:
        asyncio.run(service.serve(settings().at_port(port), host, port))
    except OSError as error:
        end(f"cannot serve on {host}:{port}: {error.strerror or error}", FAILED)
    except SandboxIncomplete as error:
        end(str(error), FAILED)


@cli.command()
def convert(
    files: Annotated[list[Path], typer.Argument(metavar="INPUT... OUTPUT", help="Files; the last one is made.")],
    to: Annotated[str | None, typer.Option(help="The format to make of every INPUT; the last may be a folder.")] = None,
    quality: Annotated[int | None, typer.Option(help="1 to 100, for lossy formats.")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Tell the path taken and the time of each step.")] = False,
    server: Annotated[
        str | None,
        typer.Option("--remote", metavar="URL", help="Have a server convert, with the key CONVERTD_API_KEY."),
    ] = None,
) -> None:
    """Convert files, without a server or by one."""
    registry = load_registry()
    try:
        wanted = local.tasks(registry, files, to)
        options = Options(quality=quality)
        client = _client(server, explain=explain) if server is not None else None
    except (ValueError, ConversionError) as error:
        end(str(error), WRONG_USAGE)
    by_server = remote.convert(client, wanted, options) if client is not None else None
    outcomes = by_server or local.convert(registry, wanted, options, settings())
    try:
        if asyncio.run(_count_failures(outcomes, len(wanted), explain=explain)):
            raise typer.Exit(FAILED)
    except SandboxIncomplete as error:
        end(str(error), FAILED)


def _client(server: str, *, explain: bool) -> AsyncClient:
    if explain:
        raise local.WrongUsage("--explain is for conversions without a server.")
    if not os.environ.get("CONVERTD_API_KEY"):
        raise local.WrongUsage("set CONVERTD_API_KEY to your key for the server.")
    return AsyncClient(server)


async def _count_failures(outcomes: AsyncIterator[local.Outcome], total: int, *, explain: bool) -> int:
    """Converts and reports; the number of failures."""
    failures, balances = 0, list[int]()
    errors = Console(stderr=True, soft_wrap=True, highlight=False, markup=False)
    with Progress(console=errors, transient=True, disable=total == 1) as progress:
        bar = progress.add_task("converting", total=total)
        async for outcome in outcomes:
            progress.advance(bar)
            failures += outcome.error is not None
            balances += [outcome.balance] if outcome.balance is not None else []
            for line in _report(outcome, explain=explain):
                errors.print(line)
    if balances:
        tell(f"{min(balances)} credits remain.")
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


@cli.command()
def formats(as_json: Json = False) -> None:
    """List what can be converted into what."""
    catalogue = formats_catalogue(load_registry())
    if as_json:
        return print(json.dumps(catalogue, indent=2))
    table = Table("input", "outputs")
    for source, targets in catalogue["by_input_format"].items():
        table.add_row(source, " ".join(targets))
    return Console().print(table)


@cli.command()
def doctor(as_json: Json = False) -> None:
    """Tell what works here, and what is missing."""
    found = _findings(load_registry())
    if as_json:
        return print(json.dumps(found, indent=2))
    table = Table("what", "state")
    for name, held in {**found["sandbox"]["layers"], **found["sandbox"]["proofs"]}.items():
        table.add_row(f"sandbox: {name}", "on" if held else "not here")
    for plugin in found["plugins"]:
        table.add_row(f"plugin: {plugin['name']}", plugin["error"] or plugin["summary"])
    for need in found["missing"]:
        table.add_row(f"missing: {need['name']}", f"needed for {need['purpose']}: {need['install']}")
    return Console().print(table)


def _findings(registry: Registry) -> dict[str, Any]:
    return {
        "version": distribution_version("convertd"),
        "sandbox": asdict(asyncio.run(_examined(settings()))),
        "plugins": [
            {
                "name": plugin.name,
                "summary": plugin.summary,
                "reads": [fmt.name for fmt in plugin.reads],
                "writes": [fmt.name for fmt in plugin.writes],
                "error": plugin.error,
            }
            for plugin in registry.plugins
        ],
        "missing": [asdict(need) for need in registry.missing],
        "pairs": len(registry.catalogue()),
    }


async def _examined(chosen: Settings) -> Findings:
    """What `serve` would find; the doctor does not refuse to look where it is not enough."""
    executor = local_executor(chosen, 1)
    try:
        return await executor.examine()
    finally:
        await executor.close()
