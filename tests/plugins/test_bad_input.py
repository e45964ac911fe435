"""Damaged, truncated, oversized and misnamed files: each fails promptly with its code and reason."""

import tempfile
from pathlib import Path
from time import monotonic

import pytest
from PIL import Image

from engine import ConversionError
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.registry import load_registry
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.generated import sample, saved
from tests.support.samples.pairs import pairs_with_samples

pytestmark = pytest.mark.asyncio(loop_scope="session")

_REGISTRY = load_registry()
_PROMPT = 20.0  # seconds, on a busy machine

# Damaged files with a usable result, and the codes of its warnings.
_RECOVERED = {
    "bad/truncated.heic": {"pages_dropped"},  # the first of two images is complete
    "bad/psd_oob_write.psd": {"layers_flattened"},  # crashed an old version of the reader; the image is complete
    "bad/trailer_loop.pdf": {"repaired"},
    "pdf/repairable_bad_xref.pdf": {"repaired"},
}


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


_TEXTS = {"fb2", "html", "md", "mobi", "txt"}


async def test_empty(executor: LocalExecutor) -> None:
    assert await _refused(executor, b"", "photo.jpg") == ("invalid_file_type", "empty_file")


async def test_unknown(executor: LocalExecutor) -> None:
    assert await _refused(executor, b"just text", "photo.jpg") == ("invalid_file_type", "unrecognized")


@pytest.mark.parametrize("name", sorted({plan.source.name for plan in pairs_with_samples()} - _TEXTS))
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
