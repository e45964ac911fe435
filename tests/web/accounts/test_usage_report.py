"""The charts and figures of the dashboard."""

from datetime import date

import pytest

from storage.tables.usage import DayUsage, PairUsage
from web.services.accounts import usage_report

NOVEMBER = 1_793_491_200  # 2026-11-01


def test_every_day_has_a_column() -> None:
    day = DayUsage("2026-11-02", conversions=8, failed=2, credits=6, bytes_in=1, bytes_out=1)
    chart = usage_report.daily_chart([day], NOVEMBER, NOVEMBER + 3 * 86_400)
    assert [column.day for column in chart.columns] == [date(2026, 11, number) for number in (1, 2, 3)]
    first, second, third = chart.columns
    assert (first.usage, second.usage, third.usage) == (None, day, None)
    assert chart.top == 8
    assert (second.succeeded, second.failed) == (usage_report.HEIGHT * 6 / 8, usage_report.HEIGHT * 2 / 8)
    assert 0 <= first.x < second.x < third.x
    assert third.x + third.width <= usage_report.WIDTH


@pytest.mark.parametrize(
    ("most", "top"), [(0, 4), (1, 4), (5, 8), (9, 10), (11, 20), (21, 40), (99, 100), (100, 100), (101, 200)]
)
def test_half_of_the_scale_is_an_integer(most: int, top: int) -> None:
    day = DayUsage("2026-11-01", conversions=most, failed=0, credits=0, bytes_in=0, bytes_out=0)
    assert usage_report.daily_chart([day], NOVEMBER, NOVEMBER + 1).top == top


def test_less_frequent_pairs_share_one_bar() -> None:
    pairs = [PairUsage("png", f"f{number}", count=20 - number, credits=0) for number in range(10)]
    bars = usage_report.pair_bars(pairs)
    assert len(bars) == 9
    assert (bars[0].label, bars[0].count, bars[0].share) == ("png → f0", 20, 87.0)
    assert (bars[-1].label, bars[-1].count, bars[-1].share) == ("all others", 23, 100)
    assert usage_report.pair_bars([]) == ()


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 kB"), (5 << 30, "5.0 GB")])
def test_sizes(number: int, text: str) -> None:
    assert usage_report.format_size(number) == text
