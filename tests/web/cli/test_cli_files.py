"""Inputs and outputs of `convertd convert`: folders, standard streams, existing files, names, presets, and failures."""

import json
import os
import subprocess
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pikepdf
import pytest
from PIL import Image

from tests.support.command_line import COMMAND, invoke, run_at_terminal, run_command, write_samples
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running

_JUNK = b"% no PDF header in sight\n" * 400
TWO = json.dumps([{"output_format": "webp", "width": 16, "name": "small"}, {"output_format": "png"}])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


def _pipe(folder: Path, content: bytes, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([COMMAND, "convert", *arguments], cwd=folder, input=content, capture_output=True, check=False)


def _format(content: bytes) -> str | None:
    with Image.open(BytesIO(content)) as image:
        return image.format


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_results_have_the_mode_of_the_umask(folder: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        assert invoke(folder, "convert", "photo.heic", "photo.jpg").exit_code == 0
    finally:
        os.umask(before)

    assert (folder / "photo.jpg").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("arguments", [("photo.heic", "out/photo.jpg"), ("photo.heic", "out", "--to", "jpeg")])
@pytest.mark.parametrize(
    ("flags", "exit_code", "replaced", "message"),
    [
        ((), 1, False, "photo.heic: out/photo.jpg exists; use -y to replace it or -n to keep it\n"),
        (("-n",), 0, False, "photo.heic: out/photo.jpg exists and is kept\n"),
        (("--no-overwrite",), 0, False, "photo.heic: out/photo.jpg exists and is kept\n"),
        (("-y",), 0, True, ""),
        (("--overwrite",), 0, True, ""),
    ],
)
def test_existing_files(
    folder: Path, arguments: tuple[str, ...], flags: tuple[str, ...], exit_code: int, replaced: bool, message: str
) -> None:
    output = folder / "out" / "photo.jpg"
    output.write_bytes(b"precious")

    done = invoke(folder, "convert", *flags, *arguments)

    assert (done.exit_code, done.stderr) == (exit_code, message)
    assert (output.read_bytes() != b"precious") is replaced
    assert _names(folder / "out") == {"photo.jpg"}


def test_one_existing_page_keeps_all_from_being_written(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 2))
    (folder / "out" / "page-02.png").write_bytes(b"precious")
    command = ("convert", "pages.pdf", "out/page.png", "--pages", "all")

    refused = invoke(folder, *command)
    kept = invoke(folder, *command, "-n")

    assert (refused.exit_code, kept.exit_code) == (1, 0)
    assert "out/page-02.png exists; use -y" in refused.stderr
    assert [(path.name, path.read_bytes()) for path in (folder / "out").iterdir()] == [("page-02.png", b"precious")]
    assert invoke(folder, *command, "-y").exit_code == 0
    assert _names(folder / "out") == {"page-01.png", "page-02.png"}
    assert _format((folder / "out" / "page-02.png").read_bytes()) == "PNG"


def test_numbered_pages_replace_no_file_with_the_name_of_the_output(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 2))
    (folder / "page.png").write_bytes(b"precious")

    done = invoke(folder, "pages.pdf", "page.png", "--pages", "all")
    single = invoke(folder, "pages.pdf", "page.png", "--pages", "2")

    assert done.exit_code == 0, done.stderr
    assert (folder / "page-02.png").exists()
    assert (single.exit_code, "page.png exists; use -y" in single.stderr) == (1, True)
    assert (folder / "page.png").read_bytes() == b"precious"


def test_a_replaced_file_keeps_its_mode(folder: Path) -> None:
    (folder / "photo.jpg").touch(0o640)
    (folder / "photo.jpg").chmod(0o640)

    assert invoke(folder, "convert", "-y", "photo.heic", "photo.jpg").exit_code == 0

    assert (folder / "photo.jpg").stat().st_mode & 0o777 == 0o640
    assert _format((folder / "photo.jpg").read_bytes()) == "JPEG"


@pytest.mark.parametrize("exists", [False, True])
def test_a_symbolic_link_stays_and_its_file_is_replaced(folder: Path, exists: bool) -> None:
    target, link = folder / "out" / "real.jpg", folder / "photo.jpg"
    link.symlink_to("out/real.jpg")
    if exists:
        target.write_bytes(b"precious")

    refused = invoke(folder, "convert", "photo.heic", "photo.jpg")
    assert (refused.exit_code, link.is_symlink()) == (1, True)
    assert invoke(folder, "convert", "-y", "photo.heic", "photo.jpg").exit_code == 0

    assert str(link.readlink()) == "out/real.jpg"
    assert _format(target.read_bytes()) == "JPEG"


def test_a_device_is_written_to(folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 1))

    done = run_command(folder, "convert", "pages.pdf", "-o", "/dev/stdout", "--to", "txt")

    assert (done.returncode, "pages" in done.stdout) == (0, True)
    assert Path("/dev/stdout").is_symlink()


@pytest.mark.parametrize(("answer", "exit_code", "replaced"), [("y\n", 0, True), ("n\n", 0, False), ("\n", 0, False)])
def test_a_question_at_a_terminal(folder: Path, answer: str, exit_code: int, replaced: bool) -> None:
    (folder / "photo.jpg").write_bytes(b"precious")

    done, text = run_at_terminal(folder, "convert", "photo.heic", "photo.jpg", answer=answer)

    assert done == exit_code
    assert "photo.jpg exists. Replace it?" in text
    assert ((folder / "photo.jpg").read_bytes() != b"precious") is replaced


def test_implied_names_are_replaced_only_with_a_flag(folder: Path) -> None:
    (folder / "photo.jpg").write_bytes(b"precious")

    exit_code, text = run_at_terminal(folder, "convert", "photo.heic", "--to", "jpeg", answer="y\n")

    assert exit_code == 1
    assert "use -y to replace it" in text
    assert (folder / "photo.jpg").read_bytes() == b"precious"


def test_the_files_of_a_folder(folder: Path) -> None:
    source = folder / "in"
    (source / "more").mkdir(parents=True)
    for name in ("a.heic", "b.png", ".hidden.png", "more/c.png", "notes.bin"):
        (source / name).write_bytes(sample(Path(name).suffix[1:]) if name != "notes.bin" else b"\0notes")

    assert invoke(folder, "convert", "in", "out", "--to", "webp").exit_code == 0
    assert _names(folder / "out") == {"a.webp", "b.webp"}

    assert invoke(folder, "convert", "in", "--to", "webp").exit_code == 0
    assert _names(source) == {"a.heic", "b.png", ".hidden.png", "more", "notes.bin", "a.webp", "b.webp"}
    again = invoke(folder, "convert", "-n", "in", "--to", "webp")
    assert again.exit_code == 0
    assert again.stderr.count("is kept") == 2


def test_a_folder_without_files_to_convert(folder: Path) -> None:
    (folder / "out" / "notes.bin").write_bytes(b"\0notes")

    done = invoke(folder, "convert", "out", "--to", "webp")

    assert done.exit_code == 2
    assert "out has no files to convert" in done.stderr


def test_standard_input_and_output(folder: Path) -> None:
    through = _pipe(folder, sample("heic"), "-", "--to", "png")
    assert (through.returncode, through.stderr, _format(through.stdout)) == (0, b"", "PNG")

    to_output = _pipe(folder, b"", "photo.heic", "-", "--to", "jpg")
    assert (to_output.returncode, _format(to_output.stdout)) == (0, "JPEG")


def test_standard_input_to_a_file(folder: Path) -> None:
    assert invoke(folder, "convert", "-", "out/piped.webp", answer=sample("heic")).exit_code == 0
    assert _format((folder / "out" / "piped.webp").read_bytes()) == "WEBP"

    assert invoke(folder, "convert", "-", "out", "--to", "gif", answer=sample("heic")).exit_code == 0
    assert _format((folder / "out" / "stdin.gif").read_bytes()) == "GIF"


def test_a_failure_writes_nothing_to_standard_output(folder: Path) -> None:
    done = _pipe(folder, sample("png")[:100], "-", "--to", "jpg")

    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"standard input: ")


def test_the_format_of_unknown_content(folder: Path) -> None:
    content = _JUNK + sample("pdf")

    unknown = invoke(folder, "convert", "-", "out/page.png", answer=content)
    known = invoke(folder, "convert", "-", "out/page.png", "--from", "pdf", answer=content)

    assert unknown.exit_code == 1
    assert "unrecognized" in unknown.stderr
    assert known.exit_code == 0
    assert _format((folder / "out" / "page.png").read_bytes()) == "PNG"


def test_the_content_decides_before_the_given_format(folder: Path) -> None:
    done = invoke(folder, "convert", "-", "out/photo.png", "--from", "jpeg", answer=sample("heic"))

    assert done.exit_code == 0
    assert _format((folder / "out" / "photo.png").read_bytes()) == "PNG"


@pytest.mark.parametrize(
    "arguments",
    [
        ("photo.heic", "-"),
        ("photo.heic", "photo.png", "-", "--to", "jpg"),
        ("out", "-", "--to", "jpg"),
        ("out", "photo.jpg"),
        ("photo.heic", "out"),
        ("-", "--to", "jpg", "--from", "xyz"),
    ],
)
def test_invalid_inputs_and_outputs(folder: Path, arguments: tuple[str, ...]) -> None:
    done = invoke(folder, "convert", *arguments, answer=sample("heic"))

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("convertd: ")


def test_no_result_is_written_to_a_terminal(folder: Path) -> None:
    exit_code, text = run_at_terminal(folder, "convert", "photo.heic", "-", "--to", "jpg")

    assert exit_code == 2
    assert "standard output is a terminal" in text


def test_the_password_of_a_pdf(folder: Path) -> None:
    with pikepdf.open(BytesIO(sample("pdf"))) as pdf:
        pdf.save(folder / "locked.pdf", encryption=pikepdf.Encryption(user="sesame", owner="owner"))

    refused = invoke(folder, "convert", "locked.pdf", "page.png")
    opened = invoke(folder, "convert", "locked.pdf", "page.png", "--password", "sesame")

    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "password" in refused.stderr
    assert opened.exit_code == 0


def test_a_folder_in_which_nothing_can_be_written(folder: Path) -> None:
    done = invoke(folder, "convert", "photo.heic", "/proc/photo.jpg")

    assert done.exit_code == 1
    assert done.stderr.startswith("photo.heic: cannot write /proc/photo.jpg: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("files", [1, 2])
def test_a_full_disk_leaves_nothing(folder: Path, small_disk: Path, files: int) -> None:
    sources = ("large.png", "other.png")[:files]
    for name in sources:
        Image.new("L", (1500, 1500)).save(folder / name)  # larger than the disk, as a BMP
    (small_disk / "large.bmp").write_bytes(b"precious")

    done = invoke(folder, "convert", "-y", *sources, str(small_disk), "--to", "bmp")

    assert done.exit_code == 1
    assert done.stderr.count("No space left on device") == files
    assert isinstance(done.exception, SystemExit)
    assert [(path.name, path.read_bytes()) for path in small_disk.iterdir()] == [("large.bmp", b"precious")]


def test_standard_output_on_a_full_disk(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [COMMAND, "convert", "photo.heic", "-", "--to", "jpg"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )

    assert done.returncode == 1
    assert done.stderr == "photo.heic: cannot write standard output: No space left on device\n"


@pytest.fixture(params=["here", "server"])
def place(request: pytest.FixtureRequest) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments and the environment of a conversion here, or on a server."""
    if request.param == "here":
        return (), {}
    server: Running = request.getfixturevalue("server")
    return ("--remote", server.url), {"CONVERTD_API_KEY": server.account(10)}


def _convert(folder: Path, place: tuple[tuple[str, ...], dict[str, str]], *arguments: str, exit_code: int = 0) -> str:
    where, environment = place
    done = invoke(folder, "convert", *arguments, *where, **environment)
    assert done.exit_code == exit_code, done.stderr
    return done.stderr


def _made(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "out").iterdir())


def test_names_of_results_in_a_folder(folder: Path, place: tuple[tuple[str, ...], dict[str, str]]) -> None:
    named = ("--filename", "{name}-{width}", "--to", "webp", "--width", "16")
    _convert(folder, place, "photo.heic", "out", *named)
    assert _made(folder) == ["photo-16.webp"]
    assert "photo-16.webp exists" in _convert(folder, place, "photo.heic", "out", *named, exit_code=1)
    _convert(folder, place, "photo.heic", "out", *named, "-y")
    assert _made(folder) == ["photo-16.webp"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("photo.heic", "photo.jpg", "--filename", "a"), "--filename names the files in a folder"),
        (("photo.heic", "bad.png", "out", "--to", "webp", "--filename", "a"), "--filename needs {name}"),
        (("photo.heic", "out", "--to", "webp", "--filename", "{a}"), "filename must have no other fields"),
        (("photo.heic", "out", "--outputs", "png"), "outputs must be a JSON list"),
        (("photo.heic", "out", "--outputs", '[{"output_format": "png", "width": 0}]'), "width must be"),
        (("photo.heic", "out", "--preset", "a"), "--preset needs --remote"),
    ],
)
def test_wrong_arguments(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    done = invoke(folder, "convert", *arguments)
    assert done.exit_code == 2
    assert message in done.stderr


def test_several_results(folder: Path, place: tuple[tuple[str, ...], dict[str, str]]) -> None:
    printed = _convert(folder, place, "photo.heic", "out", "--outputs", TWO, "-v")
    assert _made(folder) == ["photo-02.png", "small.webp"]
    for name in _made(folder):
        size = (folder / "out" / name).stat().st_size
        assert f"photo.heic: {Path('out', name)}, {size:,} bytes\n" in printed
    _convert(folder, place, "photo.heic", "-o", "both.zip", "--outputs", TWO)
    with ZipFile(folder / "both.zip") as archive:
        assert archive.namelist() == ["small.webp", "photo-02.png"]
    assert "1 files" not in _convert(folder, place, "photo.heic", "one/", "--outputs", json.dumps(json.loads(TWO)[:1]))


def test_a_text_with_its_pictures_stays_an_archive(folder: Path, place: tuple[tuple[str, ...], dict[str, str]]) -> None:
    (folder / "a.html").write_bytes(b"<!DOCTYPE html><img src='data:image/png;base64,YWJj'>")
    _convert(folder, place, "a.html", "b.md", "--images", "zip")
    with ZipFile(folder / "b.zip") as archive:
        assert archive.namelist() == ["index.md", "pictures/1.png"]


def test_the_smallest_of_several_formats(folder: Path, place: tuple[tuple[str, ...], dict[str, str]]) -> None:
    _convert(folder, place, "photo.heic", "out", "--to", "auto", "--formats", "bmp,png")
    assert _made(folder) == ["photo.png"]


def test_a_preset(folder: Path, server: Running) -> None:
    key = server.account(10)
    server.request("PUT", "/presets/sizes", key, json=json.loads(f'{{"outputs": {TWO}}}'))
    server.request("PUT", "/presets/thumb", key, json={"output_format": "webp", "width": 8})
    remote = ("--remote", server.url), {"CONVERTD_API_KEY": key}
    _convert(folder, remote, "photo.heic", "out", "--preset", "sizes")
    _convert(folder, remote, "photo.heic", "out", "--preset", "thumb", "--filename", "{name}-{width}")
    assert _made(folder) == ["photo-02.png", "photo-8.webp", "small.webp"]


def test_a_result_has_the_file_of_its_own_option(folder: Path) -> None:
    outputs = [{"output_format": "png", "watermark": "photo.png"}, {"output_format": "png"}]
    _convert(folder, ((), {}), "photo.heic", "out", "--outputs", json.dumps(outputs))
    _convert(folder, ((), {}), "photo.heic", "one.png", "--watermark", "photo.png")
    made = [(folder / "out" / name).read_bytes() for name in _made(folder)]
    assert made[0] == (folder / "one.png").read_bytes() != made[1]
    explained = invoke(folder, "convert", "photo.heic", "out", "--explain", "--json", "--outputs", json.dumps(outputs))
    assert "watermark" in explained.stdout
