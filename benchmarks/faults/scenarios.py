"""The fault scenarios by number."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import typer

from benchmarks.faults import cluster, hostile_files, kills, overload, races, slow_clients, stores
from benchmarks.report import COLUMNS, Report, Row

_QUICK_DIVISOR = 10

SCENARIOS: Mapping[str, Callable[[Path, int], list[Row]]] = MappingProxyType(
    {
        "F1": kills.kill_processes,
        "F2": kills.kill_server,
        "F3": stores.redis,
        "F4": stores.full_disk,
        "F5": stores.locked_database,
        "F6": stores.postgresql,
        "F7": lambda folder, _divisor: overload.shutdown(folder, queued=8),
        "F8": slow_clients.disconnects,
        "F9": slow_clients.slow_requests,
        "F10": lambda _folder, divisor: list(overload.overload(max(10, 60 // divisor)).rows),
        "F11": hostile_files.convert_hostile_files,
        "F12": slow_clients.malformed_requests,
        "F13": races.last_credit,
        "F15": kills.signal_jobs,
        "F18": slow_clients.slow_uploads,
        "F19": overload.endless_jobs,
        "F20": kills.stop_fork_server,
        "F21": cluster.fail_everywhere,
    }
)
"""Each takes an empty folder and a divisor of its counts."""


def run(names: Sequence[str], *, quick: bool) -> Report:
    """Runs the named scenarios, by default all, one after the other. Raises BadParameter for an unknown name."""
    unknown = [name for name in names if name not in SCENARIOS]
    if unknown:
        raise typer.BadParameter(f"unknown scenarios: {', '.join(unknown)}")
    divisor = _QUICK_DIVISOR if quick else 1
    rows: list[Row] = []
    for name in names or SCENARIOS:
        with TemporaryDirectory(prefix="convertd-faults-") as folder:
            rows += [(name, *row) for row in SCENARIOS[name](Path(folder), divisor)]
    title = f"faults, counts divided by {_QUICK_DIVISOR}" if quick else "faults"
    return Report(title, ("scenario", *COLUMNS), tuple(rows))
