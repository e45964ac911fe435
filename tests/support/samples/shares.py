"""Shares of what takes long to test: another one each day, and with `--long` all of it."""

import os
from collections.abc import Sequence
from datetime import date
from typing import TypeVar

import pytest

T = TypeVar("T")

_DAY = "DAY_OF_THE_TESTS"


def begin_day() -> None:
    """Chooses the shares of today for all processes of a test run, also if it begins before midnight."""
    os.environ.setdefault(_DAY, str(date.today().toordinal()))


def number_of_share(config: pytest.Config, shares: int) -> tuple[int, int]:
    """The number of the share of the day, from 0, and the number of shares, which is 1 with `--long`."""
    count = 1 if config.getoption("long") else shares
    return int(os.environ[_DAY]) % count, count


def share(items: Sequence[T], config: pytest.Config, shares: int) -> Sequence[T]:
    """One of that number of shares of the items, or all of them with `--long`."""
    first, count = number_of_share(config, shares)
    return items[first::count]
