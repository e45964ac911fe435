"""The command: serve, convert, formats, account, config, doctor. What one needs is loaded when it is called."""

# ruff: noqa: PLC0415
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from config.pricing import FREE_CREDITS

_MOST = 1_000_000_000  # credits at once

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Converts files between image, document and camera-RAW formats.",
)
account_cli = typer.Typer(no_args_is_help=True, help="Make accounts, give them credits, and check the ledger.")
cli.add_typer(account_cli, name="account")
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
    from web.commands import serve

    serve.run(host, port)


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
    from web import cli_convert

    cli_convert.run(files, to, quality, server, explain=explain)


@cli.command()
def formats(as_json: Json = False) -> None:
    """List what can be converted into what."""
    from web.commands import formats

    formats.run(as_json=as_json)


@account_cli.command()
def create(
    email: Annotated[str, typer.Option(help="The address of its owner.")],
    name: Annotated[str, typer.Option(help="The name of the application, 2 to 100 characters.")],
    credits: Annotated[int, typer.Option(min=0, max=_MOST, help="The credits to begin with.")] = FREE_CREDITS,
    unverified: Annotated[bool, typer.Option("--unverified", help="Leave the address to be verified.")] = False,
    as_json: Json = False,
) -> None:
    """Make an account, and print its key, which cannot be had again."""
    from web.commands import account

    account.create(email, name, credits, verified=not unverified, as_json=as_json)


@account_cli.command()
def grant(
    email: Annotated[str, typer.Argument(help="The address of the account.")],
    credits: Annotated[int, typer.Argument(metavar="N", min=1, max=_MOST, help="How many.")],
) -> None:
    """Give an account credits, and print its balance."""
    from web.commands import account

    account.grant(email, credits)


@account_cli.command()
def audit() -> None:
    """Check that all credits are accounted for; best in a copy of the database, as it reads all there is."""
    from web.commands import account

    account.audit()


@cli.command()
def config(as_json: Json = False) -> None:
    """Tell the settings in effect and where they come from, without secrets."""
    from web.commands import config

    config.run(as_json=as_json)


@cli.command()
def doctor(as_json: Json = False) -> None:
    """Tell what works here, and what is missing."""
    from web.commands import doctor

    doctor.run(as_json=as_json)
