"""Usage as plots: what stands where, in the units of the drawing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from storage.request_log import LoggedRequest
from storage.usage import DayUsage, PairUsage, UsageReport
from web.api.times import Period
from web.services.accounts import Account

WIDTH, HEIGHT = 720, 180
_GAP = 0.25  # of a day's room
_PAIRS = 8


@dataclass(frozen=True)
class Column:
    """A day: from `x`, `width` wide; of `succeeded` and `failed` units of height, failures on top."""

    day: date
    x: float
    width: float
    succeeded: float
    failed: float
    use: DayUsage | None


@dataclass(frozen=True)
class Chart:
    """The days of a period, and the number of conversions that the full height stands for."""

    columns: tuple[Column, ...]
    top: int


@dataclass(frozen=True)
class Bar:
    """A pair of formats, and its share of the longest bar, in percent."""

    label: str
    count: int
    share: float


def by_day(days: Sequence[DayUsage], start: int, end: int) -> Chart:
    """A column for every day from `start` until before `end` (Unix time), those without use included."""
    used = {day.date: day for day in days}
    first, last = (datetime.fromtimestamp(at, UTC).date() for at in (start, max(start, end - 1)))
    number = (last - first).days + 1
    top = _round(max((day.conversions for day in days), default=0))
    room = WIDTH / number
    columns = []
    for index in range(number):
        day = first + timedelta(days=index)
        use = used.get(day.isoformat())
        done, failed = (use.conversions - use.failed, use.failed) if use else (0, 0)
        heights = (HEIGHT * done / top, HEIGHT * failed / top)
        columns.append(Column(day, round((index + _GAP / 2) * room, 2), round(room * (1 - _GAP), 2), *heights, use))
    return Chart(tuple(columns), top)


def by_pair(pairs: Sequence[PairUsage]) -> tuple[Bar, ...]:
    """The pairs that were used most, and all others as one."""
    named = [(f"{pair.input_format} → {pair.output_format}", pair.count) for pair in pairs[:_PAIRS]]
    rest = sum(pair.count for pair in pairs[_PAIRS:])
    counts = [*named, *([("all others", rest)] if rest else [])]
    longest = max((count for _, count in counts), default=1)
    return tuple(Bar(label, count, round(100 * count / longest, 1)) for label, count in counts)


def size(number: int) -> str:
    """So many bytes, for people."""
    if number < 1024:
        return f"{number} B"
    value, unit = next(
        (number / 1024**power, unit)
        for power, unit in enumerate(("kB", "MB", "GB", "TB"), 1)
        if number < 1024 ** (power + 1) or unit == "TB"
    )
    return f"{value:.1f} {unit}"


def _round(number: int) -> int:
    """The next of 4, 8, 10, 20, 40, 80, 100 and so on, which all halve evenly."""
    least = max(number, 4)
    scale = int(10 ** (len(str(least)) - 1))
    return next(step * scale for step in (1, 2, 4, 8, 10) if step * scale >= least)


def months(account: Account) -> list[str]:
    """The latest twelve months since the account was opened, the current one first."""
    opened, month = datetime.fromtimestamp(account.created_at, UTC), datetime.now(UTC).replace(day=1)
    found: list[str] = []
    while len(found) < 12 and (month.year, month.month) >= (opened.year, opened.month):
        found.append(f"{month:%Y-%m}")
        month = (month - timedelta(days=1)).replace(day=1)
    return found


def rate(account: Account, report: UsageReport, chosen: Period) -> float:
    """Credits a day, as they were used in the period or since the account was opened."""
    days = (min(chosen.end, time.time()) - max(chosen.start, account.created_at)) / 86_400
    return report.credits_used / max(1.0, days)


def lasting(days: float) -> str:
    """How long credits last that are enough for so many days."""
    if days < 1:
        return "less than a day at this rate"
    return "more than a year at this rate" if days > 365 else f"{days:.0f} days at this rate"


def errors(requests: Sequence[LoggedRequest]) -> list[tuple[str, int, int, int]]:
    """Code, status, number and latest time (Unix time) of the errors among these, the most frequent first."""
    failed = [request for request in requests if request.code]
    counts = Counter(str(request.code) for request in failed)
    latest = {str(request.code): request for request in reversed(failed)}
    return [
        (code, latest[code].status, count, latest[code].at_milliseconds // 1000) for code, count in counts.most_common()
    ]
