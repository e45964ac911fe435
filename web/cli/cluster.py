"""The `cluster` commands, with which operators prepare the machines of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from web.cli.output import FAILED, exit_on_storage_errors, exit_with

cli = typer.Typer(add_completion=False, no_args_is_help=True)
cli.callback()(lambda: None)  # with one command, it would otherwise be that command


@cli.command()
def certificates(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder for the files.")],
    days: Annotated[int, typer.Option(min=1, max=36500, help="Days that certificates are valid.")] = 3650,
) -> None:
    """Create the TLS files of a scheduler, servers and workers, and the authority that they trust.

    What exists in DIR is kept.
    """
    with exit_on_storage_errors():
        from web.workers.certificates import create_certificates  # noqa: PLC0415, needs a package that may be missing

        try:
            created = create_certificates(folder, days)
        except (OSError, ValueError) as error:
            exit_with(str(error), FAILED)
    for path in created:
        print(path)
