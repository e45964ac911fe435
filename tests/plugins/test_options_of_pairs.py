"""Every option of pairs of formats changes what it should and nothing else.

The cases are made from the registry: pairs that cover all steps, with --long all pairs.
"""

import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache

import numpy as np
import pytest

from engine import FileFormat, OptionValues, UnknownFormat
from engine.mupdf import pymupdf
from engine.pipeline import run
from engine.planner import Plan
from engine.registry import load_registry
from plugins._browser.options import Browsing, Picturing, Printing
from tests.support.results.conversions import codes
from tests.support.results.facts import Facts, facts, pixels
from tests.support.results.option_checks import (
    MARK_CHECKS,
    PADDED,
    PROFILE_CHECKS,
    animation_check,
    check_lossy,
    check_pad,
    check_radius,
    check_trim,
    palette_check,
)
from tests.support.results.pairs import DPI, Check, Pair, changes, expect, refuses, stable
from tests.support.samples.generated import sample, samples_with_traits, saved
from tests.support.samples.pairs import pairs_with_samples, sample_of
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
# Formats whose options are tested elsewhere: in test_books, test_html, test_icons, test_office, test_sheets,
# test_slides, test_texts; those of browsers are in test_html_pages. Files are in test_watermark; what servers and
# commands do by options is in tests/web.
_OTHERS = {"mov", "mp4", "webm", "cbz", "djvu", "epub", "fb2", "html", "md", "mobi", "txt", "xps", "cur", "icns", "ico"}
_OF_OTHERS = {
    "at",
    "page_size",
    "landscape",
    "margin",
    "font_size",
    "images",
    "sizes",
    "watermark",
    "filename",
    "formats",
}
_OF_OTHERS |= {"encoding", "sheet", "values", "separator", "bom", "markup", "comments", "notes", "ocr", "language"}
_OF_OTHERS |= {"bookmarks", "fit_to_width", "single_page_sheets", "renderer"}
_OF_OTHERS |= {field.name for part in (Browsing, Printing, Picturing) for field in fields(part)} - {"scale", "pages"}
# Other targets have 8 bits.
_DEPTHS = {"png": (8, 16), "tiff": (8, 16), "avif": (8, 10, 12), "heic": (8, 10), "psd": (8, 16), "psb": (8, 16)}
_DEPTHS |= dict.fromkeys(("jp2", "j2k", "jxl"), (8, 10, 12, 16))
_DEPTHS |= dict.fromkeys(("jph", "jxr", "pam", "pgm", "ppm", "sgi"), (8, 16))
_DEPTHS |= {"exr": (16,), "hdr": (16,), "pfm": (32,)}
_SLOW = ("eps", "heic")  # to write
_BILEVEL = ("pbm", "xbm")
_HOLDS_EXIF = ("jpeg", "jxl", "png", "webp", "avif", "heic", "tiff", "psd")


def _crop(pair: Pair) -> None:
    """The second quadrant is green."""
    width, height = pair.base["size"]
    expect(pair, {"crop": f"{width // 2},0,{width // 2},{height // 2}"}, size=(width // 2, height // 2), corners="gggg")
    refuses(pair, {"crop": f"{width - 1},0,2,1"})


def _rotate(pair: Pair) -> None:
    expect(pair, {"rotate": 90}, size=pair.base["size"][::-1], corners="br-g")


def _bit_depth(pair: Pair) -> None:
    available = _DEPTHS.get(pair.target.name, (8,)) if pair.base.get("count", 1) == 1 or pair.target.paged else (8,)
    for depth in (8, 10, 12, 16):
        if depth in available:
            expect(pair, {"bit_depth": depth}, depth=depth)
        else:
            refuses(pair, {"bit_depth": depth})


_CONTAIN: OptionValues = {"width": 84, "height": 84, "fit": "contain", "background": "#ff0000"}


def _background(pair: Pair) -> None:
    animated_png = (
        pair.target.name == "png" and pair.base.get("count", 1) > 1
    )  # its frames have alpha, all of it opaque
    expect(pair, _CONTAIN, size=(84, 84), corners="rrrr", alpha=animated_png)


def _metadata(pair: Pair) -> None:
    position = pair.trait == "metadata" and pair.target.name in _HOLDS_EXIF
    expect(pair, {"metadata": "none"}, camera=None, position=False)
    expect(pair, {"metadata": "all"}, position=position)
    assert pair.trait != "metadata" or "location_removed" in codes(pair.result)


def _dpi(pair: Pair) -> None:
    if pair.source == pair.target and pair.source.name in DPI:  # pages of documents keep their size
        expect(pair, {"dpi": 72})
        return
    if pair.source.name not in DPI:  # test_metadata has more
        result = pair.convert({"dpi": 72})
        found = facts(pair.target.name, result.data)
        assert found.get("dpi") in (None, (72, 72))
        assert found["corners"] == pair.base["corners"]
        assert "option_ignored" not in codes(result)
        return
    width, height = (round(side * 72 / DPI[pair.source.name]) for side in pair.base["size"])
    expect(pair, {"dpi": 72}, size=(width, height), dpi=pair.base.get("dpi") and (72, 72))


def _jpegs(pair: Pair) -> Facts:
    """What a quality changes: images in PDF become JPEG, but not those of 1 bit."""
    changed = pair.target.name == "pdf" and pair.source.name not in _BILEVEL
    return {"lossy": [True] * len(pair.base["lossy"])} if changed else {}


def _quality(pair: Pair) -> None:
    if pair.target.name in ("png", "gif"):  # without a palette, and without a limit
        assert "quality_ignored" in codes(pair.convert({"quality": 20}))
        return
    options: OptionValues = {"compression": "jpeg"} if pair.target.name == "tiff" else {}
    high, low = (pair.convert({**options, "quality": quality}) for quality in (80, 20))
    without_loss = pair.target.name == "eps" and not any(pair.base["lossy"])
    if without_loss or (pair.target.name == "pdf" and pair.source.name in _BILEVEL):
        assert "quality_ignored" in codes(low)
        assert stable(low.data) == stable(pair.result.data)
        return
    assert low.data != high.data
    if not options:
        same_format = pair.source == pair.target  # the file's own encoding is kept without a quality
        expected = facts(pair.target.name, high.data) if same_format else pair.base | _jpegs(pair)
        assert facts(pair.target.name, low.data) == expected


def _lossless(pair: Pair) -> None:
    """The pixels are those of a lossless conversion with the same depth."""
    if pair.target.name == "avif" and pair.base["count"] > 1:
        return refuses(pair, {"lossless": True})
    exact: OptionValues = {"lossless": True, "bit_depth": 8, "effort": 9}
    result = expect(pair, exact, lossless=True, depth=8)
    expected = Pair(pair.source, _REGISTRY.formats["png"], pair.data).convert({"bit_depth": 8})
    for found, original in zip(pixels(result.data), pixels(expected.data), strict=pair.target.animated):
        np.testing.assert_array_equal(found, original)
    limited = pair.convert({**exact, "quality": 50, "max_bytes": 1_000_000})
    assert "quality_ignored" in codes(limited)
    assert limited.data == result.data
    return None


def _effort(pair: Pair) -> None:
    for effort in (1, 9):
        expect(pair, {"effort": effort})


def _progressive(pair: Pair) -> None:
    if pair.target.name == "png" and pair.base["count"] > 1:
        assert "option_ignored" in codes(pair.convert({"progressive": True}))
        return
    result = expect(pair, {"progressive": True}, progressive=True)
    np.testing.assert_array_equal(pixels(result.data), pixels(pair.result.data))


def _subsampling(pair: Pair) -> None:
    for value in ("4:2:0", "4:4:4") if pair.target.name == "jpeg" else ("4:2:2",):
        expect(pair, {"subsampling": value}, subsampling=value)


def _compression(pair: Pair) -> None:
    for value in ("none", "lzw", "deflate"):
        expect(pair, {"compression": value}, compression=value)
        assert "option_ignored" in codes(pair.convert({"compression": value, "effort": 9})) or value == "deflate"
        assert "quality_ignored" in codes(pair.convert({"compression": value, "quality": 50}))
    expect(pair, {"compression": "jpeg"}, compression="jpeg", depth=8, alpha=False)


def _scale(pair: Pair) -> None:
    width, height = pair.base["size"]  # at the default resolution, if the source has no pixels
    expect(pair, {"scale": "25%"}, size=(round(width / 4), round(height / 4)))


def _exposure(pair: Pair) -> None:
    if pair.source.name in ("dds", "jxr"):  # of integers
        assert "option_ignored" in codes(pair.convert({"exposure": -9}))
    elif pair.source.name in ("exr", "hdr", "pfm"):
        expect(pair, {"exposure": -9}, corners="----")
    else:
        _development(pair)


def _raw_mode(pair: Pair) -> None:
    expect(pair, {"raw_mode": "preview"}, size=(84, 60), depth=8)


def _development(pair: Pair) -> None:
    expect(pair, {"half_size": True}, size=(84, 60))
    for options in ({"exposure": -2.0}, {"white_balance": "3000"}):
        assert pair.convert(options).data != pair.result.data


def _password(pair: Pair) -> None:
    document = pymupdf.open(stream=pair.data, filetype="pdf")
    data = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="secret", owner_pw="owner")
    encrypted = Pair(pair.source, pair.target, data)
    opened = encrypted.convert({"password": "secret"}).data
    if pair.target.name == "pdf":
        assert pymupdf.open(stream=opened, filetype="pdf").needs_pass
    else:
        assert facts(pair.target.name, opened) == pair.base
    for options in ({}, {"password": "wrong"}):
        with pytest.raises(UnknownFormat):
            encrypted.convert(options)


def _protect(pair: Pair) -> None:
    """The pages stay as they are."""
    result = pair.convert({"user_password": "secret", "allow": "print"})
    with pymupdf.open(stream=result.data, filetype="pdf") as document:
        assert document.authenticate("secret")
        assert not document.permissions & pymupdf.PDF_PERM_COPY
        plain = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_NONE)
    assert facts("pdf", plain) == pair.base
    assert codes(result) == codes(pair.result)


def _sanitize(pair: Pair) -> None:
    document = pymupdf.open(stream=pair.data, filetype="pdf")
    document.xref_set_key(document.pdf_catalog(), "OpenAction", "<</S/JavaScript/JS(run)>>")
    active = Pair(pair.source, pair.target, document.tobytes())
    assert codes(active.convert({})) == codes(pair.result) | {"active_content"}
    assert codes(active.convert({"sanitize": True})) == codes(pair.result)


def _max_bytes(pair: Pair) -> None:
    """The limit is above the size with the best quality."""
    if pair.target.name in ("png", "tiff"):  # without loss
        assert codes(pair.convert({"max_bytes": 1_000_000})) & {"option_ignored", "quality_ignored"}
        return
    options = {"quality": 90, "max_bytes": 1_000_000}
    result = expect(pair, options, subsampling="4:4:4", **{"lossless": False, **_jpegs(pair)})
    assert result.outcome.quality_used == 90


def _pages(pair: Pair) -> None:
    count = 3 if pair.trait in ("animation", "pages") else 1
    selected = ("1", 1) if count == 1 else ("2-3", 2)
    one_file = pair.target.paged or (pair.trait == "animation" and pair.target.animated)
    files: list[bytes] = []
    options = {"pages": selected[0]}
    run(pair.plan(options), [pair.data], options, on_file=lambda file: files.append(file.data))
    assert len(files) == (1 if one_file else selected[1])
    expected = pair.base | ({"count": selected[1] if one_file else 1} if "count" in pair.base else {})
    assert all(facts(pair.target.name, file) == expected for file in files)
    refuses(pair, {"pages": str(count + 1)})


_COVER: OptionValues = {"width": 20, "height": 40, "fit": "cover", "gravity": "west"}

# By option: values that use it, and the check. The samples have 168 x 120 pixels or points: red, green, blue and gray.
_CHECKS: dict[str, tuple[OptionValues, Check]] = {
    "width": changes({"width": 42}, size=(42, 30)),
    "height": changes({"height": 30}, size=(42, 30)),
    "fit": changes({"width": 42, "height": 42, "fit": "fill"}, size=(42, 42)),
    "enlarge": changes({"width": 400, "enlarge": True}, size=(400, 286)),
    "gravity": changes(_COVER, size=(20, 40), corners="rrbb"),
    "scale": ({"scale": "25%"}, _scale),
    "dpr": changes({"width": 21, "dpr": 2}, size=(42, 30)),
    "max_pixels": changes({"max_pixels": 42 * 30}, size=(42, 30)),
    "trim": ({"trim": 100}, check_trim),
    "radius": ({"radius": "5"}, check_radius),
    "pad": (PADDED, check_pad),
    "brightness": changes({"brightness": 0.95}),
    "contrast": changes({"contrast": 0.95}),
    "saturation": changes({"saturation": 0}, corners="----"),
    "gamma": changes({"gamma": 1.05}),
    "blur": changes({"blur": 2}),
    "sharpen": changes({"sharpen": 1}),
    "pixelate": changes({"pixelate": 4}),
    **MARK_CHECKS,
    **PROFILE_CHECKS,
    "loop": animation_check({"loop": 2}),
    "delay": animation_check({"delay": 70}),
    "speed": animation_check({"speed": 2}),
    "frames": animation_check({"frames": "every:2"}),
    "reverse": animation_check({"reverse": True}),
    "alpha_quality": changes({"alpha_quality": 90}),
    "palette": palette_check({"palette": True}),
    "colors": palette_check({"colors": 9}),
    "dither": palette_check({"palette": True, "dither": 0.5}),
    "flip": changes({"flip": "horizontal"}, corners="gr-b"),
    "background": (_CONTAIN, _background),
    "color_space": changes({"color_space": "gray"}, corners="----", subsampling="gray", profile=None),
    "crop": ({"crop": "0,0,1,1"}, _crop),
    "rotate": ({"rotate": 90}, _rotate),
    "bit_depth": ({"bit_depth": 8}, _bit_depth),
    "metadata": ({"metadata": "none"}, _metadata),
    "dpi": ({"dpi": 72}, _dpi),
    "quality": ({"quality": 20}, _quality),
    "lossless": ({"lossless": True}, _lossless),
    "exposure": ({"exposure": -9}, _exposure),
    "effort": ({"effort": 9}, _effort),
    "progressive": ({"progressive": True}, _progressive),
    "subsampling": ({"subsampling": "4:4:4"}, _subsampling),
    "compression": ({"compression": "none"}, _compression),
    "raw_mode": ({"raw_mode": "preview"}, _raw_mode),
    "white_balance": ({"white_balance": "3000"}, _development),
    "half_size": ({"half_size": True}, _development),
    "hdr": changes({"hdr": "drop"}),
    "max_bytes": ({"max_bytes": 1_000_000}, _max_bytes),
    "pages": ({"pages": "1"}, _pages),
    "password": ({"password": "secret"}, _password),
    "user_password": ({"user_password": "secret"}, _protect),
    "owner_password": ({"owner_password": "secret"}, _protect),
    "allow": ({"user_password": "secret", "allow": "print"}, _protect),
    "sanitize": ({"sanitize": True}, _sanitize),
    "pdf_standard": changes({"pdf_standard": "pdfa-2b"}),
    "fps": animation_check({"fps": 60}),
    "lossy": ({"lossy": 20}, check_lossy),
}


# Some of the pairs that take an option check it, with --long all. Transforms, which all formats share, have fewer.
_IN_MEMORY = (
    *("scale", "dpr", "max_pixels", "trim", "radius", "pad", "brightness", "contrast", "saturation", "gamma"),
    *("blur", "sharpen", "pixelate", *MARK_CHECKS, *PROFILE_CHECKS),
)
_SHARE, _SHARE_IN_MEMORY = 18, 108


def _plain_pairs() -> Iterator[Plan]:
    """All pairs whose steps differ, and that do not pass a file of another format, which has pairs of its own."""
    seen = set()
    for plan in (plan for plan in pairs_with_samples() if _OTHERS.isdisjoint((plan.source.name, plan.target.name))):
        steps = tuple(step.run for step in plan.conversions)  # RAW formats are decoded by the same function
        if steps not in seen and not any(isinstance(step.target, FileFormat) for step in plan.conversions[:-1]):
            yield plan
        seen.add(steps)


def _pairs(*, everything: bool) -> Iterator[Pair]:
    """Pairs of plain files, and of files with a trait. Of those that repeat each other, one, or all."""
    for plan in _plain_pairs() if everything else sample_of(list(_plain_pairs())):
        # A size is not enough to keep the original.
        fewest = {"bit_depth": _DEPTHS.get(plan.target.name, (8,))[0]}
        always = fewest if plan.source == plan.target and "bit_depth" in plan.options else {}
        yield Pair(plan.source, plan.target, sample(plan.source.name), always=always)
    for trait, data in samples_with_traits():
        source = _REGISTRY.identify_content(data)
        every = (plan.target for plan in pairs_with_samples() if plan.source == source)
        targets = [target for target in every if target.name not in _OTHERS]
        without = [target for target in targets if not _may_hold(target, trait)]
        for target in targets:
            if everything or target not in without[1:]:
                yield Pair(source, target, data, trait)


def _may_hold(target: FileFormat, trait: str) -> bool:
    return {"animation": target.animated, "pages": target.paged}.get(trait, target.name not in _SLOW)


_PAIRS = list(_pairs(everything=False))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "pair" in metafunc.fixturenames:
        pairs = list(_pairs(everything=True)) if metafunc.config.getoption("long") else _PAIRS
        metafunc.parametrize("pair", pairs, ids=str)


@cache
def _checking_pairs() -> dict[str, set[str]]:
    """The pairs that check each option without `--long`: at least one of those that take it."""
    chosen = {}
    for index, (name, (values, _)) in enumerate(_CHECKS.items()):
        taking = [str(pair) for pair in _PAIRS if pair.takes(values)]
        share = max(1, min(_SHARE_IN_MEMORY if name in _IN_MEMORY else _SHARE, len(taking)))
        chosen[name] = {*taking[index % share :: share]}
    return chosen


def test_options_change_what_they_should(pair: Pair, pytestconfig: pytest.Config) -> None:
    for name, (values, check) in _CHECKS.items():
        if pair.takes(values) if pytestconfig.getoption("long") else str(pair) in _checking_pairs()[name]:
            check(pair)


def test_defaults_and_unused_options_change_nothing(pair: Pair) -> None:
    options = pair.plan({}).options.values()
    defaults = {option.name: option.default for option in options if option.default is not None}
    unused = {list(values)[-1]: list(values.values())[-1] for values, _ in _CHECKS.values() if not pair.takes(values)}

    result = pair.convert(defaults | unused)

    assert stable(result.data) == stable(pair.result.data)
    ignored = {"quality_ignored"} & {f"{name}_ignored" for name in unused}
    listed = unused.keys() - {"quality", "pages"}  # every file has a first page
    ignored |= {"option_ignored"} if listed else set()
    assert codes(result) == codes(pair.result) | ignored
    text = " ".join(warned.message for warned in result.outcome.warnings if warned.code == "option_ignored")
    assert all(re.search(rf"\b{name}\b", text) for name in listed)


def test_each_option_has_a_check() -> None:
    assert _CHECKS.keys() == _REGISTRY.options.keys() - _OF_OTHERS
    assert all(_checking_pairs().values())


@pytest.mark.parametrize("target", sorted({pair.target.name for pair in _PAIRS if pair.takes({"effort": 9})}))
@pytest.mark.parametrize("options", [{}, {"lossless": True}], ids=["default", "lossless"])
def test_more_effort_saves_bytes(target: str, options: OptionValues) -> None:
    size = (240, 160) if target == "avif" else (480, 320)  # the slowest encoder
    pair = Pair(_REGISTRY.formats["png"], _REGISTRY.formats[target], saved(photo(size), "PNG"))

    sizes = [len(pair.convert({**options, "effort": effort}).data) for effort in (1, 5, 9)]

    assert 1.03 * sizes[0] >= sizes[1] >= sizes[2]  # the quality of x265 is equal only within limits
    assert sizes[0] > sizes[2]
