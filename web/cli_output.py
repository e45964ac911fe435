"""What all commands have in common: how they tell, end, and find their settings."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console

from config.settings import Settings, SettingsError, load_settings

FAILED, WRONG_USAGE = 1, 2
"""How commands end that do not succeed."""


def say(message: str) -> None:
    """Says something to whoever runs the command, beside its output."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(f"convertd: {message}")


def fail(message: str, status: int) -> NoReturn:
    """Says what is wrong, and ends the command."""
    say(message)
    raise typer.Exit(status) from None


def settings_or_exit() -> Settings:
    """The settings of this process; a command that cannot use them ends."""
    try:
        return load_settings()
    except SettingsError as error:
        fail(str(error), WRONG_USAGE)
