"""`convertd convert` with many files: folders in folders, several formats, one file of several, and what is printed."""

import json
import re
from pathlib import Path

import pikepdf
import pytest

from tests.support.command_line import invoke, write_samples
from tests.support.results.conversions import opened
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder `in` with an image, a text without format, a WebP and a folder with an image; and an empty `out`."""
    write_samples(tmp_path)
    (tmp_path / "in" / "more").mkdir(parents=True)
    for name in ("a.png", "more/c.png", "done.webp"):
        (tmp_path / "in" / name).write_bytes(sample(Path(name).suffix[1:]))
    (tmp_path / "in" / "notes.bin").write_bytes(b"\0notes")
    return tmp_path


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_folders_in_folders(folder: Path) -> None:
    """The folder of the results is among them, and its files are no inputs."""
    (folder / "in" / "out").mkdir()
    (folder / "in" / "out" / "old.png").write_bytes(sample("png"))

    done = invoke(folder, "convert", "-r", "in", "in/out", "--to", "webp")

    lines = done.stderr.splitlines()
    assert done.exit_code == 0
    assert lines[:2] == [
        "in/done.webp: skipped, its format is webp already",
        "in/notes.bin: skipped, its extension is of no readable format",
    ]
    assert lines[-1].startswith("convertd: 2 converted, 2 skipped, 0 failed; ")
    assert "bytes saved" in lines[-1]
    assert _files(folder / "in" / "out") == {"old.png", "a.webp", "more/c.webp"}


def test_folders_in_folders_only_on_request(folder: Path) -> None:
    done = invoke(folder, "convert", "in", "out", "--to", "webp")

    assert "in/more: skipped, it is a folder; use -r to convert its files" in done.stderr
    assert _files(folder / "out") == {"a.webp"}


def test_options_change_files_of_the_output_format_too(folder: Path) -> None:
    resized = invoke(folder, "convert", "-r", "in", "out", "--to", "webp", "--width", "5")
    beside = invoke(folder, "convert", "in", "in", "--to", "webp", "--width", "5")
    (folder / "in" / "a.png").unlink()
    alone = invoke(folder, "convert", "in", "alone/", "--to", "webp", "--width", "5")

    assert [done.exit_code for done in (resized, beside, alone)] == [0, 0, 0], resized.stderr + beside.stderr
    assert _files(folder / "out") == {"a.webp", "done.webp", "more/c.webp"}
    assert opened((folder / "out" / "done.webp").read_bytes()).width == 5
    assert "in/done.webp: skipped, its format is webp already" in beside.stderr
    assert (folder / "in" / "done.webp").read_bytes() == sample("webp")
    assert _files(folder / "alone") == {"a.webp", "done.webp"}


def test_several_output_formats(folder: Path) -> None:
    assert invoke(folder, "convert", "photo.heic", "out", "--to", "webp", "--to", "png", "--to", "webp").exit_code == 0
    assert _files(folder / "out") == {"photo.webp", "photo.png"}

    for arguments in (("photo.heic", "-"), ("photo.heic", "-o", "one.png")):
        assert invoke(folder, "convert", *arguments, "--to", "webp", "--to", "png").exit_code == 2


@pytest.mark.parametrize("words", [("in/a.png", "photo.heic", "all.pdf"), ("in/a.png", "photo.heic", "-o", "all.pdf")])
def test_several_images_become_one_pdf(folder: Path, words: tuple[str, ...]) -> None:
    done = invoke(folder, "convert", *words, "--page-size", "a5")

    assert (done.exit_code, done.stderr) == (0, "")
    with pikepdf.open(folder / "all.pdf") as made:
        assert len(made.pages) == 2
        assert {round(float(min(page.mediabox[2:]))) for page in made.pages} == {420}


def test_pdfs_and_folders_become_one_pdf(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / "out" / f"{name}.pdf").write_bytes(document(name, 2))

    assert invoke(folder, "convert", "out", "all.pdf").exit_code == 0
    with pikepdf.open(folder / "all.pdf") as made:
        assert len(made.pages) == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("in/a.png", "photo.heic", "all.jpg"), "no tool makes one jpeg of these files"),
        (("in/a.png", "in/notes.bin", "all.pdf"), "matches no supported format"),
        (("in/a.png", "photo.heic", "all.pdf", "--effort", "3"), "effort"),
        (("in/a.png", "photo.heic", "all.pdf", "--dry-run"), "--dry-run"),
        (("in/a.png", "photo.heic", "-o", "all.jpg", "--to", "jpeg"), "all.jpg is not a folder"),
        (("in/a.png", "-", "--to", "jpeg", "--json"), "--json"),
        (("in/a.png", "a.jpg", "--async"), "--async needs --remote"),
        (("in/a.png", "a.jpg", "--jobs", "0"), "--jobs"),
    ],
)
def test_wrong_usage(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    before = _files(folder)

    done = invoke(folder, "convert", *arguments)

    assert (done.exit_code, message in done.stderr) == (2, True)
    assert _files(folder) == before


def test_less_and_more_is_printed(folder: Path) -> None:
    quiet = invoke(folder, "convert", "bad.png", "out", "--to", "tiff", "-q")
    verbose = invoke(
        *(folder, "convert", "photo.heic", "in/a.png", "bad.png", "--to", "tiff", "--quality", "50", "-v"),
        *("-o", "out", "--jobs", "1"),
    )

    assert (quiet.exit_code, quiet.stderr.count("\n"), quiet.stderr[:9]) == (1, 1, "bad.png: ")
    size = (folder / "out" / "a.tiff").stat().st_size
    assert f"in/a.png: out/a.tiff, {size:,} bytes (" in verbose.stderr
    assert "quality_ignored" in verbose.stderr
    assert "convertd: 2 converted, 0 skipped, 1 failed; " in verbose.stderr


def test_json(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 2))
    command = ("convert", "pages.pdf", "bad.png", "out", "--to", "tiff", "--to", "png", "--pages", "all", "--json")

    done = invoke(folder, *command)

    found = json.loads(done.stdout)
    results = {(file["input"], file.get("output_format")): file for file in found["files"]}
    assert (done.exit_code, done.stderr) == (1, "")
    assert (found["converted"], found["skipped"], found["failed"]) == (2, 0, 2)
    assert results["pages.pdf", "png"]["outputs"] == ["out/pages-01.png", "out/pages-02.png"]
    assert results["pages.pdf", "tiff"]["pages"] == 2
    assert results["bad.png", None]["error"]["code"] == "processing_failed"
    sizes = [file for file in found["files"] if file["status"] == "converted"]
    assert found["bytes_saved"] == sum(file["original_size"] - file["processed_size"] for file in sizes) != 0


def test_a_dry_run_as_json(folder: Path) -> None:
    done = invoke(folder, "convert", "photo.heic", "a.jpg", "--dry-run", "--width", "20", "--json")

    (one,) = json.loads(done.stdout)["files"]
    assert (one["status"], one["input_format"], one["output_format"], one["width"]) == ("inspected", "heic", "jpeg", 20)
    assert (one["options"]["quality"], "bytes_saved" in done.stdout) == (80, True)
    assert not (folder / "a.jpg").exists()


def test_a_server_gives_the_same_summary(folder: Path, server: Running) -> None:
    arguments = ("convert", "-r", "in", "out", "--to", "jpeg", "--remote", server.url)

    done = invoke(folder, *arguments, CONVERTD_API_KEY=server.account(10))

    summary, credits = done.stderr.splitlines()[-1], done.stderr.splitlines()[-2]
    assert summary.startswith("convertd: 3 converted, 1 skipped, 0 failed; ")
    assert credits == "convertd: 7 credits remain."
    assert _files(folder / "out") == {"a.jpg", "done.jpg", "more/c.jpg"}


def test_each_file_of_a_tool_into_a_folder(folder: Path) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.pdf").write_bytes(document(name, 2))

    assert invoke(folder, "pdf-rotate", "a.pdf", "b.pdf", "-o", "out", "--angle", "90").exit_code == 0
    done = invoke(folder, "pdf-split", "a.pdf", "-o", "out", "--every", "1", "--json")

    assert _files(folder / "out") == {"a.pdf", "b.pdf", "a-01.pdf", "a-02.pdf"}
    assert json.loads(done.stdout)["files"][0]["outputs"] == ["out/a-01.pdf", "out/a-02.pdf"]


@pytest.mark.parametrize(
    ("arguments", "made"),
    [
        (("convert", "photo.heic", "new/deep/", "--to", "webp"), {"new/deep/photo.webp"}),
        (("convert", "photo.heic", "--to", "webp", "-o", "new/"), {"new/photo.webp"}),
        (("convert", "photo.heic", "in/a.png", "--to", "webp", "-o", "new"), {"new/photo.webp", "new/a.webp"}),
        (("convert", "photo.heic", "-o", "new", "--to", "webp", "--to", "png"), {"new/photo.webp", "new/photo.png"}),
        (("pdf-rotate", "a.pdf", "b.pdf", "-o", "new", "--angle", "90"), {"new/a.pdf", "new/b.pdf"}),
        (("pdf-split", "a.pdf", "-o", "new/", "--every", "1"), {"new/a-01.pdf", "new/a-02.pdf"}),
    ],
)
def test_a_folder_is_made(folder: Path, arguments: tuple[str, ...], made: set[str]) -> None:
    for name in ("a", "b"):
        (folder / f"{name}.pdf").write_bytes(document(name, 2))
    before = _files(folder)

    done = invoke(folder, *arguments)

    assert (done.exit_code, _files(folder) - before) == (0, made), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", "photo.heic", "new/"),  # to no format
        ("convert", "photo.heic", "--to", "webp", "-o", "new/small.webp"),
        ("convert", "photo.heic", "in/a.png", "--to", "webp", "-o", "new.webp"),
        ("convert", "none.png", "new/", "--to", "webp"),
        ("convert", "photo.heic", "new/", "--to", "webp", "--dry-run"),
        ("pdf-rotate", "none.pdf", "-o", "new/", "--angle", "90"),
        ("pdf-merge", "a.pdf", "a.pdf", "-o", "new/"),
    ],
)
def test_no_folder_is_made(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "a.pdf").write_bytes(document("a", 2))
    before = {*folder.rglob("*")}

    done = invoke(folder, *arguments)

    assert (done.exit_code, {*folder.rglob("*")} - before) == (0 if "--dry-run" in arguments else 2, set()), done.stderr


def test_the_manual_page(folder: Path) -> None:
    made = invoke(folder, "man").stdout

    requests = {line.split(" ")[0] for line in made.splitlines() if line.startswith((".", "'"))}
    assert requests == {".TH", ".SH", ".SS", ".TP", ".B"}
    assert not re.search(r"[^\\]-", made.partition(".SH SYNOPSIS")[2])  # a hyphen of roff may be another character
    for text in ("--max-bytes", "convertd pdf-merge", "convertd account grant", "CONVERTD_API_KEY", "EXIT STATUS"):
        assert text.replace("-", r"\-") in made
    assert "--max-bytes" in invoke(folder, "convert", "-h", COLUMNS="400").stdout
