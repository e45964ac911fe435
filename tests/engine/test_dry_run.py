"""Dry runs compared with runs: the size, the number of pages and files, the errors and the warnings of results."""

from collections.abc import Callable
from io import BytesIO

import pytest
from PIL import Image

from engine import ConversionError, OptionValues, dry_run, pipeline
from engine.media import Images
from engine.planner import Plan
from engine.registry import load_registry
from engine.verification import verify
from tests.support.samples.generated import sample, saved
from tests.support.samples.pairs import pairs_with_samples
from tests.support.samples.pdf_documents import document
from tests.support.samples.raw_samples import CAMERAS

_REGISTRY = load_registry()
# One function decodes all RAW formats.
_READ = sorted({plan.source.name for plan in pairs_with_samples()} - {*[*CAMERAS][1:]})
_OPTIONS: tuple[OptionValues, ...] = (
    {},
    {"width": 200},
    {"crop": "0,0,20,10", "rotate": 90},
    {"width": 30, "height": 30, "fit": "cover", "background": "#f00"},
    {"metadata": "all", "pages": "all"},
    {"bit_depth": 16, "quality": 50, "gravity": "north"},
)


def _outcome_of_run(plan: Plan, data: bytes, options: OptionValues) -> object:
    made: list[object] = []
    done = pipeline.run(plan, [data], options, on_file=lambda file: made.append(verify(_REGISTRY, plan, file, options)))
    codes = {warning.code for warning in done.outcome.warnings} - {"kept_original"}  # known to the encoder only
    return made[0], done.outcome.container, done.outcome.file_count, codes


def _outcome_of_dry_run(plan: Plan, data: bytes, options: OptionValues) -> object:
    outcome = dry_run.dry_run(plan, [data], options)
    size = None if outcome.width is None or outcome.height is None else (outcome.width, outcome.height)
    pages = (outcome.pages or 0) // outcome.file_count
    return Images(pages, size), outcome.container, outcome.file_count, {warning.code for warning in outcome.warnings}


def _or_error(
    function: Callable[[Plan, bytes, OptionValues], object], plan: Plan, data: bytes, options: OptionValues
) -> object:
    try:
        return function(plan, data, options)
    except ConversionError as error:
        return error.code, error.reason, error.param


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each format has every other case of the options, with --long all."""
    if {"source", "options"} <= {*metafunc.fixturenames}:
        step = 1 if metafunc.config.getoption("long") else 4
        cases = [(source, one) for turn, source in enumerate(_READ) for one in _OPTIONS[turn % step :: step]]
        metafunc.parametrize(("source", "options"), cases, ids=str)


def test_a_dry_run_tells_what_a_run_does(source: str, options: OptionValues, pytestconfig: pytest.Config) -> None:
    data = sample(source)
    targets = [fmt.name for fmt in _REGISTRY.targets(_REGISTRY.formats[source])]
    start = _READ.index(source) + _OPTIONS.index(options)
    for turn in (start, start + 4) if pytestconfig.getoption("long") else (start,):
        target = targets[turn % len(targets)]
        try:
            plan = _REGISTRY.plan([_REGISTRY.formats[source]], target, options=options)
        except ConversionError:  # refused before either
            continue
        assert _or_error(_outcome_of_dry_run, plan, data, options) == _or_error(_outcome_of_run, plan, data, options)


@pytest.mark.parametrize("protection", [{"user_password": "secret", "allow": "print"}, {"allow": "print"}])
@pytest.mark.parametrize("source", ["txt", "png", "jpeg", "pdf"])
def test_a_dry_run_tells_whether_the_result_can_be_protected(source: str, protection: OptionValues) -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats[source]], "pdf", options=protection)

    found, expected = (
        _or_error(outcome, plan, sample(source), protection) for outcome in (_outcome_of_dry_run, _outcome_of_run)
    )
    assert found == expected
    assert (expected == ("invalid_parameter", "missing", "user_password")) is (len(protection) == 1)


@pytest.mark.parametrize(("source", "target"), [("jpeg", "bmp"), ("png", "webp"), ("epub", "png"), ("svg", "jpeg")])
def test_a_dry_run_tells_what_depends_on_the_pixels(source: str, target: str) -> None:
    options: OptionValues = {"trim": 10, "pad": "10%", "radius": "50%", "dpi": 200}
    data = sample(source)
    plan = _REGISTRY.plan([_REGISTRY.formats[source]], target, options=options)

    assert _outcome_of_dry_run(plan, data, options) == _outcome_of_run(plan, data, options)


def _translucent(mode: str) -> bytes:
    return saved(Image.new(mode, (20, 20), (10, 20, 30, 100)), "PNG")


def _frames() -> bytes:
    file = BytesIO()
    first, *others = [Image.new("RGB", (16, 16), (red, 0, 0)) for red in (0, 100, 200)]
    first.save(file, "GIF", save_all=True, append_images=others, duration=[30, 40, 50])
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "target", "code"),
    [
        (_translucent("RGBA"), "jpeg", "alpha_flattened"),
        (saved(Image.new("RGBA", (20, 20), (10, 20, 30, 255)), "PNG"), "jpeg", None),
        (saved(Image.new("I;16", (20, 20), 7), "PNG"), "jpeg", "depth_reduced"),
        (saved(Image.new("CMYK", (20, 20), 7), "TIFF"), "png", "color_converted"),
        (_frames(), "jpeg", "frames_dropped"),
        (_frames(), "tiff", "timing_dropped"),
        (document("page", 3), "png", "pages_dropped"),
    ],
)
def test_what_the_header_proves_is_told(data: bytes, target: str, code: str | None) -> None:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target)

    told = {warning.code for warning in dry_run.dry_run(plan, [data]).warnings}

    assert told == ({code} if code else set())


@pytest.mark.parametrize("encoder", ["JPEG", "TIFF", "PNG", "WEBP"])
def test_turned_images(encoder: str) -> None:
    exif = Image.Exif()
    exif[274] = 6
    data = saved(Image.new("RGB", (30, 20)), encoder, exif=exif)
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], "bmp", options={"width": 10})

    outcome = dry_run.dry_run(plan, [data], {"width": 10})

    assert (outcome.width, outcome.height) == (10, 15)
    assert _outcome_of_dry_run(plan, data, {"width": 10}) == _outcome_of_run(plan, data, {"width": 10})
