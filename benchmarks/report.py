"""Result tables, rows that compare a measured value with a requirement, and the README's section of a mode."""

import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isnan
from pathlib import Path
from statistics import quantiles
from typing import Any, TypeAlias

Row: TypeAlias = tuple[str | float, ...]

COLUMNS = ("metric", "measured", "required", "met")
"""The columns of the rows made by the functions below."""

_MET, _NOT_MET = "yes", "NO"


@dataclass(frozen=True)
class Report:
    """A table with a title and named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        """Returns the title, and the rows as objects with the columns as keys. NaN is None."""
        rows = [[None if isinstance(cell, float) and isnan(cell) else cell for cell in row] for row in self.rows]
        return {"title": self.title, "rows": [dict(zip(self.columns, row, strict=True)) for row in rows]}

    def as_text(self) -> list[list[str]]:
        """Returns the cells of the rows, numbers with three significant digits."""
        return [[_as_text(cell) for cell in row] for row in self.rows]

    def as_markdown(self) -> str:
        """Returns the title and the table in Markdown."""
        head, *rows = (f"| {' | '.join(cells)} |" for cells in (self.columns, *self.as_text()))
        return "\n".join([f"{self.title}:", "", head, "|" + "---|" * len(self.columns), *rows, ""])

    def passed(self) -> bool:
        """Whether all requirements are met."""
        return all(row[-1] != _NOT_MET for row in self.rows)


def _as_text(cell: str | float) -> str:
    if isinstance(cell, str | int):
        return str(cell)
    return "" if isnan(cell) else f"{cell:.{0 if abs(cell) >= 100 else 1 if abs(cell) >= 10 else 2}f}"


def machine() -> dict[str, str | int]:
    """Returns the date, the processor, the number of usable cores, and the version of Python."""
    processor = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor[1] if processor else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
    }


def write_readme(path: Path, mode: str, reports: Sequence[Report]) -> None:
    """Replaces the text between the markers of the mode in a Markdown file. Raises ValueError if it has none."""
    before, start, after = path.read_text().partition(f"<!-- results: {mode} -->\n")
    _, end, after = after.partition("<!-- end of results -->\n")
    if not end:
        raise ValueError(f"no results of {mode} in {path}")
    measured = "Measured on {date}: {processor}, {cores} cores, Python {python}.\n".format(**machine())
    path.write_text(before + start + "\n".join([measured, *map(Report.as_markdown, reports), end]) + after)


def info(metric: str, measured: str | float = "") -> Row:
    """Returns a row without a requirement."""
    return metric, measured, "", ""


def required(metric: str, measured: str | float, requirement: str, *, met: bool) -> Row:
    """Returns a row with a requirement in words."""
    return metric, measured, requirement, _MET if met else _NOT_MET


def equals(metric: str, measured: float, expected: float) -> Row:
    """Returns a row that requires the expected value."""
    return required(metric, measured, str(expected), met=measured == expected)


def at_most(metric: str, measured: float, limit: float) -> Row:
    """Returns a row that requires a value up to the limit."""
    return required(metric, measured, f"<= {limit:g}", met=measured <= limit)


def at_least(metric: str, measured: float, limit: float) -> Row:
    """Returns a row that requires a value from the limit up."""
    return required(metric, measured, f">= {limit:g}", met=measured >= limit)


def p99(values: Sequence[float]) -> float:
    """Returns the 99th percentile, NaN for fewer than two values."""
    return quantiles(values, n=100)[98] if len(values) > 1 else float("nan")
