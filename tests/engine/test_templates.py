"""Templates of worker processes: which modules they have, which jobs they serve, and their end. Real processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine.executor import Task
from engine.planner import template_modules, template_parts
from engine.registry import load_registry
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
from tests.support.samples.generated import sample

_REGISTRY = load_registry()
_TEMPLATES = [
    *[("png", "jpeg", ""), ("cr2", "png", ""), ("pdf", "png", "documents"), ("jpeg", "pdf", "documents")],
    *[("pdf", "html", "documents"), ("svg", "png", "svg"), ("svg", "pdf", "documents/vectors")],
    *[("pdf", "svg", "documents/vectors"), ("html", "eps", "documents/vectors/web pages")],
    *[
        ("svg", "avif", "+svg"),
        ("heic", "pdf", "+documents"),
        ("tiff", "pdf", "documents/scans"),
        ("html", "tiff", "documents/vectors/web pages"),
        ("pdf", "md", "documents/vectors/web pages"),
        ("psd", "pdf", "documents/psd"),
        ("mp4", "gif", "clips"),
    ],
]


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
    shared = [plan for plan in _REGISTRY.catalogue() if not plan.isolated]
    assert {plan.target.name for plan in shared if plan.template} == {"pdf", "psd", "psb", "mp4", "webm"}


def test_template_parts() -> None:
    assert template_parts("") == [""]
    assert template_parts("a/b c/d") == ["a", "a/b c", "a/b c/d"]
    assert template_parts("+a/b") == ["", "a", "a/b"]


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


async def test_a_template_starts_with_its_first_job_and_ends_alone(tmp_path: Path) -> None:
    executor = ObservedExecutor(2, modules=ALL_MODULES)
    await executor.start()
    try:
        supervisor = executor.forkserver.pid
        assert supervisor is not None
        (first,) = _children(supervisor)
        await _convert(executor, tmp_path, "png", "bmp")
        kept = idle_workers(executor)

        await _convert(executor, tmp_path, "svg", "png")
        (svg,) = _children(supervisor) - {first}
        await _convert(executor, tmp_path, "svg", "png")
        assert _children(supervisor) == {first, svg}

        os.kill(svg, signal.SIGKILL)
        assert await has_ended(svg)
        await _convert(executor, tmp_path, "svg", "png")

        assert svg not in _children(supervisor)
        assert executor.forkserver.pid == supervisor
        assert idle_workers(executor, ACCOUNT) == kept
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
