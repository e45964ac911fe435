"""The scenarios by their numbers, and the table of what they found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import typer

from benchmarks.faults import abuse, hostile, kills, load, races, stores
from benchmarks.faults.figures import COLUMNS, Row
from benchmarks.report import Report

_SHARE = 10  # the quick counts are this part of the full ones

SCENARIOS: Mapping[str, Callable[[Path, int], list[Row]]] = MappingProxyType(
    {
        "F1": kills.jobs,
        "F2": kills.server,
        "F3": stores.redis,
        "F4": stores.full_disk,
        "F5": stores.locked,
        "F6": stores.postgresql,
        "F7": lambda _folder, _share: list(load.stop(8).rows),
        "F8": abuse.gone,
        "F9": abuse.slow,
        "F10": lambda _folder, share: list(load.overload(max(10, 60 // share)).rows),
        "F11": hostile.files,
        "F12": abuse.malformed,
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
