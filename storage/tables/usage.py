"""Usage: one row per finished operation, sums per day, and reports over a period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Literal, get_args

from storage.database import Transaction
from storage.database.sql_statements import INSERT_USAGE
from storage.tables import models

Operation = Literal["convert", "batch", "pdf_merge", "pdf_delete_pages"]

_OPERATIONS: tuple[str, ...] = get_args(Operation)
_DAY = 86_400  # seconds


@dataclass(frozen=True)
class UsageRecord:
    """An operation: names of its formats, size of all inputs and of the result in bytes."""

    operation: Operation
    input_format: str
    output_format: str
    bytes_in: int
    bytes_out: int = 0


@dataclass(frozen=True)
class PairUsage:
    """Conversions from one format to another, failed ones included."""

    input_format: str
    output_format: str
    count: int
    credits: int


@dataclass(frozen=True)
class DayUsage:
    """Usage of one day (UTC, YYYY-MM-DD). `conversions` includes `failed`."""

    date: str
    conversions: int
    failed: int
    credits: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class UsageReport:
    """Usage of an account in a period. Totals include failures; days without usage are omitted."""

    total_conversions: int
    successful_conversions: int
    failed_conversions: int
    credits_used: int
    bytes_in: int
    bytes_out: int
    bytes_total: int
    by_operation: Mapping[str, int]
    by_conversion: tuple[PairUsage, ...]
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
    """Records a finished operation and adds it to the sums of its day.

    Runs in the transaction that charges or releases its hold, after the changes of the account: all transactions lock
    accounts before sums.
    """
    row = {field.name: getattr(operation, field.name) for field in fields(operation)}
    row |= {"account": account, "success": success, "credits": credits, "at": transaction.now}
    transaction.execute_statement(INSERT_USAGE, **row)


def report(transaction: Transaction, account: str, start: int, end: int) -> UsageReport:
    """Returns the usage from `start` up to but excluding `end`, both Unix time in seconds.

    Usage is summed per day: `start` is the beginning of a day (UTC), and the day of the last second counts as a whole.
    """
    groups = _groups(transaction, account, start, end)
    total = sum(group.conversions for group in groups)
    failed = sum(group.conversions for group in groups if not group.success)
    bytes_in, bytes_out = sum(group.bytes_in for group in groups), sum(group.bytes_out for group in groups)
    return UsageReport(
        total_conversions=total,
        successful_conversions=total - failed,
        failed_conversions=failed,
        credits_used=sum(group.credits for group in groups),
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        bytes_total=bytes_in + bytes_out,
        by_operation={
            name: sum(group.conversions for group in groups if group.operation == name) for name in _OPERATIONS
        },
        by_conversion=_by_conversion(groups),
        by_day=_by_day(groups),
    )


def _groups(transaction: Transaction, account: str, start: int, end: int) -> list[_Group]:
    table = models.UsageDay
    columns = [getattr(table, field.name) for field in fields(_Group)]
    days = (table.account == account) & (table.day >= start // _DAY) & (table.day <= (end - 1) // _DAY)
    return [_Group(*row) for row in transaction.rows(table.select(*columns).where(days))]


def _by_conversion(groups: Iterable[_Group]) -> tuple[PairUsage, ...]:
    """Pairs of formats, most used first."""
    pairs: dict[tuple[str, str], list[_Group]] = {}
    for group in groups:
        pairs.setdefault((group.input_format, group.output_format), []).append(group)
    conversions = [
        PairUsage(*pair, count=sum(group.conversions for group in same), credits=sum(group.credits for group in same))
        for pair, same in pairs.items()
    ]
    return tuple(sorted(conversions, key=lambda usage: (-usage.count, usage.input_format, usage.output_format)))


def _by_day(groups: Iterable[_Group]) -> tuple[DayUsage, ...]:
    days: dict[int, list[_Group]] = {}
    for group in groups:
        days.setdefault(group.day, []).append(group)
    return tuple(_day(number, days[number]) for number in sorted(days))


def _day(number: int, groups: Iterable[_Group]) -> DayUsage:
    groups = list(groups)
    return DayUsage(
        date=datetime.fromtimestamp(number * _DAY, UTC).strftime("%Y-%m-%d"),
        conversions=sum(group.conversions for group in groups),
        failed=sum(group.conversions for group in groups if not group.success),
        credits=sum(group.credits for group in groups),
        bytes_in=sum(group.bytes_in for group in groups),
        bytes_out=sum(group.bytes_out for group in groups),
    )
