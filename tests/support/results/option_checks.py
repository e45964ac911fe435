"""Checks of options that change images in memory, animations and palettes, for any pair of formats."""

from engine import OptionValues
from plugins._color import profiles
from tests.support.results.conversions import codes, opened
from tests.support.results.facts import facts
from tests.support.results.pairs import Check, Pair, changes, expect


def check_trim(pair: Pair) -> None:
    """The samples have no border of one color; with all differences allowed, they have one."""
    expect(pair, {"trim": 8})
    expect(pair, {"trim": 100})


def check_radius(pair: Pair) -> None:
    """The corners that are looked at stay."""
    seen = facts(pair.target.name, pair.convert({"radius": "5"}).data)
    assert {name: seen[name] for name in ("size", "corners")} == {name: pair.base[name] for name in ("size", "corners")}


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
    """Of images with few colors, a palette of as many changes nothing that is seen."""

    def check(pair: Pair) -> None:
        result = pair.convert(options)
        found = facts(pair.target.name, result.data)
        assert [found[name] for name in ("size", "corners")] == [pair.base[name] for name in ("size", "corners")]
        assert ("option_ignored" in codes(result)) == (pair.target.name == "gif" and "palette" in options)
        assert opened(result.data).mode == "P"

    return options, check


def _check_profile(pair: Pair) -> None:
    """Pixels that are in sRGB stay as they are; others become sRGB."""
    found = facts(pair.target.name, pair.convert({"output_profile": "srgb", "intent": "perceptual"}).data)
    corners = "rgb-" if pair.base["corners"] == "rgb-" else "----"
    assert (found["size"], found["corners"]) == (pair.base["size"], corners)
    assert "profile" not in found or found["profile"] == profiles.named("srgb").data


def check_lossy(pair: Pair) -> None:
    """Images of few colors look the same; stills have no use of it."""
    result = pair.convert({"lossy": 20})
    found = facts(pair.target.name, result.data)
    assert [found[name] for name in ("size", "corners")] == [pair.base[name] for name in ("size", "corners")]
    assert ("option_ignored" in codes(result)) == (pair.base.get("count", 1) == 1)


PROFILE_CHECKS: dict[str, tuple[OptionValues, Check]] = {
    "output_profile": ({"output_profile": "srgb"}, _check_profile),
    "intent": ({"output_profile": "srgb", "intent": "perceptual"}, _check_profile),
}
"""Values that use the options of profiles, and checks, by option."""

_MARK: OptionValues = {"watermark_text": "A", "watermark_position": "center", "watermark_size": 10}
_MARKS: dict[str, OptionValues] = {
    "watermark_text": {},
    "watermark_position": {"watermark_position": "0.5,0.5"},
    "watermark_opacity": {"watermark_opacity": 0.1},
    "watermark_size": {"watermark_size": 5},
    "watermark_margin": {"watermark_margin": 20},
    "watermark_angle": {"watermark_angle": 30},
    "watermark_color": {"watermark_color": "red"},
}
MARK_CHECKS = {name: changes({**_MARK, **options}) for name, options in _MARKS.items()}
"""The same of text in the middle, which changes no fact of an image."""
