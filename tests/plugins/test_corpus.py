"""Real files: independent readers find the expected size, pages and frames in each result."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import ConversionError, pipeline
from engine.errors import TooLarge
from engine.executor import LocalExecutor, Task
from engine.formats import FileFormat
from engine.registry import load_registry
from plugins.formats.pdf import DPI
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results import readers
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.pairs import share

pytestmark = pytest.mark.asyncio(loop_scope="session")

_REGISTRY = load_registry()

# Files whose facts are not those of the manifest, and why.
_SIZES = {
    "tiff/orientation_6_g4.tif": (590, 88),  # the manifest's size is the upright one
    "png/exif_orientation.png": (512, 512),
    "svg/no_size.svg": (300, 150),  # neither size nor view box: CSS's default
    "tiff/rgb_float32.tiff": (32, 32),
    "psd/rgb16_4x4.psd": (4, 4),
}
_COUNTS = {
    "jpeg/display_p3_apple_mpo.jpg": 1,  # the second image is a gain map
    "png/apng_dispose_previous.png": 3,  # the first image is the still for readers without animation
}
_SCANS = {("eps/cmyk.eps", "tiff"): (100, 100)}  # pages that are one image, which is kept as it is
# Writers merge frames that look the same, and add up their durations.
_MERGED = {("png/apng_dispose_previous.png", target) for target in ("gif", "png", "webp")}
_ENCRYPTED = ("pdf/aes256_user_password.pdf", "pdf/password_openpassword.pdf", "pdf/rc4_128_user_password.pdf")
_TOLERANCE = 1.5 * DPI / 72  # the manifest has page sizes in whole points
_KEPT = ("bmp/palette8_rle.bmp", "bmp")  # converting makes it larger; no independent reader decodes it
_ICONS = ("cur", "icns", "ico")
_PAGED = ("pdf", "tiff")
_ANIMATED = ("avif", "gif", "jxl", "mp4", "png", "webm", "webp")
_CLIPS, _MAX_SIDE = ("mp4", "webm"), 1920
_LARGE_XPM = 300_000  # pixels; the independent reader takes minutes for a photo
_XPM_SIZE = re.compile(rb'^"(\d+) (\d+) \d+ \d+', re.MULTILINE)
_TEXTS = ("csv", "html", "json", "md", "txt")
_DOCUMENTS = ("docx", "epub", "odp", "ods", "odt", "pptx", "xlsx")
_PAGES, _VECTORS = ("pdf", "eps"), ("pdf", "eps", "svg")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        cases = list(_cases(metafunc.config))
        metafunc.parametrize(("entry", "target"), cases, ids=[f"{entry.name}-{target}" for entry, target in cases])


def _cases(config: pytest.Config) -> Iterator[tuple[Entry, str]]:
    """Every sixth file, with one of its targets in turn. With `--long` all of both."""
    entries = [entry for entry in load_corpus() if entry.sound and entry.name not in _ENCRYPTED]
    for turn, entry in share([*enumerate(entries)], config, 6):
        targets = _REGISTRY.targets(_REGISTRY.identify(entry.path))
        chosen = targets if config.getoption("long") else [targets[turn % len(targets)]]
        yield from ((entry, target.name) for target in chosen)


async def test_file(executor: LocalExecutor, tmp_path: Path, entry: Entry, target: str) -> None:
    source = _REGISTRY.identify(entry.path)
    job = FileJob(Task.of(_REGISTRY.plan([source], target)), [entry.path], tmp_path / "result")
    if target in _CLIPS and max(_expected_size(entry, source.name, target)) > _MAX_SIDE:
        with pytest.raises(TooLarge):
            await run_files(executor, job)
        return
    await run_files(executor, job)

    if (entry.name, target) == _KEPT:
        assert job.output.read_bytes() == entry.path.read_bytes()
        return
    if target in _TEXTS:
        assert job.output.read_text(encoding="utf-8")
        return
    if target in _DOCUMENTS:
        assert _REGISTRY.identify(job.output).name == target
        return
    width, height = _expected_size(entry, source.name, target)
    if target == "xpm" and width * height > _LARGE_XPM:
        found = _XPM_SIZE.search(job.output.read_bytes())
        assert found
        assert tuple(map(int, found.groups())) == pytest.approx((width, height), abs=_TOLERANCE)
        return
    reading = readers.read(target, job.output.read_bytes())
    if target in _ICONS:
        width, height = _icon_size(source, target, (width, height))
    assert reading.size == pytest.approx((width, height), abs=_TOLERANCE)
    if (entry.name, target) not in _MERGED:
        assert reading.count == _expected_count(entry, source.name, target)


@pytest.mark.parametrize("name", _ENCRYPTED)
async def test_encrypted(executor: LocalExecutor, tmp_path: Path, name: str, pytestconfig: pytest.Config) -> None:
    share = 1 if pytestconfig.getoption("long") else 4 * len(_ENCRYPTED)
    for entry in (entry for entry in load_corpus() if entry.name == name):
        for target in _REGISTRY.targets(_REGISTRY.formats["pdf"])[_ENCRYPTED.index(name) % share :: share]:
            with pytest.raises(ConversionError) as raised:
                await run_files(executor, FileJob(Task(("pdf",), target.name), [entry.path], tmp_path / "result"))
            assert (raised.value.code, raised.value.reason) == ("invalid_file_type", "pdf_encrypted")


def _expected_size(entry: Entry, source: str, target: str) -> tuple[float, float]:
    if (entry.name, target) in _SCANS:
        return _SCANS[entry.name, target]
    size = _SIZES.get(entry.name) or entry.size
    assert size is not None, "the manifest tells no size"
    width, height = map(float, size[::-1] if entry.orientation >= 5 and entry.name not in _SIZES else size)
    if source in _PAGES:
        scale = 1.0 if target in _VECTORS else DPI / 72
        return width * scale, height * scale
    if source == "svg":
        scale = 72 / 96 if target in _PAGES else 1.0
        return width * scale, height * scale
    if target == "pdf":
        across, down = _dpi(entry)
        return width * 72 / across, height * 72 / down
    return width, height


def _icon_size(source: FileFormat, target: str, size: tuple[float, float]) -> tuple[int, int]:
    """The largest size of an icon: drawings are drawn at the largest that there is."""
    (*_, encoder) = _REGISTRY.plan([source], target).conversions
    capabilities = encoder.capabilities_for({})
    assert capabilities
    drawn = max(capabilities.drawn_side or 0, *size) if source.name == "svg" else max(size)
    width, height = (round(side * drawn / max(size)) for side in size)
    return capabilities.stored_size((width, height))


def _dpi(entry: Entry) -> tuple[float, float]:
    """The resolution that the source format's reader returns; 96 if it is missing or implausible."""
    steps = _REGISTRY.plan([_REGISTRY.identify(entry.path)], "png").conversions
    raster = pipeline.open_file(steps[:1], entry.path.read_bytes())
    return raster.dpi or (96, 96)


def _expected_count(entry: Entry, source: str, target: str) -> int:
    count = _COUNTS.get(entry.name, entry.count)
    if source == "psd":
        return 1  # layers are no pages
    timed = source in ("gif", "webp", "png", "avif")
    return count if target in _PAGED or (timed and target in _ANIMATED) else 1
