"""What the dashboard tells of an account beside its report: how long credits last, and what went wrong of late."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from storage.requests import Request
from storage.usage import Report
from web.services.accounts import Account
from web.services.periods import Period


def months(account: Account) -> list[str]:
    """The latest twelve months since the account was opened, the current one first."""
    opened, month = datetime.fromtimestamp(account.created_at, UTC), datetime.now(UTC).replace(day=1)
    found: list[str] = []
    while len(found) < 12 and (month.year, month.month) >= (opened.year, opened.month):
        found.append(f"{month:%Y-%m}")
        month = (month - timedelta(days=1)).replace(day=1)
    return found


def rate(account: Account, report: Report, chosen: Period) -> float:
    """Credits a day, as they were used in the period or since the account was opened."""
    days = (min(chosen.end, time.time()) - max(chosen.start, account.created_at)) / 86_400
    return report.credits_used / max(1.0, days)


def lasting(days: float) -> str:
    """How long credits last that are enough for so many days."""
    if days < 1:
        return "less than a day at this rate"
    return "more than a year at this rate" if days > 365 else f"{days:.0f} days at this rate"


def errors(requests: Sequence[Request]) -> list[tuple[str, int, int, int]]:
    """Code, status, number and latest time (Unix time) of the errors among these, the most frequent first."""
    failed = [request for request in requests if request.code]
    counts = Counter(str(request.code) for request in failed)
    latest = {str(request.code): request for request in reversed(failed)}
    return [
        (code, latest[code].status, count, latest[code].at_milliseconds // 1000) for code, count in counts.most_common()
    ]
