"""Checks of options that change pictures in memory, animations and palettes, for any pair of formats."""

from engine import OptionValues
from tests.support.results.conversions import codes, opened
from tests.support.results.facts import facts
from tests.support.results.pairs import Check, Pair, expect


def check_trim(pair: Pair) -> None:
    """The samples have no border of one color; with all differences allowed, they have one."""
    expect(pair, {"trim": 8})
    expect(pair, {"trim": 100})


def check_radius(pair: Pair) -> None:
    """The corners that are looked at stay."""
    found = facts(pair.target.name, pair.convert({"radius": "5"}).data)
    assert {name: found[name] for name in ("size", "corners")} == {
        name: pair.base[name] for name in ("size", "corners")
    }


PADDED: OptionValues = {"background": "#ff0000", "pad": "50%"}


def check_pad(pair: Pair) -> None:
    """The border is red, so that all corners are."""
    width, height = pair.base["size"]
    animated_png = pair.target.name == "png" and pair.base.get("count", 1) > 1  # as in `_background`
    expect(pair, PADDED, size=(2 * width, 2 * height), corners="rrrr", alpha=animated_png)


def animation_check(options: OptionValues) -> tuple[OptionValues, Check]:
    def check(pair: Pair) -> None:
        result = pair.convert(options)
        assert ("option_ignored" in codes(result)) == (pair.trait != "animation")
        count = pair.base.get("count", 1)
        halved = "frames" in options and pair.trait == "animation" and count > 1
        assert facts(pair.target.name, result.data).get("count", 1) == (-(-count // 2) if halved else count)

    return options, check


def palette_check(options: OptionValues) -> tuple[OptionValues, Check]:
    """Of pictures with few colors, a palette of as many changes nothing that is seen."""

    def check(pair: Pair) -> None:
        result = pair.convert(options)
        found = facts("png", result.data)
        assert [found[name] for name in ("size", "corners")] == [pair.base[name] for name in ("size", "corners")]
        assert ("option_ignored" in codes(result)) == (pair.base.get("count", 1) > 1)
        assert (opened(result.data).mode == "P") == (pair.base.get("count", 1) == 1)

    return options, check
