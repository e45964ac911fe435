"""What accounts did: one row for every operation that ran to its end, and the report over a period."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from peewee import SQL, fn

from storage import models
from storage.charge_queries import ADD_USE
from storage.transaction import Transaction

Operation = Literal["convert", "batch", "pdf_merge", "pdf_delete_pages"]

_OPERATIONS: tuple[str, ...] = get_args(Operation)
_DAY = 86_400  # seconds


@dataclass(frozen=True)
class UsageRecord:
    """An operation: formats by their names, bytes of all inputs and of the result."""

    operation: Operation
    input_format: str
    output_format: str
    bytes_in: int
    bytes_out: int = 0


@dataclass(frozen=True)
class PairUsage:
    """What was converted between a pair of formats, failures included."""

    input_format: str
    output_format: str
    count: int
    credits: int


@dataclass(frozen=True)
class DayUsage:
    """A day (in UTC, YYYY-MM-DD) on which something was done; `failed` are among the `conversions`."""

    date: str
    conversions: int
    failed: int
    credits: int
    bytes_in: int
    bytes_out: int


@dataclass(frozen=True)
class UsageReport:
    """What an account did in a period. Totals include failures; days without any use are left out."""

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
    """Uses that have day, operation, formats and outcome in common. The fields stand in the query's order."""

    day: int
    operation: str
    input_format: str
    output_format: str
    success: bool
    count: int
    credits: int
    bytes_in: int
    bytes_out: int


def record(transaction: Transaction, account: str, use: UsageRecord, *, success: bool, credits: int) -> None:
    """Notes an operation that has ended, in the transaction that charges it or gives its credits back."""
    row = {field.name: getattr(use, field.name) for field in fields(use)}
    row |= {"account": account, "success": success, "credits": credits, "at": transaction.now}
    transaction.ask(ADD_USE, **row)


def report(transaction: Transaction, account: str, start: int, end: int) -> UsageReport:
    """What the account did from `start` until before `end`, both Unix time in whole seconds."""
    groups = _groups(transaction, account, start, end)
    total = sum(group.count for group in groups)
    failed = sum(group.count for group in groups if not group.success)
    bytes_in, bytes_out = sum(group.bytes_in for group in groups), sum(group.bytes_out for group in groups)
    return UsageReport(
        total_conversions=total,
        successful_conversions=total - failed,
        failed_conversions=failed,
        credits_used=sum(group.credits for group in groups),
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        bytes_total=bytes_in + bytes_out,
        by_operation={name: sum(group.count for group in groups if group.operation == name) for name in _OPERATIONS},
        by_conversion=_by_conversion(groups),
        by_day=_by_day(groups),
    )


def _groups(transaction: Transaction, account: str, start: int, end: int) -> list[_Group]:
    table = models.Usage
    day = SQL(f"at / {_DAY}")
    common = (day, table.operation, table.input_format, table.output_format, table.success)
    sums = [fn.SUM(column) for column in (table.credits, table.bytes_in, table.bytes_out)]
    query = (
        table.select(*common, fn.COUNT(SQL("*")), *sums)
        .where((table.account == account) & (table.at >= start) & (table.at < end))
        .group_by(*common)
    )
    return [_group(row) for row in transaction.tuples(query)]


def _group(row: tuple[Any, ...]) -> _Group:
    day, operation, input_format, output_format, success, *numbers = row
    # PostgreSQL sums up to decimals.
    return _Group(day, operation, input_format, output_format, bool(success), *(int(number) for number in numbers))


def _by_conversion(groups: Iterable[_Group]) -> tuple[PairUsage, ...]:
    """The pairs, those used most first."""
    pairs: dict[tuple[str, str], list[_Group]] = {}
    for group in groups:
        pairs.setdefault((group.input_format, group.output_format), []).append(group)
    conversions = [
        PairUsage(*pair, count=sum(one.count for one in ones), credits=sum(one.credits for one in ones))
        for pair, ones in pairs.items()
    ]
    return tuple(sorted(conversions, key=lambda one: (-one.count, one.input_format, one.output_format)))


def _by_day(groups: Iterable[_Group]) -> tuple[DayUsage, ...]:
    days: dict[int, list[_Group]] = {}
    for group in groups:
        days.setdefault(group.day, []).append(group)
    return tuple(_day(number, days[number]) for number in sorted(days))


def _day(number: int, groups: Iterable[_Group]) -> DayUsage:
    groups = list(groups)
    return DayUsage(
        date=datetime.fromtimestamp(number * _DAY, UTC).strftime("%Y-%m-%d"),
        conversions=sum(group.count for group in groups),
        failed=sum(group.count for group in groups if not group.success),
        credits=sum(group.credits for group in groups),
        bytes_in=sum(group.bytes_in for group in groups),
        bytes_out=sum(group.bytes_out for group in groups),
    )
