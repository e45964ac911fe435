"""The command that tells the settings in effect."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from config.settings import effective_settings
from web.cli_output import settings_or_exit


def run(*, as_json: bool) -> None:
    """Tells the settings in effect and where they come from, without secrets."""
    found = effective_settings(settings_or_exit())
    if as_json:
        told = {setting.name: {"value": setting.value, "source": setting.source} for setting in found}
        return print(json.dumps(told, indent=2))
    table = Table("setting", "value", "source")
    for setting in found:
        table.add_row(setting.name, "" if setting.value is None else str(setting.value), setting.source)
    return Console(soft_wrap=True, markup=False).print(table)
