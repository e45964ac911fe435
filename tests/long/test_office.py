"""LibreOffice: pages equal those that its program prints, and jobs leave nothing behind."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import pipeline
from engine.executor import Job, LocalExecutor
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._libreoffice import LIBREOFFICE
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.corpus import CORPUS
from tests.support.samples.office_files import docx, odt

pytestmark = [pytest.mark.long, pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")]

_REGISTRY = load_registry()
_FORMATS = CORPUS.parent / "formats"
_FILES = sorted(path for folder in ("office", "vsdx") for path in _FORMATS.glob(f"{folder}/[!.]*"))
_JOBS = 50


def _pages(pdf: bytes) -> list[bytes]:
    return [page.get_pixmap(dpi=100).samples for page in pymupdf.open(stream=pdf)]


@pytest.mark.parametrize("path", _FILES, ids=[path.name for path in _FILES])
def test_pages_are_those_of_the_program(path: Path, tmp_path: Path) -> None:
    """Files have the same name, which spreadsheets print."""
    source = tmp_path / f"document{path.suffix}"
    source.write_bytes(path.read_bytes())
    profile = f"-env:UserInstallation={(tmp_path / 'profile').as_uri()}"
    subprocess.run(["soffice", profile, "--headless", "--convert-to", "pdf", "--outdir", tmp_path, source], check=True)
    plan = _REGISTRY.plan([_REGISTRY.identify(source)], "pdf")

    result = pipeline.run(plan, [source.read_bytes()])

    assert _pages(result.data) == _pages((tmp_path / "document.pdf").read_bytes())


def _office_processes() -> Iterator[str]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"libreofficekit" in (folder / "cmdline").read_bytes():
                yield folder.name
        except OSError:
            continue


@pytest.mark.asyncio
async def test_many_jobs_leave_no_process_and_no_file(tmp_path: Path) -> None:
    executor = LocalExecutor(2)
    await executor.start()
    sources = [tmp_path / "source.docx", tmp_path / "source.odt"]
    for source, data in zip(sources, (docx(), odt()), strict=True):
        source.write_bytes(data)
    before = set(os.listdir("/tmp"))  # noqa: PTH208
    for number in range(_JOBS):
        source = sources[number % 2]
        plan = _REGISTRY.plan([_REGISTRY.identify(source)], "pdf")
        await run_files(executor, FileJob(Job.of(plan), [source], tmp_path / "result.pdf"))
    await executor.close()

    assert not [*_office_processes()]
    assert not [name for name in set(os.listdir("/tmp")) - before if name.startswith(("lu", "OSL_"))]  # noqa: PTH208
    assert sorted(os.listdir(tmp_path)) == ["result.pdf", "source.docx", "source.odt"]  # noqa: PTH208
