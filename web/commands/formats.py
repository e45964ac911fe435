"""The command that lists the formats."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from engine.registry import load_registry
from web.services.catalogue import formats_catalogue


def run(*, as_json: bool) -> None:
    """Lists what can be converted into what."""
    catalogue = formats_catalogue(load_registry())
    if as_json:
        return print(json.dumps(catalogue, indent=2))
    table = Table("input", "outputs")
    for source, targets in catalogue["by_input_format"].items():
        table.add_row(source, " ".join(targets))
    return Console().print(table)
