"""The commands `backup` and `restore`: the database, the stored files and the settings in one file."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from config.settings import ENV_PREFIX, MASK, Settings, effective_settings
from storage import backups
from storage.database import Database
from storage.database.dumps import NotRestorable
from web.cli.output import FAILED, exit_on_storage_errors, exit_with, load_settings_or_exit, print_message
from web.services.operation.maintenance import DataFolderInUse, lock_data_folder
from web.workers.executor_setup import open_blobs

cli = typer.Typer(add_completion=False)


@cli.command()
def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write, which must not exist.")],
) -> None:
    """The file has the addresses of accounts and the secrets of webhooks: keep it as safe as the database."""
    settings = load_settings_or_exit()
    with exit_on_storage_errors():
        Database(settings.resolved_database_url()).close()  # migrates the database of an earlier release
        blobs = open_blobs(settings)
        try:
            count = asyncio.run(backups.back_up(file, settings.resolved_database_url(), blobs, _notes(settings)))
        except FileExistsError:
            exit_with(f"{file} exists.", FAILED)
    print_message(f"{file} has the database and {count} stored files.")


@cli.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that convertd backup has written.")],
) -> None:
    """The settings of the backup are written to settings.toml in the data folder; nothing uses them there."""
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
    changed = [setting for setting in effective_settings(settings) if setting.source != "default"]
    lines = [
        f"# {setting.name} is a secret" if MASK in str(setting.value) else f"{name} = {json.dumps(setting.value)}"
        for setting in changed
        for name in [setting.name.removeprefix(ENV_PREFIX).lower()]
    ]
    return "\n".join(["# The settings at the time of the backup, for CONVERTD_CONFIG.", *lines, ""])
