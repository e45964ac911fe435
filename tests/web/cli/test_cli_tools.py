"""The commands of tools: one for each tool that plugins declare."""

import io
from pathlib import Path

import pikepdf
import pytest

from tests.support.command_line import invoke
from tests.support.samples.pdf_documents import page_texts
from tests.support.samples.scans import SCANNED, scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with PDFs of one, two and three pages."""
    for count in (1, 2, 3):
        with pikepdf.new() as made:
            for _ in range(count):
                made.add_blank_page()
            made.save(tmp_path / f"{count}.pdf")
    return tmp_path


def page_count(content: bytes) -> int:
    with pikepdf.open(io.BytesIO(content)) as opened:
        return len(opened.pages)


@pytest.mark.parametrize(
    ("arguments", "pages"),
    [(("pdf-merge", "1.pdf", "2.pdf", "3.pdf"), 6), (("pdf-delete-pages", "3.pdf", "--pages", "1,3"), 1)],
)
def test_several_files_and_flags(folder: Path, arguments: tuple[str, ...], pages: int) -> None:
    assert invoke(folder, *arguments, "-o", "out.pdf").exit_code == 0

    assert page_count((folder / "out.pdf").read_bytes()) == pages


def test_an_existing_file_is_replaced_only_on_request(folder: Path) -> None:
    before = (folder / "1.pdf").read_bytes()
    command = ("pdf-merge", "2.pdf", "3.pdf", "-o", "1.pdf")

    refused, kept = invoke(folder, *command), invoke(folder, *command, "-n")
    assert (refused.exit_code, "exists" in refused.stderr, kept.exit_code) == (1, True, 0)
    assert (folder / "1.pdf").read_bytes() == before
    assert invoke(folder, *command, "-y").exit_code == 0
    assert page_count((folder / "1.pdf").read_bytes()) == 5


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("pdf-delete-pages", "3.pdf", "-o", "x.pdf"), 2, "pages is missing"),
        (("pdf-delete-pages", "3.pdf", "-o", "x.pdf", "--pages", "9"), 1, "no page 9"),
        (("pdf-delete-pages", "3.pdf", "2.pdf", "-o", "x.pdf", "--pages", "1"), 1, "takes 1 file"),
        (("pdf-merge", "3.pdf", "-o", "x.pdf"), 1, "takes 2 to 20 files"),
        (("pdf-merge", "3.pdf", "none.pdf", "-o", "x.pdf"), 2, "none.pdf is not a file"),
        (("pdf-merge", "3.pdf", "2.pdf", "-o", "none/x.pdf"), 2, "none is not a folder"),
        (("pdf-mirror", "3.pdf", "-o", "x.pdf"), 2, "No such command"),
    ],
)
def test_wrong_arguments(folder: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = invoke(folder, *arguments)

    assert (done.exit_code, message in done.stderr) == (code, True)
    assert not (folder / "x.pdf").exists()


def test_the_text_of_a_image_is_recognized(folder: Path) -> None:
    (folder / "scan.jpg").write_bytes(scan())

    done = invoke(folder, "pdf-ocr", "scan.jpg", "-o", "scan.pdf")

    assert (done.exit_code, done.stderr) == (0, "")
    assert page_texts((folder / "scan.pdf").read_bytes())[0].split() == SCANNED.split()


def test_the_manual_has_the_options(folder: Path) -> None:
    done = invoke(folder, "pdf-delete-pages", "--help")

    assert all(text in done.stdout for text in ("--pages", "--password", "--remote", "Deletes pages"))
    assert "pdf-merge" in invoke(folder, "tools").stdout
