"""The config command: the settings in effect."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from config.effective import effective
from web.terminal import settings


def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Tell the settings in effect and where they come from, without secrets."""
    found = effective(settings())
    if as_json:
        told = {setting.name: {"value": setting.value, "source": setting.source} for setting in found}
        return print(json.dumps(told, indent=2))
    table = Table("setting", "value", "source")
    for setting in found:
        table.add_row(setting.name, "" if setting.value is None else str(setting.value), setting.source)
    return Console(soft_wrap=True, markup=False).print(table)
