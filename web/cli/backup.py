"""The commands `backup` and `restore`: the database, the stored files and the settings in one file.

Like all commands, they import what they need when they run.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from web.cli.output import FAILED, exit_on_storage_errors, exit_with, load_settings_or_exit, print_message

if TYPE_CHECKING:
    from config.settings import Settings

backup_cli = typer.Typer(add_completion=False)
restore_cli = typer.Typer(add_completion=False)


@backup_cli.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, which must not exist.")],
) -> None:
    """Write the database, the stored files and the settings without secrets to FILE. The servers may keep running.

    The file has the addresses of accounts and the secrets of webhooks: keep it as safe as the database.
    """
    from storage import backups
    from storage.database import Database
    from web.workers.executor_setup import open_blobs

    settings = load_settings_or_exit()
    with exit_on_storage_errors():
        Database(settings.resolved_database_url()).close()  # migrates the database of an earlier release
        blobs = open_blobs(settings)
        try:
            count = asyncio.run(backups.back_up(file, settings.resolved_database_url(), blobs, _notes(settings)))
        except FileExistsError:
            exit_with(f"{file} exists.", FAILED)
    print_message(f"{file} has the database and {count} stored files.")


@restore_cli.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that convertd backup has written.")],
) -> None:
    """Restore a backup into an unused data folder, database and store, which the settings name.

    The settings of the backup are written to settings.toml in the data folder; nothing uses them there.
    """
    from storage import backups
    from storage.database.dumps import NotRestorable
    from web.services.operation.maintenance import DataFolderInUse, lock_data_folder
    from web.workers.executor_setup import open_blobs

    settings = load_settings_or_exit()
    if not file.is_file():
        exit_with(f"{file} is not a file.", FAILED)
    notes = settings.data_dir / "settings.toml"
    with exit_on_storage_errors():
        try:
            with lock_data_folder(settings.data_dir):
                blobs = open_blobs(settings)
                count = asyncio.run(backups.restore(file, settings.resolved_database_url(), blobs, notes))
        except (NotRestorable, DataFolderInUse) as error:
            exit_with(str(error), FAILED)
    print_message(f"restored the database and {count} stored files; the settings of the backup are in {notes}.")


def _notes(settings: Settings) -> str:
    """The settings that differ from the defaults, without secrets, as the text of a TOML file."""
    import json

    from config.settings import ENV_PREFIX, MASK, effective_settings

    changed = [setting for setting in effective_settings(settings) if setting.source != "default"]
    lines = [
        f"# {setting.name} is a secret" if MASK in str(setting.value) else f"{name} = {json.dumps(setting.value)}"
        for setting in changed
        for name in [setting.name.removeprefix(ENV_PREFIX).lower()]
    ]
    return "\n".join(["# The settings at the time of the backup, for CONVERTD_CONFIG.", *lines, ""])
