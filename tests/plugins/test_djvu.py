"""DjVu files, written by DjVuLibre: their pages, colors, and damage."""

import subprocess
from pathlib import Path

import pypdfium2
import pytest

from engine import CorruptInput
from engine.executor import LocalExecutor, Task
from engine.registry import load_registry
from plugins.formats.djvu import DJVULIBRE
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results import readers
from tests.support.results.conversions import convert
from tests.support.samples.generated import COLORS, SIZE, quadrants

pytestmark = pytest.mark.skipif(not DJVULIBRE.present, reason="DjVuLibre is not installed")


@pytest.fixture
def djvu(tmp_path: Path) -> Path:
    """A file with two pages of 72 dpi: the quadrants, and the quadrants upside down."""
    paths = []
    for number, image in enumerate((quadrants(), quadrants().rotate(180))):
        image.save(tmp_path / f"{number}.ppm")
        paths.append(tmp_path / f"{number}.djvu")
        subprocess.run(["c44", "-dpi", "72", tmp_path / f"{number}.ppm", paths[-1]], check=True)
    subprocess.run(["djvm", "-c", tmp_path / "all.djvu", *paths], check=True)
    return tmp_path / "all.djvu"


@pytest.mark.asyncio(loop_scope="session")
async def test_all_pages_are_read(executor: LocalExecutor, djvu: Path, tmp_path: Path) -> None:
    plan = load_registry().plan([load_registry().identify(djvu)], "pdf")
    result = tmp_path / "result.pdf"

    await run_files(executor, FileJob(Task.of(plan), [djvu], result))

    reading = readers.read("pdf", result.read_bytes())
    assert (reading.size, reading.count) == (SIZE, 2)
    assert reading.pixels[30, 42].tolist() == pytest.approx(COLORS[0], abs=12)
    assert reading.pixels[90, 126].tolist() == pytest.approx(COLORS[3], abs=12)


def test_a_page_is_selected(djvu: Path) -> None:
    page = pypdfium2.PdfDocument(convert(djvu.read_bytes(), "pdf", pages="2").data)

    assert len(page) == 1
    assert page[0].render(scale=1).to_pil().convert("RGB").getpixel((42, 30)) == pytest.approx(COLORS[3], abs=12)


@pytest.mark.parametrize("share", [0.3, 0.99])
def test_a_truncated_file_is_refused(djvu: Path, share: float) -> None:
    data = djvu.read_bytes()

    with pytest.raises(CorruptInput):
        convert(data[: int(len(data) * share)], "png")


def test_damaged_pages_are_refused(djvu: Path) -> None:
    data = djvu.read_bytes()

    with pytest.raises(CorruptInput):
        convert(data[: len(data) // 2] + bytes(len(data) - len(data) // 2), "png")
