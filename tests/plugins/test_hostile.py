"""Hostile, damaged and misnamed files: each has an allowed outcome in time, and leaves no processes or files."""

import asyncio
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from time import monotonic

import pytest
from PIL import Image

from engine import ConversionError, OptionValues
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.formats import ANY_FILE
from engine.mupdf import pymupdf
from engine.options import NO_OPTIONS
from engine.registry import load_registry
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.corpus import UNSOUND, Entry, load_corpus
from tests.support.samples.generated import sample, saved
from tests.support.samples.hostile import ELEMENTS, TIMEOUT, Canary, Hostile, Outcome, hostile_files
from tests.support.samples.hostile_documents import SLOW_PAGES
from tests.support.samples.hostile_pdfs import hostile_pdfs
from tests.support.samples.pairs import every, pairs_with_samples, share
from tests.support.samples.pdf_documents import READING, REGISTRY
from tests.support.samples.tool_requests import tool_requests
from tests.support.servers.receiver import Receiver
from web.api.error_catalogue import ERROR_CATALOGUE

pytestmark = pytest.mark.asyncio(loop_scope="session")
_REGISTRY = load_registry()
_LIMITS = TaskLimits(seconds=20)
_SHORT = TaskLimits(seconds=1)
_FILES = {hostile.name: hostile for hostile in hostile_files()}
_PROMPT = 20.0  # seconds, on a busy machine
# Damaged files with a usable result, and the codes of its warnings.
_RECOVERED = {
    "bad/psd_oob_write.psd": {"layers_flattened"},  # crashed an old version of the reader; the image is complete
    "bad/trailer_loop.pdf": {"repaired"},
    "pdf/repairable_bad_xref.pdf": {"repaired"},
}
_PDF_LIMITS = TaskLimits(seconds=250, cpu=30)  # on a busy machine, too
_PDF_FAULTS = {"engine_error", "worker_crashed", "timeout"}
# To draw it takes longer than any deadline.
_ENDLESS = {(name, "forms by powers of ten") for name in ("pdf-ocr", "pdf-auto-rotate", "pdf-redact")}


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Canary]:
    """A canary URL and a canary file. Asserts afterwards that neither was accessed."""
    file = tmp_path_factory.mktemp("canary") / "secret.svg"
    text = '<svg xmlns="http://www.w3.org/2000/svg"><rect id="a" width="9" height="9" fill="#c0ffee"/></svg>'
    file.write_text(text)
    with Receiver() as server:
        yield Canary(f"{server.url}/a.svg", file)
        assert not server.connections
    assert file.read_text() == text


async def _outcome(
    executor: LocalExecutor,
    folder: Path,
    data: bytes,
    target: str,
    limits: TaskLimits = _LIMITS,
    options: OptionValues = NO_OPTIONS,
) -> tuple[Outcome, bytes]:
    """The outcome and the result of a conversion. Asserts that the job's folder has no other file."""
    source, result = folder / "input", folder / "job" / "result"
    result.parent.mkdir(parents=True)
    source.write_bytes(data)
    failure = None
    try:
        found = _REGISTRY.identify(source)
        plan = _REGISTRY.plan([found], target, options=options)
        await run_files(executor, FileJob(Task.of(plan, options), [source], result), limits)
    except ConversionError as error:
        failure = error
    outcome = (failure.code, failure.reason or "") if failure else ("done", "")
    if failure:
        assert failure.code != "file_too_large" or any(name.startswith("max_") for name in failure.details)
        assert str(folder) not in f"{failure} {failure.details}"
    left = set(result.parent.iterdir())
    # A job killed at its deadline cannot delete its files: they are deleted with its folder.
    assert left <= {result} or outcome[1] in ("timeout", "out_of_memory", "worker_crashed")
    return outcome, result.read_bytes() if outcome[0] == "done" else b""


@pytest.mark.parametrize("name", every(3, [name for name, hostile in _FILES.items() if not hostile.long]))
async def test_made_file(executor: LocalExecutor, canary: Canary, tmp_path: Path, name: str) -> None:
    hostile = _FILES[name]

    outcome, result = await _outcome(executor, tmp_path, hostile.make(canary), hostile.target, _LIMITS, hostile.options)

    assert outcome in hostile.allowed
    assert b"alert(1)" not in result
    assert b"PK\x05\x06" not in result


@pytest.mark.long
@pytest.mark.parametrize("name", [*SLOW_PAGES])
async def test_a_page_that_takes_too_long_is_refused_before_the_deadline(
    executor: LocalExecutor, canary: Canary, tmp_path: Path, name: str
) -> None:
    outcome, _ = await _outcome(executor, tmp_path, SLOW_PAGES[name], "pdf", TaskLimits(), {"renderer": "print"})

    assert outcome == ELEMENTS


@pytest.mark.long
async def test_files_that_run_to_their_deadline(executor: LocalExecutor, canary: Canary, tmp_path: Path) -> None:
    """Four at a time: a job that hangs does not delay the others."""

    async def one(hostile: Hostile) -> None:
        data = await asyncio.to_thread(hostile.make, canary)
        limits = _SHORT if TIMEOUT in hostile.allowed else _LIMITS
        outcome, _ = await _outcome(executor, tmp_path / hostile.name, data, hostile.target, limits, hostile.options)
        assert outcome in hostile.allowed, hostile.name

    await asyncio.gather(*(one(hostile) for hostile in _FILES.values() if hostile.long))


async def test_nothing_is_left(executor: LocalExecutor, canary: Canary, tmp_path: Path) -> None:
    """Neither refused nor killed jobs leave processes or open files."""
    names = ("png_claim", "eps_loop", "svg_uses", "eps_loop")
    await asyncio.sleep(1)  # workers that other tests killed are replaced
    before = _descriptors()
    for turn, name in enumerate(names):
        await _outcome(executor, tmp_path / str(turn), _FILES[name].make(canary), "jpeg", _SHORT)
    await asyncio.sleep(1)

    assert _descriptors() <= before
    assert not _running(tmp_path)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _running(folder: Path) -> list[str]:
    """Command lines of processes that name the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if str(folder) in line:
            found.append(line)
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "unsound" not in metafunc.fixturenames:
        return
    cases = []
    for turn, entry in enumerate(entry for entry in load_corpus() if entry.category in UNSOUND):
        try:
            targets = [fmt.name for fmt in _REGISTRY.targets(_REGISTRY.identify(entry.path))]
        except ConversionError:
            continue  # refused before the job starts, as tested below
        whole = metafunc.config.getoption("long")
        cases += [(entry, target) for target in (targets if whole else [targets[turn % len(targets)]])]
    metafunc.parametrize("unsound", cases, ids=[f"{entry.name}-{target}" for entry, target in cases])


_EXPECTED = {"file_too_large", "processing_failed", "invalid_file_type", "done"}
_FAULTS = {"engine_error", "worker_crashed"}


async def test_real_file(executor: LocalExecutor, tmp_path: Path, unsound: tuple[Entry, str]) -> None:
    entry, target = unsound

    outcome, _ = await _outcome(executor, tmp_path, entry.path.read_bytes(), target)

    assert outcome[0] in _EXPECTED
    assert outcome[1] not in _FAULTS


@pytest.mark.long
async def test_real_files_in_parallel(executor: LocalExecutor, tmp_path: Path) -> None:
    """The outcome of a file does not depend on concurrent jobs."""
    entries = [entry for entry in load_corpus() if entry.category in UNSOUND][::3]

    async def one(turn: str, data: bytes) -> Outcome:
        return (await _outcome(executor, tmp_path / turn, data, "png"))[0]

    alone = [await one(f"alone-{n}", entry.path.read_bytes()) for n, entry in enumerate(entries)]
    together = await asyncio.gather(*(one(f"with-{n}", entry.path.read_bytes()) for n, entry in enumerate(entries)))

    assert alone == together


def _laid_out(folder: Path, data: bytes, name: str, target: str) -> tuple[Path, Path]:
    source, result = folder / name, folder / "job" / f"result.{target}"
    result.parent.mkdir()
    source.write_bytes(data)
    return source, result


async def _convert(executor: LocalExecutor, data: bytes, name: str, target: str) -> set[str]:
    """Returns the warnings of a conversion. Asserts that the job's folder has no other file than the result."""
    with tempfile.TemporaryDirectory() as folder:
        source, result = _laid_out(Path(folder), data, name, target)
        started = monotonic()
        try:
            found = _REGISTRY.identify(source)
            plan = _REGISTRY.plan([found], target)
            done = await run_files(executor, FileJob(Task.of(plan), [source], result))
        finally:
            assert monotonic() - started < _PROMPT
            assert set(result.parent.iterdir()) <= {result}
        return {warned.code for warned in done.outcome.warnings}


async def _refused(executor: LocalExecutor, data: bytes, name: str = "file", target: str = "jpeg") -> tuple[str, str]:
    with pytest.raises(ConversionError) as raised:
        await _convert(executor, data, name, target)
    return raised.value.code, raised.value.reason or ""


_TEXTS = {"csv", "fb2", "html", "json", "md", "mobi", "txt"}


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty_file"), (b"just text", "unrecognized")])
async def test_no_image(executor: LocalExecutor, data: bytes, reason: str) -> None:
    assert await _refused(executor, data, "photo.jpg") == ("invalid_file_type", reason)


@pytest.mark.parametrize("name", every(2, sorted({plan.source.name for plan in pairs_with_samples()} - _TEXTS)))
async def test_half_a_file(executor: LocalExecutor, name: str) -> None:
    """Half a file is an error, but of formats whose readers show as much text as there is."""
    data = sample(name)
    target = "png" if name != "png" else "jpeg"

    assert await _refused(executor, data[: len(data) // 2], target=target) == ("processing_failed", "corrupt_input")


async def test_an_encrypted_pdf(executor: LocalExecutor) -> None:
    document = pymupdf.open("pdf", sample("pdf"))
    data = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="secret", owner_pw="owner")

    assert await _refused(executor, data, target="png") == ("invalid_file_type", "pdf_encrypted")


async def test_too_many_pixels_on_a_page(executor: LocalExecutor) -> None:
    document = pymupdf.open()
    document.new_page(width=14_000, height=14_000)

    assert await _refused(executor, document.tobytes(), target="png") == ("file_too_large", "pixels")
    assert await _convert(executor, document.tobytes(), "file", "pdf") <= {"kept_original"}


async def test_too_many_frames(executor: LocalExecutor) -> None:
    frames = [Image.new("L", (4, 4), index % 251) for index in range(501)]
    data = saved(frames[0], "TIFF", save_all=True, append_images=frames[1:])

    assert await _refused(executor, data, target="pdf") == ("file_too_large", "pages")
    assert await _convert(executor, data, "file", "png") == {"pages_dropped"}


async def test_entities_that_multiply(executor: LocalExecutor) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 12}">' for n in range(1, 9))
    svg = f'<!DOCTYPE svg [<!ENTITY e0 "laugh">{entities}]><svg xmlns="http://www.w3.org/2000/svg"><text>&e8;</text></svg>'

    assert await _refused(executor, svg.encode(), target="png") == ("file_too_large", "bytes")


async def test_a_program_named_jpg_reaches_no_interpreter(executor: LocalExecutor) -> None:
    """PostScript is identified by its content, and Pillow opens images only."""
    program = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n(/etc/passwd) (r) file pop\nshowpage\n"

    assert await _refused(executor, program, "photo.jpg", "png") == ("processing_failed", "corrupt_input")


_BAD = [entry for entry in load_corpus() if entry.category in ("bad", "bomb") or entry.name == "bad/trailer_loop.pdf"]


@pytest.mark.parametrize("entry", _BAD, ids=lambda entry: entry.name)
async def test_real_bad_files(executor: LocalExecutor, entry: Entry) -> None:
    data = entry.path.read_bytes()
    name = entry.name
    if name in _RECOVERED:
        assert await _convert(executor, data, "file", "png") == _RECOVERED[name]
        return
    code, reason = await _refused(executor, data, name.rpartition("/")[2], target="png")
    expected = {
        "bomb": {
            *(("file_too_large", reason) for reason in ("pixels", "bytes")),
            ("processing_failed", "corrupt_input"),
        },
        "bad": {("processing_failed", "corrupt_input"), ("invalid_file_type", "empty_file")},
    }
    allowed = expected[entry.category] | ({("invalid_file_type", "unrecognized")} if len(data) < 8 else set())
    assert (code, reason) in allowed


@cache
def _files() -> dict[str, bytes]:
    """The generated files, and those of the corpus."""
    named = [entry for entry in load_corpus() if entry.name.startswith("bad/") and entry.name.endswith(".pdf")]
    return {**hostile_pdfs(), **{entry.name.replace("/", " "): entry.path.read_bytes() for entry in named}}


async def _fault(executor: LocalExecutor, folder: Path, name: str, kind: str) -> str | None:
    """What a tool must not do with the file as its first one; None if it makes a result or refuses the file."""
    request, tool = tool_requests()[name], REGISTRY.tools[name]
    files = [_files()[kind], *request.inputs[1:], *request.files.values()]
    place = folder / f"{name} {kind}"
    place.mkdir()
    paths = [place / str(number) for number in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    count = len(request.inputs)
    try:
        sources = [*map(REGISTRY.identify, paths[:count])]
        for parameter, path in zip(request.files, paths[count:], strict=True):
            sources.append(ANY_FILE if tool.takes_any(parameter) else REGISTRY.identify(path))
        plan = REGISTRY.plan(sources, tool.target, name, request.options, tuple(request.files))
        job = FileJob(Task.of(plan, request.options), paths, place / "result")
        await run_files(executor, job, _PDF_LIMITS)
    except ConversionError as error:
        is_documented = error.reason in ERROR_CATALOGUE[error.code].reasons
        return None if is_documented and error.reason not in _PDF_FAULTS else f"{name}, {kind}: {error.reason} {error}"
    return None if job.output.stat().st_size else f"{name}, {kind}: no result"


async def _faults(executor: LocalExecutor, folder: Path, pairs: list[tuple[str, str]]) -> list[str]:
    limit = asyncio.Semaphore(4)
    pairs = [pair for pair in pairs if pair not in _ENDLESS]

    async def one(name: str, kind: str) -> str | None:
        async with limit:
            return await _fault(executor, folder, name, kind)

    return [fault for fault in await asyncio.gather(*(one(*pair) for pair in pairs)) if fault]


@pytest.mark.slow
async def test_each_file_by_some_tool(executor: LocalExecutor, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    pairs = [(READING[place % len(READING)], kind) for place, kind in enumerate(_files())]

    assert await _faults(executor, tmp_path, [*share(pairs, pytestconfig, 4)]) == []


@pytest.mark.long
@pytest.mark.parametrize("name", READING)
async def test_all_files(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    assert await _faults(executor, tmp_path, [(name, kind) for kind in _files()]) == []
