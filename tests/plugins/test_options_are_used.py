"""Every option of every pair of formats changes the result, is refused, or is named by a warning: none is swallowed.

A value that asks for what is already so, such as 8 bits of an image of 8 bits, needs none of this: `_NO_CHANGE` says
when. The files have a border, noise, transparency and EXIF, as far as their formats hold that.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache

import numpy as np
import pytest
from PIL import Image

from engine import ConversionError, OptionValue, OptionValues
from engine.pipeline import PipelineResult
from engine.planner import Plan
from engine.registry import load_registry
from tests.support.results.conversions import convert, opened
from tests.support.results.pairs import Pair, stable
from tests.support.samples.generated import sample, saved
from tests.support.samples.pairs import pairs_with_samples, sample_of
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_FILES = {"filename", "formats", "watermark"}  # of servers and commands, and files: tested in tests/web, test_watermark
_MARK: OptionValues = {"watermark_text": "A"}
_BOX: OptionValues = {"width": 20, "height": 40, "fit": "cover"}
# By option: a value that changes the files, and the options that it needs.
_VALUES: Mapping[str, tuple[OptionValue, OptionValues]] = {
    "width": (42, {}), "height": (30, {}), "fit": ("fill", {"width": 42, "height": 20}), "scale": ("25%", {}),
    "enlarge": (True, {"width": 400}), "gravity": ("west", _BOX), "dpr": (2, {"width": 21}), "max_pixels": (900, {}),
    "trim": (15, {}), "crop": ("20,20,50,30", {}), "rotate": (90, {}), "flip": ("horizontal", {}),
    "radius": ("5", {"background": "#123456"}), "pad": ("50%", {}), "background": ("#ff0000", {}), "sizes": ("32", {}),
    "brightness": (0.8, {}), "contrast": (0.8, {}), "saturation": (0, {}), "gamma": (1.3, {}), "blur": (2, {}),
    "sharpen": (1, {}), "pixelate": (5, {}), "watermark_text": ("A", {}), "watermark_position": ("center", _MARK),
    "watermark_opacity": (0.1, _MARK), "watermark_size": (5, _MARK), "watermark_margin": (20, _MARK),
    "watermark_angle": (30, _MARK), "watermark_color": ("red", _MARK), "color_space": ("gray", {}),
    "output_profile": ("adobe-rgb", {}), "intent": ("absolute", {"output_profile": "swop"}), "bit_depth": (8, {}),
    "hdr": ("drop", {}), "exposure": (-3, {}), "white_balance": ("3000", {}), "raw_mode": ("preview", {}),
    "half_size": (True, {}), "loop": (2, {}), "delay": (70, {}), "speed": (2, {}), "frames": ("every:2", {}),
    "reverse": (True, {}), "at": (0.5, {}), "pages": ("2", {}), "dpi": (99, {}), "page_size": ("a6", {}),
    "landscape": (True, {}), "margin": (50, {}), "font_size": (20, {}), "quality": (20, {}), "lossless": (True, {}),
    "effort": (9, {}), "max_bytes": (1000, {}), "progressive": (True, {}), "subsampling": ("4:2:2", {}),
    "compression": ("none", {}), "alpha_quality": (50, {}), "palette": (True, {}), "colors": (2, {}),
    "dither": (0.5, {"palette": True, "colors": 4}), "metadata": ("none", {}), "password": ("secret", {}),
    "user_password": ("secret", {}), "owner_password": ("secret", {}), "sanitize": (True, {}),
    "allow": ("print", {"user_password": "secret"}), "encoding": ("utf-16", {}), "sheet": (2, {}),
    "values": ("raw", {}), "separator": ("semicolon", {}), "bom": (True, {}), "images": ("drop", {}),
    "markup": ("all", {}), "comments": (True, {}), "notes": (False, {}),
    "bookmarks": (False, {}), "fit_to_width": (True, {}), "single_page_sheets": (True, {}),
    "renderer": ("print", {}), "media": ("screen", {}), "viewport": ("300x200", {}), "device_scale": (2, {}),
    "dark": (True, {}), "scripts": (False, {}), "wait": ("1", {}), "wait_for": ("body", {}), "user_agent": ("a", {}),
    "cookies": ([{"name": "a", "value": "b"}], {}), "fail_on_status": (False, {}), "print_background": (False, {}),
    "header_html": ("<i>a</i>", {}), "footer_html": ("<i>a</i>", {}), "full_page": (False, {}), "selector": ("p", {}),
    "pdf_standard": ("pdfa-2b", {}), "ocr": (True, {}), "language": ("eng", {"ocr": True}), "fps": (4, {}),
    "lossy": (90, {}),
}  # fmt: skip
_ICONS = ("cur", "icns", "ico")  # squares with transparent corners
_GRAY = ("pgm", "pbm", "xbm")
_SHARE = 257  # of the pairs and options that are tested without `--long`


def _image() -> Image.Image:
    """Noise, half of it transparent to some degree, in a border of one color."""
    image = Image.new("RGB", (122, 92), (230, 240, 250))
    image.paste(photo((110, 80)), (6, 6))
    alpha = np.full((92, 122), 255, np.uint8)
    alpha[20:40, 30:60] = np.linspace(0, 255, 30)
    alpha[60:70, 70:90] = 0
    image.putalpha(Image.fromarray(alpha))
    return image


@cache
def _file(kind: str) -> bytes:
    image, tags = _image(), Image.Exif()
    tags[0x010F], tags.get_ifd(0x8769)[0x9003] = "Maker", "2020:01:02 03:04:05"
    others = [image.transpose(Image.Transpose.FLIP_LEFT_RIGHT), image.transpose(Image.Transpose.ROTATE_180)]
    several = {"save_all": True, "append_images": others}
    match kind:
        case "animation":
            return saved(image, "PNG", exif=tags.tobytes(), duration=[100, 200, 300], **several)
        case "pages":
            return saved(image.convert("RGB"), "TIFF", dpi=(150, 150), **several)
    return saved(image, "PNG", exif=tags.tobytes(), dpi=(150, 150))


@cache
def _source(name: str, kind: str) -> bytes:
    """The file in a format, or the sample of one that is not written."""
    data = _file(kind)
    fmt = _REGISTRY.formats[name]
    if fmt.text_extensions or not _REGISTRY.path(_REGISTRY.identify_content(data), fmt):
        return sample(name)
    return convert(data, name, **{"metadata": "all", **({} if kind == "still" else {"pages": "all"})}).data


def _plans(*, everything: bool) -> Iterator[tuple[Plan, str]]:
    """Pairs of formats with the kind of the file: of stills as many as cover all steps, or all pairs."""
    plans = [plan for plan in pairs_with_samples() if plan.target.name != "heic"]  # slow, and as avif
    yield from ((plan, "still") for plan in (plans if everything else sample_of(plans)))
    kinds = {"png": "animation", "gif": "animation", "mp4": "animation", "tiff": "pages", "pdf": "pages"}
    for plan in plans:
        if plan.source.name in kinds and (plan.target.animated or plan.target.paged):
            yield plan, kinds[plan.source.name]


def _pair(plan: Plan, kind: str) -> Pair:
    return Pair(plan.source, plan.target, _source(plan.source.name, kind), "" if kind == "still" else kind)


def _attempt(pair: Pair, options: OptionValues) -> PipelineResult | ConversionError:
    try:
        return pair.convert(options)
    except ConversionError as error:
        return error


def _has_alpha(pair: Pair) -> bool:
    decoded = opened(Pair(pair.source, _REGISTRY.formats["png"], pair.data).convert({}).data)
    return decoded.mode in ("LA", "PA", "RGBA") or "transparency" in decoded.info


def _is_drawn(pair: Pair) -> bool:
    """Whether the sample is one of few colors and without a border, which the test did not make."""
    return pair.data == sample(pair.source.name)


def _few_colors(pair: Pair) -> bool:
    return _is_drawn(pair) or not {pair.source.name, pair.target.name}.isdisjoint(_GRAY)


def _always(_pair: Pair) -> bool:
    return True


# By option: whether the value asks for what is already so.
_NO_CHANGE: Mapping[str, Callable[[Pair], bool]] = {
    "trim": _is_drawn,
    "hdr": _always,  # no file has a gain map: see test_gain_maps
    **dict.fromkeys(("fit", "radius"), lambda pair: pair.source.name in _ICONS),
    "values": _always,  # none has numbers in a format: see test_sheets
    **dict.fromkeys(("markup", "comments", "notes"), _always),  # no sample has any: see test_office_blocks, test_slides
    **dict.fromkeys(("bookmarks", "fit_to_width", "single_page_sheets"), _always),  # see test_office_pages
    # These show only on some pages: see test_html_pages.
    **dict.fromkeys(
        ("media", "dark", "scripts", "wait", "wait_for", "user_agent", "cookies", "fail_on_status"), _always
    ),
    **dict.fromkeys(("print_background", "full_page", "viewport"), _always),
    "separator": lambda pair: b"," not in pair.result.data,
    "images": _always,  # most have none: see test_block_writers
    "ocr": lambda pair: pair.source.name in ("jpeg", "png", "tiff"),  # which are always recognized
    "language": _always,  # others may not be installed: see test_pdf_ocr
    "sanitize": _always,  # none has active content: see test_pdf_active_content
    "background": lambda pair: not _has_alpha(pair),
    "alpha_quality": lambda pair: not _has_alpha(pair),
    "bit_depth": _always,  # many have 8 bits: see test_options_of_pairs
    "metadata": _always,  # many have none, or their targets hold none: see test_metadata
    **dict.fromkeys(("color_space", "saturation", "gamma", "sharpen", "output_profile", "intent"), _few_colors),
    **dict.fromkeys(("dither", "effort", "lossy", "pixelate", "subsampling", "lossless"), _is_drawn),
    "at": lambda pair: not pair.trait,  # clips of one image
    "max_bytes": lambda pair: len(pair.result.data) <= 1000,
    # They decide where pages end, which texts of one page do not show.
    **dict.fromkeys(
        ("page_size", "landscape", "margin", "font_size", "pages"),
        lambda pair: pair.target.name in ("md", "html", "txt"),
    ),
}


def _swallowed(pair: Pair, name: str) -> bool:
    value, needed = _VALUES[name]
    without, result = _attempt(pair, needed), _attempt(pair, {**needed, name: value})
    if isinstance(without, ConversionError) or isinstance(result, ConversionError):
        return False
    known = {warned.message for warned in without.outcome.warnings}
    told = [warned for warned in result.outcome.warnings if warned.message not in known]
    if any(name in warned.message or warned.code == "kept_original" for warned in told):
        return False
    no_change = _NO_CHANGE.get(name)
    return _same(result.data, without.data) and (no_change is None or not no_change(pair))


def _same(data: bytes, other: bytes) -> bool:
    return b"/Encrypt" not in data and stable(data) == stable(other)


def test_each_option_has_a_value() -> None:
    assert _VALUES.keys() | _FILES == _REGISTRY.options.keys()


def test_no_option_is_swallowed(pytestconfig: pytest.Config) -> None:
    everything = bool(pytestconfig.getoption("long"))
    cases = [(*plan, name) for plan in _plans(everything=everything) for name in _VALUES]

    chosen = ((_pair(plan, kind), name) for plan, kind, name in cases[:: 1 if everything else _SHARE])

    assert [f"{pair}: {name}" for pair, name in chosen if _swallowed(pair, name)] == []


def test_a_swallowed_option_is_found() -> None:
    """A value that changes nothing and is not told of would be found."""
    pair = Pair(_REGISTRY.formats["png"], _REGISTRY.formats["bmp"], saved(Image.new("RGB", (90, 90)), "PNG"))

    assert [name for name in ("blur", "width", "dpi", "password") if _swallowed(pair, name)] == ["blur"]
