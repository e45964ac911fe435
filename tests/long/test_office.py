"""LibreOffice: pages equal those that its program prints and show no other files, and jobs leave nothing behind."""

import asyncio
import os
import socket
import subprocess
from collections.abc import Collection, Iterator
from itertools import starmap
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from engine import pipeline, sandbox
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._office.libreoffice import LIBREOFFICE
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples import outside_references
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


@pytest.fixture
def secrets() -> Iterator[Path]:
    """A folder that jobs can read as users of their own, where Landlock does not keep them from it."""
    with TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        outside_references.write_secrets(Path(name))
        yield Path(name)


@pytest.mark.parametrize("layers", [sandbox.ALWAYS, sandbox.LAYERS], ids=["no layers", "all layers"])
@pytest.mark.asyncio
async def test_no_file_shows_what_is_outside_of_it(layers: Collection[str], tmp_path: Path, secrets: Path) -> None:
    executor = LocalExecutor(2, layers)
    await executor.start()
    with socket.create_server(("127.0.0.1", 0)) as server:
        files = outside_references.files(secrets, server.getsockname()[1])

        async def shows(name: str, data: bytes) -> bool:
            source, result = tmp_path / name, tmp_path / f"{name}.pdf"
            source.write_bytes(data)
            plan = _REGISTRY.plan([_REGISTRY.identify_content(data, name)], "pdf")
            await run_files(executor, FileJob(Task.of(plan), [source], result), account=name)
            return outside_references.shown(result.read_bytes())

        shown = await asyncio.gather(*starmap(shows, files.items()))
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    await executor.close()

    assert [name for name, one in zip(files, shown, strict=True) if one] == []


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
        await run_files(executor, FileJob(Task.of(plan), [source], tmp_path / "result.pdf"))
    await executor.close()

    assert not [*_office_processes()]
    assert not [name for name in set(os.listdir("/tmp")) - before if name.startswith(("lu", "OSL_"))]  # noqa: PTH208
    assert sorted(os.listdir(tmp_path)) == ["result.pdf", "source.docx", "source.odt"]  # noqa: PTH208
