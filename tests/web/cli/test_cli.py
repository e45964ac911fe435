"""The `convertd` command without a server."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from PIL import Image
from typer.testing import Result

from engine.errors import ExecutorUnavailable
from engine.executor import LocalExecutor
from engine.outcome import Outcome, WarningRecord
from engine.registry import load_registry
from tests.support.command_line import invoke, run_command, write_samples
from tests.support.results.conversions import opened
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from web.cli.conversion_arguments import AUTO_FORMAT, ConversionTask
from web.cli.output import print_table
from web.cli.results import CommandResult, Display, report
from web.cli.units import without_units
from web.services.operation.maintenance import lock_data_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


def test_one_file(folder: Path) -> None:
    done = run_command(folder, "convert", "photo.heic", "photo.jpg")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    with Image.open(folder / "photo.jpg") as image:
        assert image.format == "JPEG"


def test_explain_and_warnings(folder: Path) -> None:
    done = invoke(folder, "convert", "--explain", "--quality", "50", "photo.heic", "photo.tif")

    assert done.exit_code == 0
    assert "photo.heic: steps: heic -> raster, metadata, raster -> tiff" in done.stderr
    assert "quality_ignored" in done.stderr
    assert not (folder / "photo.tif").exists()


def test_explain_shows_the_result(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    done = invoke(folder, "convert", "--explain", "pages.pdf", "page.jpg", "--password", "secret")

    assert re.search(r"pages.pdf: pdf to jpeg, \d+ x \d+ pixels$", done.stderr, re.MULTILINE)
    assert "Only the first of 3 pages was converted. (pages_dropped)" in done.stderr
    assert not (folder / "page.jpg").exists()
    assert "loses structure, detail" in done.stderr
    assert "  quality: 80 (default)" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--strip", "photo.heic", "a.png"), "there is no --strip; the option is --metadata."),
        (("--density", "300", "photo.heic", "a.png"), "there is no --density; the option is --dpi."),
        (("--output_format=png", "photo.heic"), "there is no --output-format; the option is --to."),
        (("-resize", "9", "photo.heic", "a.png"), "there is no -resize; the option is --width."),
        (("--pages", "all", "photo.heic", "a.zip"), "a.zip can hold files of any format; use --to FORMAT -o a.zip."),
    ],
)
def test_names_of_other_programs(folder: Path, flags: tuple[str, ...], message: str) -> None:
    done = invoke(folder, "convert", *flags)

    assert (done.exit_code, done.stderr) == (2, f"convertd: {message}\n")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(
            ("merge", "pdf-merge"),
            ("join", "pdf-merge"),
            ("images", "convert --images or pdf-extract-images or pdf-from-images"),
        ),
        *(("resize", "convert --width or pdf-resize-pages"), ("max-bytes", "convert --max-bytes")),
    ],
)
def test_commands_of_other_programs(folder: Path, name: str, meant: str) -> None:
    done = invoke(folder, name, "photo.heic", "out")

    assert (done.exit_code, done.stderr) == (2, f"convertd: there is no command {name}; use {meant}.\n")


@pytest.mark.parametrize(
    "arguments", [("photo.heic", "a.jpg"), ("--to", "jpeg", "-o", "a.jpg", "./photo.heic"), ("photo", "a.jpg")]
)
def test_the_name_of_convert_can_be_left_out(folder: Path, arguments: tuple[str, ...]) -> None:
    (folder / "photo").write_bytes(sample("heic"))

    assert invoke(folder, *arguments).exit_code == 0
    assert opened((folder / "a.jpg").read_bytes()).format == "JPEG"


def test_a_file_with_the_name_of_a_command_is_none_of_its_arguments(folder: Path) -> None:
    (folder / "tools").mkdir()

    assert "pdf-merge\t" in invoke(folder, "tools").stdout


def test_a_dry_run_of_several_files_leaves_out_defaults(folder: Path) -> None:
    (folder / "other.png").write_bytes(sample("png"))
    flags = ("--dry-run", "--width", "9", "photo.heic", "other.png", "--to", "webp")

    short, long = invoke(folder, "convert", *flags), invoke(folder, "convert", "-v", *flags)

    assert "other.png:   width: 9\n" in short.stderr
    assert "(default)" not in short.stderr
    assert "other.png:   quality: 87 (default)\n" in long.stderr


def test_the_options_of_the_registry_are_flags(folder: Path) -> None:
    help_text = " ".join(re.sub("[^ -~]", " ", invoke(folder, "convert", "--help", COLUMNS="400").stdout).split())

    for option in load_registry().options.values():
        assert f" --{option.name.replace('_', '-')} " in help_text
        assert option.schema["description"].replace("`", "") in help_text


@pytest.mark.parametrize("flag", ["--max-pixels=100", "--max_pixels=100"])
def test_options_are_applied(folder: Path, flag: str) -> None:
    assert invoke(folder, "convert", "photo.heic", flag, "photo.jpg").exit_code == 0
    with Image.open(folder / "photo.jpg") as image:
        assert image.width * image.height <= 100


def test_files_that_look_like_flags(folder: Path) -> None:
    (folder / "photo.heic").rename(folder / "--a_b.heic")

    assert invoke(folder, "convert", "--max_bytes", "5000", "--", "--a_b.heic", "--a_b.jpg").exit_code == 0
    assert (folder / "--a_b.jpg").stat().st_size <= 5000


def test_several_pages_become_files(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    done = invoke(folder, "convert", "pages.pdf", "out/page.png", "--pages", "1,3")

    assert (done.exit_code, done.stderr) == (0, "pages.pdf: 2 files, out/page-01.png to out/page-02.png\n")
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["page-01.png", "page-02.png"]


@pytest.mark.parametrize(("pages", "names"), [("1,3", ["pages-01.png", "pages-02.png"]), ("1", ["page.png"])])
def test_a_zip_of_pages_where_its_name_asks_for_one(folder: Path, pages: str, names: list[str]) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    done = invoke(folder, "convert", "pages.pdf", "-o", "out/page.zip", "--to", "png", "--pages", pages)

    assert done.exit_code == 0
    assert ZipFile(folder / "out" / "page.zip").namelist() == names


def test_an_unknown_flag_names_the_nearest(folder: Path) -> None:
    done = invoke(folder, "convert", "photo.heic", "photo.jpg", "--qualty", "80")

    assert done.exit_code == 2
    assert "--quality" in done.stderr


def test_many_files_into_a_folder(folder: Path) -> None:
    (folder / "photo_2.png").write_bytes(sample("png"))

    done = invoke(folder, "convert", "photo.heic", "bad.png", "photo.png", "photo_2.png", "out", "--to", "webp")

    assert done.exit_code == 1
    assert "bad.png: " in done.stderr
    assert "corrupt_input" in done.stderr
    assert {path.name for path in (folder / "out").iterdir()} == {"photo.webp", "photo_2.webp", "photo_3.webp"}


def test_processes_start_before_conversions_whose_wait_is_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def start(_executor: LocalExecutor) -> None:
        calls.append("start")
        raise ExecutorUnavailable("No process.")

    async def run(_executor: LocalExecutor, *_arguments: object) -> None:
        calls.append("run")
        raise ExecutorUnavailable("No process can be started.")

    monkeypatch.setattr(LocalExecutor, "start", start)
    monkeypatch.setattr(LocalExecutor, "run", run)

    done = invoke(folder, "photo.heic", "photo.png", "-o", "out/", "--to", "webp")

    assert (done.exit_code, calls) == (1, ["start", "run", "run"])
    assert done.stderr.count("No process can be started.") == 2


@pytest.mark.parametrize(
    ("verbose", "lines"),
    [(False, ["a and 2 more: Small. (small)"]), (True, [f"{name}: Small. (small)" for name in "bac"])],
)
def test_a_warning_of_several_files_is_a_line(
    capsys: pytest.CaptureFixture[str], lines: list[str], *, verbose: bool
) -> None:
    outcome = Outcome("png", 1, warnings=(WarningRecord("small", "Small."),))

    async def results() -> AsyncIterator[CommandResult]:
        for name in ("b", "a", "c"):
            yield CommandResult(ConversionTask((), name, name, None, AUTO_FORMAT, None), outcome)

    asyncio.run(report(results(), 3, [], Display(verbose=verbose)))

    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"max_bytes": "200kB", "width": "9"}, ({"max_bytes": "200000", "width": "9"}, {})),
        ({"max_bytes": "1.5 MiB"}, ({"max_bytes": "1572864"}, {})),
        ({"max_bytes": "1234", "width": "150%"}, ({"max_bytes": "1234"}, {"width": 1.5})),
        ({"max_bytes": "2 parsecs", "height": "0%"}, ({"max_bytes": "2 parsecs", "height": "0%"}, {})),
    ],
)
def test_units(given: dict[str, object], expected: tuple[dict[str, object], dict[str, float]]) -> None:
    assert without_units(given) == expected


def test_shares_of_the_size(folder: Path) -> None:
    Image.new("RGB", (30, 20)).save(folder / "wide.png")
    (folder / "text.txt").write_text("text")

    assert invoke(folder, "wide.png", "out/wide.webp", "--width", "50%").exit_code == 0
    assert opened((folder / "out" / "wide.webp").read_bytes()).size == (15, 10)
    assert invoke(folder, "bad.png", "out/bad.webp", "--width", "50%").exit_code == 1
    refused = invoke(folder, "text.txt", "text.docx", "--width", "50%")
    assert (refused.exit_code, "text.txt: the result has no size" in refused.stderr) == (2, True)
    assert invoke(folder, "pdf-rotate", "text.pdf", "-o", "x.pdf", "--width", "50%").exit_code == 2
    outputs = ("--outputs", '[{"output_format": "webp"}]')
    assert invoke(folder, "wide.png", "several/", *outputs, "--width", "50%").exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("photo.heic",),
        ("photo.heic", "photo.xyz"),
        ("photo.heic", "photo"),
        ("missing.heic", "photo.jpg"),
        ("photo.heic", "photo.png", "third.jpg"),
        ("photo.heic", "nowhere/photo.jpg"),
        ("photo.png", "--to", "png"),
        ("photo.png", "--to", "xyz"),
        ("photo.heic", "photo.jpg", "--quality", "0"),
        ("photo.heic", "photo.jpg", "--quality", "many"),
        (),
    ],
)
def test_invalid_arguments_exit_with_2(folder: Path, arguments: tuple[str, ...]) -> None:
    before = {path.name for path in folder.rglob("*")}

    done = invoke(folder, "convert", *arguments)

    assert done.exit_code == 2
    assert done.stderr
    assert isinstance(done.exception, SystemExit)
    assert {path.name for path in folder.rglob("*")} == before


def _rows(done: Result) -> dict[str, str]:
    """The lines of a command in a pipe: a name, a tab, and one more cell."""
    return dict(line.split("\t") for line in done.stdout.splitlines())


@pytest.mark.parametrize(("terminal", "printed"), [(True, "│ x │   │"), (False, "x\t\ny z\t1\n")])
def test_tables_are_for_terminals(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], printed: str, *, terminal: bool
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)

    print_table(("a", "b"), [("x", None), ("y\nz", 1)])

    output = capsys.readouterr().out
    assert printed in output
    assert ("\t" in output) is not terminal


def test_formats_and_doctor_print_lines_in_pipes(folder: Path) -> None:
    settings = {"CONVERTD_JOBS_PER_PROCESS": "7", "CONVERTD_SANDBOX": "off"}
    rows = _rows(invoke(folder, "doctor", **settings))
    layers = {row for row in rows if row.startswith("sandbox layer: ") and rows[row] == "active"}
    isolated = rows["process of one conversion"].removeprefix("from ").split(", ")

    assert "heic" in invoke(folder, "formats").stdout
    assert layers == {f"sandbox layer: {name}" for name in ("rlimits", "process_group", "parent_death_signal")}
    assert "at most 7 conversions" in rows["process"]
    assert {"eps", "dng", "jxr"} <= {*isolated}
    assert {"jpeg", "pdf"}.isdisjoint(isolated)


def test_formats_as_json(folder: Path) -> None:
    catalogue = json.loads(invoke(folder, "formats", "--json").stdout)

    assert catalogue["total"] == len(catalogue["conversions"]) > 150


def test_formats_of_one_input_and_of_a_pair(folder: Path) -> None:
    outputs = json.loads(invoke(folder, "formats", "pptx", "--json").stdout)["outputs"]
    rows = _rows(invoke(folder, "formats", "JPG", "webp"))

    assert {"output_format": "md", "losses": ["detail"]} in outputs
    assert rows["steps"].endswith("raster -> webp")
    assert {"losses", "quality", "lossless", "width"} <= {*rows}
    assert invoke(folder, "formats", "jpeg", "none").exit_code == 2
    assert invoke(folder, "formats", "none").exit_code == 2


def test_missing_packages_are_reported_and_their_formats_not_listed(folder: Path) -> None:
    """Without programs on the path, EPS is written but not read, and neither Office nor the text of scans is."""
    environment = {"PATH": "/nowhere", "CONVERTD_JOBS_PER_PROCESS": "7"}
    found = json.loads(run_command(folder, "doctor", "--json", **environment).stdout)
    offered = json.loads(run_command(folder, "formats", "--json", PATH="/nowhere").stdout)["by_input_format"]
    recognized = run_command(folder, "pdf-ocr", "1.pdf", "-o", "2.pdf", PATH="/nowhere")

    assert [(need["name"], need["install"]) for need in found["missing"]] == [
        ("DjVuLibre", "apt-get install djvulibre-bin"),
        ("Ghostscript", "apt-get install ghostscript"),
        ("LibreOffice", "sh config/setup.sh office"),
        ("Pandoc", "apt-get install pandoc"),
        ("Tesseract", "apt-get install tesseract-ocr"),
    ]
    assert {"eps", "docx"}.isdisjoint(offered)
    assert "eps" in offered["jpeg"]
    assert (recognized.returncode, recognized.stdout) == (1, "")
    assert recognized.stderr == "convertd: pdf-ocr needs Tesseract; install it with: apt-get install tesseract-ocr\n"
    assert found["processes"]["jobs_per_process"] == 7
    assert {"dng", "jxr"} <= {*found["processes"]["isolated_inputs"]}
    assert not {"eps", "jpeg", "pdf"} & {*found["processes"]["isolated_inputs"]}
    assert "pdf" not in found["processes"]["isolated_outputs"]


def test_a_port_out_of_range_is_refused(folder: Path) -> None:
    done = invoke(folder, "serve", "--port", "99999", CONVERTD_WORKERS="many")  # the setting keeps it from serving

    assert done.exit_code == 2
    assert "65535" in done.stderr


def test_several_processes_need_redis(folder: Path) -> None:
    done = invoke(folder, "serve", "--processes", "2")

    assert done.exit_code == 2
    assert "--processes requires CONVERTD_REDIS_URL" in done.stderr
    assert not (folder / "data").exists()


def test_a_port_in_use_is_reported(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run_command(folder, "serve", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 1
    assert "cannot serve" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_data_folder_has_one_server(folder: Path) -> None:
    with lock_data_folder(folder / "data"):
        done = run_command(folder, "serve", "--port", "0")

    assert done.returncode == 1
    assert f"Another server or worker uses the data folder {folder / 'data'}" in done.stderr
    assert not (folder / "data" / "convertd.db").exists()


@pytest.mark.parametrize(
    ("arguments", "unneeded"),
    [
        (
            ["--help"],
            {
                "asyncio",
                "config.settings",
                "importlib.metadata",
                "engine",
                "httpx",
                "peewee",
                "tornado",
                "web.cli.account",
            },
        ),
        (["config"], {"engine", "httpx", "peewee", "redis", "stripe", "tornado"}),
        (["archive", "a.gz", "--before", "2026-01"], {"engine", "httpx", "plugins", "redis", "stripe", "tornado"}),
        (["account", "audit"], {"engine", "httpx", "plugins", "redis", "stripe", "tornado"}),
        (
            ["account", "create", "--email", "a@example.test", "--name", "Test"],
            {"engine.registry", "httpx", "plugins", "redis", "stripe", "tornado"},
        ),
        (
            ["convert", "photo.png", "photo.bmp"],
            {"httpx", "peewee", "redis", "stripe", "tornado", "storage", "web.cli.account", "web.cli.archive"}
            | {"web.cli.cluster", "email.headerregistry", "tomllib", "pikepdf", "numpy", "pymupdf"},
        ),
    ],
)
def test_a_command_imports_only_what_it_needs(folder: Path, arguments: list[str], unneeded: set[str]) -> None:
    program = (
        f"import sys; from web.cli.main import cli; cli({arguments}, standalone_mode=False);"
        "print(*sys.modules, file=sys.stderr)"
    )
    environment = {"CONVERTD_DATA_DIR": str(folder), "PYTHONPATH": str(Path(__file__).parents[3])}

    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, cwd=folder, env=environment
    )

    assert unneeded & {*done.stderr.split()} == set()
