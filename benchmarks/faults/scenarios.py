"""The scenarios by their numbers, and the table of what they found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import typer

from benchmarks.faults import hostile_files, kills, overload, races, slow_clients, stores
from benchmarks.report import COLUMNS, Report, Row

_SHARE = 10  # the quick counts are this part of the full ones

SCENARIOS: Mapping[str, Callable[[Path, int], list[Row]]] = MappingProxyType(
    {
        "F1": kills.jobs,
        "F2": kills.server,
        "F3": stores.redis,
        "F4": stores.full_disk,
        "F5": stores.locked,
        "F6": stores.postgresql,
        "F7": lambda _folder, _share: list(overload.stop(8).rows),
        "F8": slow_clients.gone,
        "F9": slow_clients.slow,
        "F10": lambda _folder, share: list(overload.overload(max(10, 60 // share)).rows),
        "F11": hostile_files.files,
        "F12": slow_clients.malformed,
        "F13": races.last_credit,
        "F15": kills.signals,
    }
)
"""Each takes an empty folder and by how much to divide its counts."""


def run(names: Sequence[str], *, quick: bool) -> Report:
    """Runs these scenarios, or all, one after the other."""
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"no such scenario: {', '.join(unknown)}")
    rows: list[Row] = []
    for name in names or SCENARIOS:
        with TemporaryDirectory(prefix="convertd-faults-") as folder:
            rows += [(name, *row) for row in SCENARIOS[name](Path(folder), _SHARE if quick else 1)]
    title = f"faults, counts divided by {_SHARE}" if quick else "faults"
    return Report(title, ("scenario", *COLUMNS), tuple(rows))


def passed(report: Report) -> bool:
    """Whether every figure is what it must be."""
    return all(row[-1] != "NO" for row in report.rows)
