"""A table of figures."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import quantiles
from typing import Any


@dataclass(frozen=True)
class Report:
    """Rows below named columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | int | float, ...], ...]

    def as_json(self) -> dict[str, Any]:
        """The rows by column name."""
        return {"title": self.title, "rows": [dict(zip(self.columns, row, strict=True)) for row in self.rows]}


COLUMNS = ("figure", "measured", "must be", "holds")

Row = tuple[str | float, ...]


def p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98] if len(values) > 1 else float("nan")


def p95(values: list[float]) -> float:
    return quantiles(values, n=20)[18] if len(values) > 1 else float("nan")


def holds(condition: bool) -> str:
    return "yes" if condition else "NO"


def exactly(figure: str, measured: float, wanted: float) -> Row:
    """A figure that must be what is wanted."""
    return figure, measured, str(wanted), holds(measured == wanted)


def at_most(figure: str, measured: float, limit: float) -> Row:
    """A figure that may not be more."""
    return figure, measured, f"<= {limit:g}", holds(measured <= limit)
