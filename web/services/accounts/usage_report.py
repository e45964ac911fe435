"""The figures of the dashboard: charts, rates and summaries of an account's usage."""

import csv
import io
import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, timedelta
from typing import Any

from config.pricing import Pack
from storage.tables.request_log import LoggedRequest
from storage.tables.usage import DayUsage, PairUsage, UsageReport
from web.api.fields import Period
from web.locale.languages import Language, Translate
from web.services.accounts.accounts import Account

WIDTH = 720  # SVG units
HEIGHT = 180
_GAP = 0.25  # share of the width of a day
_MAX_BARS = 8
_MAX_MONTHS = 12


@dataclass(frozen=True)
class Column:
    """A day of a chart. `x`, `width` and the heights `succeeded` and `failed` are in SVG units."""

    day: date
    x: float
    width: float
    succeeded: float
    failed: float
    usage: DayUsage | None


@dataclass(frozen=True)
class Chart:
    """The days of a period. `top` is the number of conversions that the full height represents."""

    columns: tuple[Column, ...]
    top: int


@dataclass(frozen=True)
class Bar:
    """The count of a pair of formats. `share` is the length in percent of the longest bar."""

    label: str
    count: int
    share: float


def daily_chart(days: Sequence[DayUsage], start: int, end: int) -> Chart:
    """One column per day from `start` up to, not including, `end` (Unix time), including days without usage."""
    used = {day.date: day for day in days}
    first, last = (datetime.fromtimestamp(time_, UTC).date() for time_ in (start, max(start, end - 1)))
    number = (last - first).days + 1
    top = _round_up(max((day.conversions for day in days), default=0))
    day_width = WIDTH / number
    width = round(day_width * (1 - _GAP), 2)
    columns = []
    for index in range(number):
        day = first + timedelta(days=index)
        x = round((index + _GAP / 2) * day_width, 2)
        usage = used.get(day.isoformat())
        succeeded, failed = (usage.conversions - usage.failed, usage.failed) if usage else (0, 0)
        columns.append(Column(day, x, width, HEIGHT * succeeded / top, HEIGHT * failed / top, usage))
    return Chart(tuple(columns), top)


def pair_bars(pairs: Sequence[PairUsage]) -> tuple[Bar, ...]:
    """The most frequent pairs, and one bar without a label for all others."""
    named = [(f"{pair.input_format} → {pair.output_format}", pair.count) for pair in pairs[:_MAX_BARS]]
    rest = sum(pair.count for pair in pairs[_MAX_BARS:])
    counts = [*named, *([("", rest)] if rest else [])]
    longest = max((count for _, count in counts), default=1)
    return tuple(Bar(label, count, round(100 * count / longest, 1)) for label, count in counts)


def _round_up(number: int) -> int:
    """Rounds up to 4, 8, 10, 20, 40, 80, 100 and so on, so that half of the scale is an integer."""
    minimum = max(number, 4)
    scale = int(10 ** (len(str(minimum)) - 1))
    return next(step * scale for step in (1, 2, 4, 8, 10) if step * scale >= minimum)


def recent_months(account: Account) -> list[str]:
    """The months since the account was created as YYYY-MM, at most 12, newest first."""
    created = datetime.fromtimestamp(account.created_at, UTC)
    month = datetime.now(UTC).replace(day=1)
    months: list[str] = []
    while len(months) < _MAX_MONTHS and (month.year, month.month) >= (created.year, created.month):
        months.append(f"{month:%Y-%m}")
        month = (month - timedelta(days=1)).replace(day=1)
    return months


def credits_per_day(account: Account, report: UsageReport, period: Period) -> float:
    """Mean number of credits used per day of the period, without days before the account was created."""
    days = (min(period.end, time.time()) - max(period.start, account.created_at)) / 86_400
    return report.credits_used / max(1.0, days)


def describe_days(days: float, language: Language) -> str:
    """Describes how long credits last at the current rate."""
    if days < 1:
        return language.translate("less than a day at this rate")
    if days > 365:
        return language.translate("more than a year at this rate")
    count = round(days)
    return language.translate("{count} day at this rate", "{count} days at this rate", count).format(count=count)


def describe_price(pack: Pack, language: Language) -> str:
    """The price of one credit of the pack in cents, for example "0.75 cents per conversion"."""
    cents = float(f"{pack.amount / pack.credits:.2g}")
    text = language.translate("{number} cent per conversion", "{number} cents per conversion", 1 if cents == 1 else 2)
    return text.format(number=language.number(cents, "g"))


def error_summary(requests: Sequence[LoggedRequest]) -> list[tuple[str, int, int, int]]:
    """Code, HTTP status, count and latest time (Unix time) of each error, most frequent first."""
    failed = [request for request in requests if request.code]
    counts = Counter(str(request.code) for request in failed)
    latest = {str(request.code): request for request in reversed(failed)}
    return [
        (code, latest[code].status, count, latest[code].at_milliseconds // 1000) for code, count in counts.most_common()
    ]


def request_facts(request: LoggedRequest, details: Mapping[str, Any], translate: Translate) -> list[tuple[str, str]]:
    """Details of a request to show besides its row, its warnings and its error: names and values."""
    formats = " → ".join(details[name] for name in ("input_format", "output_format") if name in details)
    options = {name: json.dumps(value, ensure_ascii=False) for name, value in details.get("options", {}).items()}
    times = translate("{work} of {whole} ms").format(work=details.get("work_ms"), whole=request.milliseconds)
    others = {name: str(details[name]) for name in ("credits", "param", "reason") if name in details}
    shown_times = {translate("conversion"): times} if "work_ms" in details else {}
    facts = {translate("formats"): formats, **options, **shown_times, **others}
    return [(name, value) for name, value in facts.items() if value]


def usage_csv(days: Sequence[DayUsage]) -> str:
    """The usage by day as CSV with a header row."""
    text = io.StringIO(newline="")
    table = csv.DictWriter(text, [field.name for field in fields(DayUsage)])
    table.writeheader()
    table.writerows(asdict(day) for day in days)
    return text.getvalue()
