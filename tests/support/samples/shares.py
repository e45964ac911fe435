"""Shares of what takes long to test: the one that `--share` names, and with `--long` all of it."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

T = TypeVar("T")

SHARES = 6  # that `--share` chooses from; every test divides its items into 1, 2, 3 or 6


def number_of_share(config: pytest.Config, shares: int) -> tuple[int, int]:
    """The number of the share to test, from 0, and the number of shares, which is 1 with `--long`."""
    assert SHARES % shares == 0, "some items would be in no run with all values of --share"
    count = 1 if config.getoption("long") else shares
    return int(config.getoption("share")) % count, count


def share(items: Sequence[T], config: pytest.Config, shares: int) -> Sequence[T]:
    """One of that number of shares of the items, or all of them with `--long`."""
    first, count = number_of_share(config, shares)
    return items[first::count]
