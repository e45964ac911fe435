"""Preloading in a fork server, its templates, and jobs, which import no module but for rare files. Real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from psd_tools import PSDImage

from engine.executor import Task, preload
from engine.executor.disk_quota import reachable_by_tasks
from engine.executor.pool import PAUSE
from engine.media import RASTER
from engine.planner import template_modules, template_parts
from engine.registry import load_registry
from plugins import _programs
from tests.support import sabotages
from tests.support.executors.isolated import (
    ACCOUNT,
    ALL_MODULES,
    FileJob,
    ObservedExecutor,
    has_ended,
    idle_workers,
    run_files,
)
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.pairs import number_of_share, pairs_with_samples
from tests.support.samples.pdf_documents import document
from tests.support.samples.raw_samples import CAMERAS

_REGISTRY = load_registry()
_TEMPLATES = [
    *[("png", "jpeg", ""), ("cr2", "png", ""), ("pdf", "png", "documents"), ("jpeg", "pdf", "documents")],
    *[("pdf", "html", "documents"), ("svg", "png", "svg"), ("svg", "pdf", "documents/vectors")],
    *[("pdf", "svg", "documents/vectors"), ("html", "eps", "documents/vectors/web pages/browser")],
    *[
        ("svg", "avif", "svg"),
        ("heic", "pdf", "documents"),
        ("tiff", "pdf", "documents"),
        ("html", "tiff", "documents/vectors/web pages/browser"),
        ("html", "docx", "documents/vectors/web pages"),
        ("pdf", "md", "documents/vectors/web pages"),
        ("psd", "pdf", "documents/psd"),
        ("mp4", "gif", "clips"),
    ],
]
_PROGRAM = """
import gc
import json
import os
from engine.executor import preload
from engine.registry import load_registry

warmed_up = {}
threads = []
original = preload.warm_up_codec

def watched(registry, write, fmt):
    threads.append(len(os.listdir("/proc/self/task")))
    try:
        original(registry, write, fmt)
        warmed_up[fmt.name] = None
    except Exception as error:
        warmed_up[fmt.name] = repr(error)
        raise

preload.warm_up_codec = watched
before = gc.get_stats()
preload.preload()
visits = [now["collections"] - then["collections"] for now, then in zip(gc.get_stats(), before)]
collects = gc.isenabled()
for name in [*load_registry().templates][1:]:
    preload.preload_template(name)
threads.append(len(os.listdir("/proc/self/task")))
print(json.dumps([warmed_up, threads, visits, collects]))
"""
_SHARES = {"all": 12, "plan": 12}  # into which the jobs are divided; with --long, all of them run


def _parents(pid: int, supervisor: int) -> list[int]:
    """The processes above a worker process, up to the supervisor."""
    parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return [parent] if parent == supervisor else [parent, *_parents(parent, supervisor)]


def _children(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


@pytest.mark.parametrize(("source", "target", "template"), _TEMPLATES)
def test_isolated_jobs_have_the_template_with_their_modules(source: str, target: str, template: str) -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats[source]], target)

    assert plan.template == Task.of(plan).template == template
    assert plan.modules <= template_modules(_REGISTRY.templates, template)


def test_processes_of_most_jobs_lack_what_few_jobs_need() -> None:
    most = _REGISTRY.templates[""]
    large = {"engine.mupdf", "plugins._text.web_pages", "plugins._psd.pixels", "plugins._svg.vectors", "cairosvg", "av"}

    assert most.isdisjoint(large)
    shared = [plan for plan in _REGISTRY.catalogue() if not any(step.isolated for step in plan.conversions)]
    assert {plan.target.name for plan in shared if plan.template and plan.source.name != "txt"} == {
        *("pdf", "psd", "psb", "mp4", "webm")
    }


def test_template_parts() -> None:
    assert template_parts("") == [""]
    assert template_parts("a/b c/d") == ["", "a", "a/b c", "a/b c/d"]


def test_a_private_installation_imports_all_modules_ahead() -> None:
    program = """
import sys
from engine.executor import preload
preload.reachable_by_tasks = lambda path: path.parent.name != "encodings"
preload.import_modules([])
print(*{module for module in preload.load_registry().modules if module not in sys.modules})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.split() == []
    assert done.stderr == ""


async def _convert(executor: ObservedExecutor, folder: Path, source: str, target: str) -> None:
    (folder / "in").write_bytes(sample(source))
    job = Task.of(_REGISTRY.plan([_REGISTRY.formats[source]], target))
    await run_files(executor, FileJob(job, [folder / "in"], folder / "out"))


async def test_a_template_starts_with_its_first_job_and_ends_without_the_supervisor(tmp_path: Path) -> None:
    executor = ObservedExecutor(2, modules=ALL_MODULES)
    await executor.start()
    try:
        supervisor = executor.forkserver.pid
        assert supervisor is not None
        await _convert(executor, tmp_path, "png", "bmp")
        kept = idle_workers(executor)
        assert _parents(kept[0], supervisor) == [supervisor]

        await _convert(executor, tmp_path, "svg", "png")
        svg, _ = _parents(idle_workers(executor)[-1], supervisor)
        await _convert(executor, tmp_path, "svg", "png")
        assert _parents(idle_workers(executor)[-1], supervisor) == [svg, supervisor]

        os.kill(svg, signal.SIGKILL)
        assert await has_ended(svg)
        await _convert(executor, tmp_path, "svg", "png")

        assert _parents(idle_workers(executor)[-1], supervisor)[0] != svg
        assert executor.forkserver.pid == supervisor
        assert {*kept} < {*idle_workers(executor, ACCOUNT)}
        for _ in range(2):  # meanwhile, a second spare of the template would be forked
            await _convert(executor, tmp_path, "hdr", "bmp")
        assert len(executor.pool.spares["svg"]) <= 1
        base = executor.pool.idle[0].process.folder.parent.parent
        assert len(await asyncio.to_thread(os.listdir, base)) == 2  # that of the template which was killed is removed

        os.kill(supervisor, signal.SIGKILL)
        await _convert(executor, tmp_path, "pdf", "txt")  # by a template that only a supervisor can fork
        assert executor.forkserver.pid not in (None, supervisor)
    finally:
        await executor.close()
    assert executor.forkserver.pid is None


async def test_templates_start_one_above_the_other_while_no_job_runs(tmp_path: Path) -> None:
    executor = ObservedExecutor(1, modules=ALL_MODULES)
    await executor.start()
    try:
        supervisor = executor.forkserver.pid
        assert supervisor is not None
        async with executor.pool.worker(ACCOUNT, own_process=True):
            before = _children(supervisor)
            executor.prepare(["documents/psd"])
            await asyncio.sleep(3 * PAUSE)
            assert _children(supervisor) == before

        for _ in range(600):
            if executor.pool.spares["documents/psd"]:
                break
            await asyncio.sleep(PAUSE)
        (psd,) = executor.pool.spares["documents/psd"]
        template, documents, _ = _parents(psd.pid, supervisor)
        await _convert(executor, tmp_path, "pdf", "png")
        assert _parents(idle_workers(executor)[-1], supervisor)[0] == documents

        os.kill(documents, signal.SIGKILL)
        assert await has_ended(template)
        await _convert(executor, tmp_path, "psd", "png")
    finally:
        await executor.close()


@pytest.mark.long
async def test_modules_that_cannot_be_imported_ahead_are_left_to_their_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    source = sabotages.HARMLESS["import prints"]
    for name, module in (("missing", "no_such_library"), ("slow", "slow_library")):
        ahead = (
            f"MODULES = ({module!r}, 'json')\nTEMPLATE = 'svg'\n" if name == "slow" else f"MODULES = ({module!r},)\n"
        )
        sabotages.install(tmp_path, name, source.replace("odd0", name).replace("\nfrom", f"\n{ahead}from", 1))
    (tmp_path / "slow_library.py").write_text("import time; time.sleep(60)")
    monkeypatch.syspath_prepend(tmp_path)
    executor = ObservedExecutor(1, modules=ALL_MODULES)
    await executor.start()
    try:
        await _convert(executor, tmp_path, "png", "bmp")
        await _convert(executor, tmp_path, "svg", "png")
    finally:
        await executor.close()

    log = capfd.readouterr().err
    assert "plugin missing: its modules are not imported ahead: ModuleNotFoundError" in log
    assert "plugin slow: its modules are not imported ahead: it takes longer than 3 s" in log


async def test_jobs_of_an_account_share_a_process_of_each_template(tmp_path: Path) -> None:
    executor = ObservedExecutor(1, modules=ALL_MODULES)
    await executor.start()
    try:
        used = []
        for target in ("bmp", "pdf", "bmp", "pdf", "psd"):
            await _convert(executor, tmp_path, "png", target)
            used.append(executor.pool.idle[-1])
        assert [worker.template for worker in used] == ["", "documents", "", "documents", "documents/psd"]
        assert [worker.tasks for worker in used] == [2, 2, 2, 2, 1]

        await _convert(executor, tmp_path, "pdf", "txt")  # reads a file of a client
        assert {*executor.pool.idle} == {*used}
    finally:
        await executor.close()


def test_every_codec_is_warmed_up_without_threads_and_without_garbage_collections() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)

    warmed_up, threads, visits, collects = json.loads(done.stdout)
    registry = load_registry()
    paths = {fmt.name: registry.path(RASTER, fmt) for fmt in registry.formats.values()}
    encoded = {name for name, path in paths.items() if len(path) == 1 and not path[0].programs}
    assert encoded >= {"avif", "bmp", "eps", "gif", "heic", "jpeg", "pdf", "png", "psd", "tiff", "webp"}
    assert warmed_up == dict.fromkeys(encoded)
    assert len({*threads}) == 1  # threads would not survive the fork
    assert visits == [0, 0, 1]  # by generation
    assert collects


def test_templates_prepare_modules_that_have_a_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    module = ModuleType("library")
    monkeypatch.setattr(module, "warm_up", lambda: prepared.append("library"), raising=False)
    monkeypatch.setitem(sys.modules, "library", module)

    preload.warm_up_modules(["json", "library"])

    assert prepared == ["library"]
    assert "engine.mupdf" in load_registry().templates["documents"]


def test_modules_that_cannot_be_imported_are_reported_and_the_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "library_of_another_version.py").write_text("raise ImportError('it has the version 12')\n")
    (tmp_path / "library_with_program.py").write_text("def start_program(): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    modules = ["library_of_another_version", "library_with_program"]

    preload.import_modules(modules)
    preload.warm_up_modules(modules)

    (record,) = caplog.records
    assert "library_of_another_version cannot be imported" in record.getMessage()
    assert "it has the version 12" in record.getMessage()
    assert [start.__name__ for start in preload.programs_of(modules)] == ["start_program"]


@pytest.mark.parametrize(("user", "mode", "own"), [(0, 0o700, False), (0, 0o755, True), (1000, 0o700, True)])
def test_tasks_of_root_run_a_python_that_other_users_reach(
    monkeypatch: pytest.MonkeyPatch, user: int, mode: int, *, own: bool
) -> None:
    system = Path(sys.executable).resolve()
    monkeypatch.setattr(_programs, "_SYSTEM_PYTHON", system)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with TemporaryDirectory() as folder:  # not below that of the test, which other users cannot pass
        private = Path(folder, "python3")
        private.touch()
        private.parent.chmod(mode)
        monkeypatch.setattr(sys, "executable", str(private))

        assert _programs.find_python() == (str(private if own else system),)


def test_mupdf_prepares_the_conversion_of_colors_once() -> None:
    program = """
from time import process_time
from engine import mupdf

started = process_time()
mupdf.warm_up()
prepared = process_time()
page = mupdf.pymupdf.open().new_page()
for count in (1, 3, 4):
    page.draw_rect(page.rect, fill=[0.5] * count)
page.get_pixmap(dpi=18)
print((process_time() - prepared) / (prepared - started))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert float(done.stdout) < 0.25


def test_plugins_load_no_library_of_few_formats() -> None:
    program = """
from pathlib import Path
from engine.registry import load_registry
from plugins import _programs
load_registry()
print(Path("/proc/self/maps").read_text())
"""
    maps = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert "libjpeg" in maps
    assert "libcairo" not in maps
    assert "libpango" not in maps
    assert "lxml" not in maps


def test_libraries_of_the_system_are_found_by_name() -> None:
    assert _programs.has_library("libc.so.6")
    assert not _programs.has_library("libmissing.so.1")


def _tiff(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    buffer = BytesIO()
    tifffile.imwrite(buffer, array, photometric="rgb")
    return buffer.getvalue()


def _psd(image: Image.Image) -> bytes:
    buffer = BytesIO()
    document = PSDImage.new("RGBA", image.size)
    document.create_pixel_layer(image)
    document.save(buffer)
    return buffer.getvalue()


def _write_files(folder: Path) -> None:
    """A file of each format, and files that need other modules than most files of their format."""
    image = quadrants()
    samples = np.arange(40 * 50 * 3, dtype=np.uint16).reshape(40, 50, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    svg = sample("svg").decode()
    formats = {plan.source.name for plan in pairs_with_samples()} - {
        *[*CAMERAS][1:]
    }  # one function decodes all RAW formats
    files = {fmt: sample(fmt) for fmt in formats} | {
        "jpeg-cmyk": saved(image.convert("CMYK"), "JPEG"),
        "jpeg-exif": saved(image, "JPEG", exif=exif),
        "jpeg-pictures": saved(image, "MPO", save_all=True, append_images=[image]),
        "png-gray": saved(Image.fromarray(samples[..., 0]), "PNG"),
        "png-deep": bytes(imagecodecs.png_encode(samples)),
        "png-palette": saved(image.quantize(), "PNG", transparency=1),
        "png-frames": saved(image, "PNG", save_all=True, append_images=[image.rotate(180)]),
        "gif-frames": saved(image, "GIF", save_all=True, append_images=[image.rotate(180)]),
        "webp-alpha": saved(image.convert("RGBA"), "WEBP", exif=exif),
        "tiff-cmyk": saved(image.convert("CMYK"), "TIFF", compression="tiff_lzw"),
        "tiff-deep": _tiff(samples),
        "tiff-float": _tiff(samples.astype(np.float32)),
        "psd-alpha": _psd(image.convert("RGBA")),
        "pdf": document("pages", 3),
        "svg-encoding": f'<?xml version="1.0" encoding="koi8-r"?>{svg[svg.index("<svg") :]}'.encode(),
    }
    for name, data in files.items():
        (folder / f"{name}.file").write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    _write_files(made)
    return made


@pytest.mark.parametrize("kind", [pytest.param("all", marks=pytest.mark.long), "plan"])
def test_jobs_import_no_module(folder: Path, pytestconfig: pytest.Config, kind: str) -> None:
    """Each group of jobs that need the same modules needs processes of its own, so every run has a share of them."""
    share, every = number_of_share(pytestconfig, _SHARES[kind])
    program = [sys.executable, "-m", "tests.support.executors.imports", kind, str(folder), str(every), str(share)]

    done = subprocess.run(program, capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)
    assert len(found) > 150 / every
    importing = {job.partition(".")[0] for job, modules in found.items() if modules}
    rare = {"all": {"jpeg-cmyk", "tiff-cmyk"}, "plan": {"jpeg-cmyk", "png-gray", "tiff-cmyk"}}[kind]
    expected = rare if reachable_by_tasks(Path(preload.__file__)) else set()
    assert importing == expected if every == 1 else importing <= expected
