"""Formats recognize their payloads, also of types that are imported late."""

from fractions import Fraction

import pytest

from engine import Format


class _Half(Fraction):
    pass


@pytest.mark.parametrize("payload", [Fraction, "fractions.Fraction"])
def test_payloads(payload: type | str) -> None:
    fmt: Format[Fraction] = Format("fraction", payload)

    assert fmt.holds(Fraction(1, 3))
    assert fmt.holds(_Half(1, 2))
    assert not fmt.holds(0.5)
    assert not fmt.holds(None)
