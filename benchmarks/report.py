"""Result tables, and rows that compare a measured value with a requirement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
        """Returns the title, and the rows as objects with the columns as keys."""
        return {"title": self.title, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}

    def passed(self) -> bool:
        """Whether all requirements are met."""
        return all(row[-1] != _NOT_MET for row in self.rows)


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


def p95(values: Sequence[float]) -> float:
    """Returns the 95th percentile, NaN for fewer than two values."""
    return quantiles(values, n=20)[18] if len(values) > 1 else float("nan")


def p99(values: Sequence[float]) -> float:
    """Returns the 99th percentile, NaN for fewer than two values."""
    return quantiles(values, n=100)[98] if len(values) > 1 else float("nan")
