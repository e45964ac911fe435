"""`convertd mcp`: tools for agents over standard input and output, which convert here or on a server."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from web.agents.calls import AgentError, load
from web.cli.output import FAILED, WRONG_USAGE, exit_with

cli = typer.Typer(add_completion=False)


@cli.command()
def mcp(
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder whose files agents may use. Default: this one.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="Convert on this server, with CONVERTD_API_KEY.")
    ] = None,
) -> None:
    """Agents start this command themselves.

    Files outside of DIR are refused, also where symbolic links lead to them.
    """
    folder = (root or Path()).absolute()
    if not folder.is_dir():
        exit_with(f"{folder} is not a folder.", WRONG_USAGE)
    try:
        serving = load("web.cli.mcp_server")
    except AgentError as error:
        exit_with(str(error), FAILED)
    asyncio.run(serving.serve_locally(folder) if server is None else serving.serve_remotely(folder, server))
