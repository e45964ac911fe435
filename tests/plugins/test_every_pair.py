"""Pairs of formats, with --long all: the result, what verification and independent readers find in it, its memory."""

from pathlib import Path

import numpy as np
import pytest

from engine import OptionValues, pipeline
from engine.decode_limits import MAX_PIXELS
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.memory_estimate import allowed_bytes, needed_bytes
from engine.planner import Plan
from engine.registry import load_registry
from engine.verification import verify
from plugins.formats.pdf import DPI
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results import readers
from tests.support.samples.generated import COLORS, SIZE, sample
from tests.support.samples.pairs import pairs_with_samples, plans_of_all_steps, sample_of, share
from tests.support.samples.raw_samples import CAMERAS

_REGISTRY = load_registry()
_TEXTS = {"html", "md", "txt"}
_DOCUMENTS = {"csv", "docx", "epub", "json", "odp", "ods", "odt", "pptx", "xlsx"}
_LAID_OUT = {*_TEXTS, *_DOCUMENTS, "fb2", "mobi"}  # their pages have other sizes than the samples
_PAIRS = [
    plan
    for plan in pairs_with_samples()
    if plan.target.name not in _TEXTS | _DOCUMENTS and plan.source.name not in _LAID_OUT
]
_SAMPLE = sample_of(_PAIRS)
_TOOLS = _REGISTRY.tools.items()
_IMAGES = {"jpeg", "png", "webp", "avif", "heic", "tiff", "bmp", "gif"}
_RAW = {*CAMERAS}
_GRAY = {"pbm", "pgm", "xbm"}
_ICON_SIDE = 128  # of the square in an ICNS
_PCX_DPI = 100  # in the sample
_PAGES, _VECTORS = {"djvu", "eps", "pdf", "xps"}, {"pdf", "eps", "svg"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "plan" in metafunc.fixturenames:
        plans = _PAIRS if metafunc.config.getoption("long") else _SAMPLE
        metafunc.parametrize("plan", plans, ids=[f"{plan.source}-{plan.target}" for plan in plans])


def test_pair(plan: Plan) -> None:
    original = sample(plan.source.name)
    result = pipeline.run(plan, [original])

    verify(_REGISTRY, plan, result.file)
    for pixels in (1, MAX_PIXELS // 10, MAX_PIXELS):
        assert needed_bytes(plan, pixels) <= allowed_bytes(plan, pixels) <= allowed_bytes(plan) <= TaskLimits().memory
    if plan.target.name == "icns" and result.data == original:
        return  # Pillow does not read icons that are not square, which other writers leave out.
    reading = readers.read(plan.target.name, result.data)

    assert reading.size == pytest.approx(_expected_size(plan), abs=1)
    assert reading.count == 1
    gray = not _GRAY.isdisjoint((plan.source.name, plan.target.name)) or plan.target.name == "icns"
    for index, expected in enumerate(COLORS):
        if not gray:
            _assert_like(_quadrant(reading, index), expected, exact=plan.source.name not in _RAW)


def _expected_size(plan: Plan) -> tuple[float, float]:
    """Pages are rendered at DPI, and images become pages at theirs or at 96; SVG counts 96 pixels an inch.

    Icons of drawings have the largest size, those of pages one that is smaller than the page at DPI.
    """
    width, height = SIZE
    source, target = plan.source.name, plan.target.name
    is_page = source in _PAGES | {"cbz"}
    if target == "icns":
        side = 1024 if source == "svg" else 256 if is_page else _ICON_SIDE
        return side, side
    if target in ("cur", "ico") and (is_page or source == "svg"):
        return 256, 256 * height / width
    if source in ("cbz", "djvu") and target == "tiff":
        scale = 1.0  # A page that is one image keeps its pixels.
    elif source == "pcx" and target == "pdf":
        scale = 72 / _PCX_DPI
    elif source in _PAGES:
        scale = 1.0 if target in _VECTORS else DPI / 72
    elif source == "cbz":
        scale = 72 / 96 if target in _VECTORS else DPI / 96
    elif source == "svg":
        scale = 72 / 96 if target in _PAGES else 1.0
    else:
        scale = 72 / 96 if target == "pdf" else 1.0
    return width * scale, height * scale


def _quadrant(reading: readers.Reading, index: int) -> tuple[float, ...]:
    height, width = reading.pixels.shape[:2]
    top, left = index // 2 * height // 2 + height // 8, index % 2 * width // 2 + width // 8
    middle = reading.pixels[top : top + height // 4, left : left + width // 4]
    return tuple(np.asarray(middle, float).mean(axis=(0, 1)))


def _assert_like(seen: tuple[float, ...], expected: tuple[int, int, int], *, exact: bool) -> None:
    if exact:
        assert seen == pytest.approx(expected, abs=12)
    elif len(set(expected)) == 1:  # gray stays neutral under the camera's white balance
        assert max(seen) - min(seen) < 12
    else:
        assert int(np.argmax(seen)) == int(np.argmax(expected))


def test_the_pairs_that_users_expect_are_offered() -> None:
    """Everything that can be read becomes every image and a PDF, and what has text also becomes text."""
    offered = {(plan.source.name, plan.target.name) for plan in _REGISTRY.catalogue()}
    sources, targets = ({pair[index] for pair in offered} for index in (0, 1))
    recognized = {"jpeg", "png", "tiff"}
    with_text = {source for source, target in offered if target in _TEXTS} - recognized

    assert sources >= _IMAGES | _RAW | {"pdf", "svg", "psd", "eps"}
    assert targets >= _IMAGES | {"pdf", "svg", "eps", "psd"} | _TEXTS
    assert with_text >= {"pdf", "eps", "svg"}
    assert with_text.isdisjoint(_IMAGES | _RAW)
    assert offered >= {(source, target) for source in sources for target in _IMAGES | {"pdf", "eps", "psd"}}
    assert offered >= {(source, target) for source in with_text for target in ("svg", *_TEXTS)}


def test_risky_formats_are_read_in_a_process_of_their_own() -> None:
    shared = {(plan.source.name, plan.target.name) for plan in _PAIRS if not plan.isolated}

    assert shared >= {(source, target) for source in _IMAGES for target in _IMAGES | {"eps", "pdf", "psd"}}
    assert {source for source, _ in shared}.isdisjoint(_RAW | {"pdf", "svg", "psd"} | _TEXTS)
    plans = [_REGISTRY.plan([tool.accepted[0]] * tool.inputs[0], tool.target, name) for name, tool in _TOOLS]
    assert all(plan.isolated for plan in plans)


@pytest.mark.asyncio(loop_scope="session")
async def test_every_step_runs_in_the_sandbox(
    executor: LocalExecutor, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    """All modules and files that steps need are loaded before the sandbox is applied, or allowed by it."""
    source, output = tmp_path / "in", tmp_path / "out"
    for plan in share(plans_of_all_steps(), pytestconfig, 6):
        source.write_bytes(sample(plan.source.name))
        done = await run_files(executor, FileJob(Task.of(plan), [source], output))
        assert output.stat().st_size == done.outcome.processed_size, plan


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(
    ("target", "options"),
    [
        *(("tiff", {"compression": name}) for name in ("none", "lzw", "deflate", "jpeg")),
        *((name, {"lossless": True}) for name in ("webp", "avif", "heic", "jxl")),
        ("avif", {"bit_depth": 10}),
        ("jpeg", {"progressive": True, "effort": 9}),
        ("png", {"progressive": True}),
    ],
)
async def test_encoders_need_no_more_than_the_sandbox_allows(
    executor: LocalExecutor, tmp_path: Path, target: str, options: OptionValues
) -> None:
    source = tmp_path / "source"
    source.write_bytes(sample("bmp"))
    plan = _REGISTRY.plan([_REGISTRY.formats["bmp"]], target, options=options)

    result = await run_files(executor, FileJob(Task.of(plan, options), [source], tmp_path / "result"))

    assert result.outcome.processed_size
