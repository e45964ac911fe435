"""Usage periods."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from web.api.errors import InvalidParameter


@dataclass(frozen=True)
class Period:
    """A period from `start` to before `end`, in Unix time, with the name that the client used."""

    name: str
    start: int
    end: int


def parse_period(text: str | None, now: int) -> Period:
    """The calendar month `YYYY-MM`, or from the day `YYYY-MM-DD` to now. None is the current month.

    Raises InvalidParameter.
    """
    name = f"{datetime.fromtimestamp(now, UTC):%Y-%m}" if text is None else text
    try:
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}", name):
            first = datetime.strptime(name, "%Y-%m").replace(tzinfo=UTC)
            next_month = (first + timedelta(days=31)).replace(day=1)
            return Period(name, int(first.timestamp()), int(next_month.timestamp()))
        if re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", name):
            start = int(datetime.strptime(name, "%Y-%m-%d").replace(tzinfo=UTC).timestamp())
            return Period(name, start, max(start, now) + 1)  # includes the current second
    except (ValueError, OverflowError):
        pass  # no such day
    raise InvalidParameter("period must be a month YYYY-MM or a day YYYY-MM-DD.", reason="malformed", param="period")
