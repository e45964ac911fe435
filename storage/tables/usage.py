"""Usage: one row per finished operation, sums per day, and reports over a period."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

from pydantic import Field, TypeAdapter, WithJsonSchema

from storage.database.transaction import Statement, Transaction, columns, insert, reading
from storage.field_types import Count, Credits, Size, Timestamp
from storage.tables import backfills, models

Operation: TypeAlias = str
"""`convert`, `batch`, or the id of a tool with `_` for `-`."""

OPERATIONS: tuple[Operation, ...] = ("convert", "batch", "pdf_merge", "pdf_delete_pages")
"""The operations that every report includes."""

_DAY = 86_400  # seconds
_COUNT = TypeAdapter(Count).json_schema()


@dataclass(frozen=True)
class UsageRecord:
    """An operation: names of its formats, size of all inputs and of the result in bytes."""

    operation: str
    input_format: str
    output_format: str
    bytes_in: int
    bytes_out: int = 0


_NAMES = ", ".join(field.name for field in fields(UsageRecord))
INSERT_USAGE = insert("usage", f"account, {_NAMES}, success, credits, at")
SUM_USAGE = Statement(
    "SELECT at / 86400, operation, input_format, output_format, success,"
    " COUNT(*), SUM(credits), SUM(bytes_in), SUM(bytes_out) FROM usage"
    " WHERE account = :account AND at >= :start AND at < :end GROUP BY 1, 2, 3, 4, 5"
)


@dataclass(frozen=True)
class PairUsage:
    """Conversions of a pair of formats, failed ones included."""

    input_format: Annotated[str, Field(examples=["jpeg"])]
    output_format: Annotated[str, Field(examples=["webp"])]
    count: Count
    credits: Credits


@dataclass(frozen=True)
class DayUsage:
    """Usage on a day (UTC). `conversions` includes `failed`."""

    date: Annotated[str, Field(pattern=r"^\d{4}-\d\d-\d\d$", examples=["2026-11-21"])]
    conversions: Count
    failed: Count
    credits: Credits
    bytes_in: Size
    bytes_out: Size


@dataclass(frozen=True)
class UsageReport:
    """Usage in a period. Totals include failed conversions; days without conversions are omitted."""

    start: Timestamp
    end: Timestamp
    total_conversions: Count
    successful_conversions: Count
    failed_conversions: Count
    credits_used: Credits
    bytes_in: Size
    bytes_out: Size
    bytes_total: Size
    by_operation: Annotated[
        Mapping[Operation, int],
        WithJsonSchema(
            {
                "type": "object",
                "description": "Conversions by endpoint, or by the id of a tool, with `_` for `-`.",
                "properties": dict.fromkeys(OPERATIONS, _COUNT),
                "required": list(OPERATIONS),
                "additionalProperties": _COUNT,
            },
            mode="serialization",
        ),
    ]
    by_conversion: Annotated[tuple[PairUsage, ...], Field(description="Most frequent first.")]
    by_day: tuple[DayUsage, ...]


@dataclass(frozen=True)
class _Group:
    """Sums of the operations with equal day, operation, formats and success."""

    day: int
    operation: str
    input_format: str
    output_format: str
    success: bool
    conversions: int
    credits: int
    bytes_in: int
    bytes_out: int


def record(transaction: Transaction, account: str, operation: UsageRecord, *, success: bool, credits: int) -> None:
    """Records a finished operation. A trigger adds it to the sums of its day.

    Runs in the transaction that charges or releases its hold, after the changes of the account: all transactions lock
    accounts before sums.
    """
    values = {"account": account, "success": success, "credits": credits, "at": transaction.now}
    transaction.execute_statement(INSERT_USAGE, **vars(operation), **values)


@reading
def report(transaction: Transaction, account: str, start: int, end: int) -> UsageReport:
    """Returns the usage from `start` up to but excluding `end`, both Unix time in seconds.

    Usage is summed per day: `start` is the beginning of a day (UTC), and the day of the last second counts as a whole.
    """
    table = models.UsageDay
    days = (table.account == account) & (table.day >= start // _DAY) & (table.day <= (end - 1) // _DAY)
    groups = transaction.values(_Group, table.select(*columns(table, _Group)).where(days))
    if backfills.is_pending(transaction, "usage_day"):
        groups = _sum_usage(transaction, account, start // _DAY, (end - 1) // _DAY)
    total = _sum(groups, "conversions")
    failed = _failed(groups)
    bytes_in = _sum(groups, "bytes_in")
    bytes_out = _sum(groups, "bytes_out")
    pairs = [
        PairUsage(source, target, _sum(same, "conversions"), _sum(same, "credits"))
        for (source, target), same in _grouped(groups, "input_format", "output_format")
    ]
    used = {operation: _sum(same, "conversions") for operation, same in _grouped(groups, "operation")}
    return UsageReport(
        start=start,
        end=end,
        total_conversions=total,
        successful_conversions=total - failed,
        failed_conversions=failed,
        credits_used=_sum(groups, "credits"),
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        bytes_total=bytes_in + bytes_out,
        by_operation=dict.fromkeys(OPERATIONS, 0) | used,
        by_conversion=tuple(sorted(pairs, key=lambda pair: -pair.count)),
        by_day=tuple(_day(number, same) for number, same in _grouped(groups, "day")),
    )


def _sum_usage(transaction: Transaction, account: str, first: int, last: int) -> tuple[_Group, ...]:
    """Sums the usage of these days."""
    sums = transaction.execute_statement(SUM_USAGE, account=account, start=first * _DAY, end=(last + 1) * _DAY)
    values = ([*row[:4], bool(row[4]), *map(int, row[5:])] for row in sums)
    return tuple(_Group(*group) for group in values)


def _day(number: int, groups: Sequence[_Group]) -> DayUsage:
    sums = {name: _sum(groups, name) for name in ("conversions", "credits", "bytes_in", "bytes_out")}
    return DayUsage(f"{datetime.fromtimestamp(number * _DAY, UTC):%Y-%m-%d}", failed=_failed(groups), **sums)


def _failed(groups: Iterable[_Group]) -> int:
    return sum(group.conversions for group in groups if not group.success)


def _sum(groups: Iterable[_Group], name: str) -> int:
    return sum(getattr(group, name) for group in groups)


def _grouped(groups: Iterable[_Group], *names: str) -> Iterator[tuple[Any, list[_Group]]]:
    """Groups with equal values of these fields, in the order of the values."""
    values = attrgetter(*names)
    return ((value, list(same)) for value, same in groupby(sorted(groups, key=values), values))
