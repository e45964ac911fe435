"""Messages, exit codes and settings shared by all commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from config.settings import Settings

FAILED, WRONG_USAGE = 1, 2
"""Exit codes of commands that do not succeed."""


def print_message(message: str) -> None:
    """Prints a message to standard error; standard output is for results."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"convertd: {message}")


def exit_with(message: str, status: int) -> NoReturn:
    """Prints the message and exits."""
    print_message(message)
    raise typer.Exit(status) from None


def load_settings_or_exit() -> Settings:
    """Returns the settings of this process. Exits if they are invalid."""
    from config.settings import SettingsError, load_settings  # noqa: PLC0415, takes 0.2 s, which --help does not need

    try:
        return load_settings()
    except SettingsError as error:
        exit_with(str(error), WRONG_USAGE)
