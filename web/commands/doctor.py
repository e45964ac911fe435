"""The command that examines the installation."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from importlib.metadata import version as distribution_version
from typing import Any

from rich.console import Console
from rich.table import Table

from config.settings import Settings
from engine.registry import Registry, load_registry
from engine.sandbox import SandboxReport
from web.cli_output import settings_or_exit
from web.executor_setup import local_executor


def run(*, as_json: bool) -> None:
    """Tells what works here, and what is missing."""
    found = _findings(load_registry())
    if as_json:
        return print(json.dumps(found, indent=2))
    table = Table("what", "state")
    for name, held in {**found["sandbox"]["layers"], **found["sandbox"]["proofs"]}.items():
        table.add_row(f"sandbox: {name}", "on" if held else "not here")
    for plugin in found["plugins"]:
        table.add_row(f"plugin: {plugin['name']}", plugin["error"] or plugin["summary"])
    for need in found["missing"]:
        table.add_row(f"missing: {need['name']}", f"needed for {need['purpose']}: {need['install']}")
    return Console().print(table)


def _findings(registry: Registry) -> dict[str, Any]:
    report = asyncio.run(_examined(settings_or_exit()))
    return {
        "version": distribution_version("convertd"),
        "sandbox": {"layers": report.layers, "proofs": report.checks},
        "plugins": [
            {
                "name": plugin.name,
                "summary": plugin.summary,
                "reads": [fmt.name for fmt in plugin.reads],
                "writes": [fmt.name for fmt in plugin.writes],
                "error": plugin.error,
            }
            for plugin in registry.plugins
        ],
        "missing": [asdict(need) for need in registry.missing],
        "pairs": len(registry.catalogue()),
    }


async def _examined(chosen: Settings) -> SandboxReport:
    """What `serve` would find; the doctor does not refuse to look where it is not enough."""
    executor = local_executor(chosen, 1)
    try:
        return await executor.examine()
    finally:
        await executor.close()
