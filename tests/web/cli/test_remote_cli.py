"""`convertd convert --remote`, with the results and messages of a local one, `--async`, and `convertd jobs`."""

import json
import os
import re
import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest
from PIL import Image
from typer.testing import Result

from tests.support.command_line import COMMAND, invoke, run_command, write_samples
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.receiver import Receiver, reply


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


def test_one_file(folder: Path, server: Running) -> None:
    key = server.account(10)

    done = run_command(folder, "convert", "--remote", server.url, "photo.heic", "photo.jpg", CONVERTD_API_KEY=key)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "convertd: 9 credits remain.\n")
    with Image.open(folder / "photo.jpg") as image:
        assert image.format == "JPEG"


def test_remote_warnings_and_failures_match_local_ones(folder: Path, server: Running) -> None:
    arguments = ("convert", "photo.heic", "bad.png", "out", "--to", "tiff", "--quality", "50")
    key = server.account(10)

    local = invoke(folder, *arguments)
    remote = invoke(folder, *arguments, "-y", "--remote", server.url, CONVERTD_API_KEY=key)

    assert remote.exit_code == local.exit_code == 1
    assert "quality_ignored" in local.stderr
    assert sorted(remote.stderr.splitlines()) == sorted([*local.stderr.splitlines(), "convertd: 9 credits remain."])
    assert [path.name for path in (folder / "out").iterdir()] == ["photo.tiff"]


def test_a_dry_run_matches_a_local_one(folder: Path, server: Running) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))
    key = server.account(10)

    for arguments in (["--width", "20", "photo.heic", "photo.jpg"], ["--pages", "2-3", "pages.pdf", "page.png"]):
        local = invoke(folder, "convert", "--explain", *arguments)
        remote = invoke(folder, "convert", "--explain", *arguments, "--remote", server.url, CONVERTD_API_KEY=key)
        assert (remote.exit_code, remote.stderr) == (0, local.stderr)

    assert not [*folder.glob("photo.jpg"), *folder.glob("page.*")]


def test_options_are_passed_on(folder: Path, server: Running) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))
    key = server.account(10)

    for options in (["--pages", "2-3", "photo.heic", "photo.jpg"], ["--pages", "2-3", "pages.pdf", "page.png"]):
        local = invoke(folder, "convert", *options)
        remote = invoke(folder, "convert", "-y", "--remote", server.url, *options, CONVERTD_API_KEY=key)
        assert remote.exit_code == local.exit_code
        assert remote.stderr.splitlines()[:1] == local.stderr.splitlines()

    with Image.open(folder / "page-02.png") as image:
        assert image.format == "PNG"


def test_folders_standard_streams_and_existing_files(folder: Path, server: Running) -> None:
    command, key = ("convert", "--remote", server.url), server.account(10)
    (folder / "in").mkdir()
    (folder / "photo.heic").rename(folder / "in" / "photo.heic")
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    def run(*arguments: str) -> Result:
        return invoke(folder, *command, *arguments, CONVERTD_API_KEY=key)

    assert run("in", "out", "--to", "jpg").exit_code == 0
    assert (folder / "out" / "photo.jpg").stat().st_mode & 0o777 == 0o666 & ~_umask()
    (folder / "out" / "photo.jpg").write_bytes(b"precious")

    refused, kept = run("in", "out", "--to", "jpg"), run("-n", "in", "out", "--to", "jpg")
    assert (refused.exit_code, kept.exit_code) == (1, 0)
    assert "use -y to replace it" in refused.stderr
    assert (folder / "out" / "photo.jpg").read_bytes() == b"precious"
    assert run("-y", "in", "out", "--to", "jpg").exit_code == 0

    assert run("pages.pdf", "out/page.png", "--pages", "all").exit_code == 0
    assert {path.name for path in (folder / "out").iterdir()} == {"photo.jpg", *(f"page-0{n}.png" for n in (1, 2, 3))}
    assert run("pages.pdf", "-o", "out/page.zip", "--to", "png", "--pages", "all").exit_code == 0
    assert ZipFile(folder / "out" / "page.zip").namelist() == [f"pages-0{number}.png" for number in (1, 2, 3)]

    photo = (folder / "out" / "photo.jpg").read_bytes()
    known = {**os.environ, "CONVERTD_API_KEY": key}
    words = [COMMAND, *command, "-", "--to", "png"]
    piped = subprocess.run(words, cwd=folder, input=photo, capture_output=True, env=known, check=False)
    assert (piped.returncode, piped.stdout[:4]) == (0, b"\x89PNG")


def test_a_result_that_cannot_be_written(folder: Path, server: Running) -> None:
    arguments = ("convert", "--remote", server.url, "photo.heic", "/proc/photo.jpg")
    done = invoke(folder, *arguments, CONVERTD_API_KEY=server.account(10))

    assert done.exit_code == 1
    assert done.stderr.startswith("photo.heic: cannot write /proc/photo.jpg: ")
    assert done.stderr.count("\n") == 1


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_an_invalid_key(folder: Path, servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:  # a new one: no other test has used up its limit of invalid keys
        arguments = ("convert", "--remote", server.url, "photo.heic", "photo.jpg")
        done = invoke(folder, *arguments, CONVERTD_API_KEY="cvd_live_wrong")

    assert (done.exit_code, done.stderr) == (1, "photo.heic: The API key is missing or invalid.\n")
    assert not (folder / "photo.jpg").exists()


@pytest.mark.parametrize(
    ("url", "arguments", "key"),
    [
        ("http://localhost:1", ("photo.heic", "photo.xyz"), "k"),
        ("http://localhost:1", ("photo.png", "--to", "png"), "k"),
        ("http://localhost:1", ("photo.heic", "photo.jpg", "--quality", "0"), "k"),
        ("http://localhost:1", ("photo.heic", "photo.jpg"), ""),
        ("localhost:1", ("photo.heic", "photo.jpg"), "k"),
    ],
)
def test_invalid_arguments_exit_with_2(folder: Path, url: str, arguments: tuple[str, ...], key: str) -> None:
    before = {path.name for path in folder.rglob("*")}

    done = invoke(folder, "convert", "--remote", url, *arguments, CONVERTD_API_KEY=key)

    assert done.exit_code == 2
    assert done.stderr.startswith("convertd: ")
    assert isinstance(done.exception, SystemExit)
    assert {path.name for path in folder.rglob("*")} == before


def test_a_file_that_the_server_fetches(folder: Path, server: Running) -> None:
    key = server.account(10)
    with Receiver(reply(200, sample("jpeg")), "127.0.0.2") as place:
        arguments = ("convert", "--url", f"{place.url}/a.jpg", "--remote", server.url)
        done = invoke(folder, *arguments, "made.png", CONVERTD_API_KEY=key)
        assert (done.exit_code, done.stderr) == (0, "convertd: 9 credits remain.\n")
        explained = invoke(folder, *arguments, "--explain", "other.png", CONVERTD_API_KEY=key)
        place.respond = reply(200, document("pages", 1))
        piped = run_command(folder, *arguments, "--to", "txt", "-", CONVERTD_API_KEY=key)
        place.respond = reply(404)
        failed = invoke(folder, *arguments, "other.png", CONVERTD_API_KEY=key)
    with Image.open(folder / "made.png") as image:
        assert image.format == "PNG"
    assert "pages" in piped.stdout
    assert "jpeg to png" in explained.stderr
    assert (failed.exit_code, "status 404. (http_status)" in failed.stderr) == (1, True)
    assert not (folder / "other.png").exists()


@pytest.mark.parametrize(
    "arguments", [["made.png"], ["a.jpg", "made.png", "--remote", "URL"], ["no.where/made.png", "--remote", "URL"]]
)
def test_wrong_use_of_url(folder: Path, server: Running, arguments: list[str]) -> None:
    given = [server.url if one == "URL" else one for one in arguments]
    done = invoke(folder, "convert", "--url", "http://127.0.0.2/a.jpg", *given, CONVERTD_API_KEY="x")
    assert done.exit_code == 2


def test_the_key_of_a_login_is_used(folder: Path, server: Running) -> None:
    home = {"XDG_CONFIG_HOME": str(folder / "config"), "CONVERTD_API_KEY": ""}
    convert = ("photo.heic", "photo.jpg", "--remote", server.url)
    file = folder / "config" / "convertd" / "keys.json"

    without = invoke(folder, *convert, **home)
    wrong = invoke(folder, "login", server.url, answer="cvd_live_wrong\n", **home)
    assert (without.exit_code, "convertd login URL" in without.stderr) == (2, True)
    assert (wrong.exit_code, file.exists()) == (1, False)

    done = invoke(folder, "login", server.url + "/", answer=server.account(10) + "\n", **home)

    assert done.exit_code == 0, done.stderr
    assert [path.stat().st_mode & 0o777 for path in (file, file.parent)] == [0o600, 0o700]
    assert [path.name for path in file.parent.iterdir()] == ["keys.json"]
    assert invoke(folder, *convert, **home).stderr == "convertd: 9 credits remain.\n"
    assert invoke(folder, "jobs", "list", "--remote", server.url, **home).exit_code == 0

    file.write_text("[]")
    assert "convertd login URL" in invoke(folder, *convert, **home).stderr


def test_files_are_submitted_and_their_results_downloaded(folder: Path, server: Running) -> None:
    key = server.account(10)
    remote = ("--remote", server.url)

    submitted = invoke(
        folder, "convert", "photo.heic", "--to", "webp", "--quality", "50", "--async", *remote, CONVERTD_API_KEY=key
    )
    assert (submitted.exit_code, submitted.stderr) == (0, "convertd: 9 credits remain.\n")
    (job,) = re.findall(r"job_\w{22}", submitted.stdout)
    waited = invoke(folder, "jobs", "wait", job, "-o", "result.webp", *remote, CONVERTD_API_KEY=key)
    assert (waited.exit_code, waited.stdout, waited.stderr) == (0, "", "")
    with Image.open(folder / "result.webp") as image:
        assert image.format == "WEBP"

    listed = invoke(folder, "jobs", "list", "--status", "completed", *remote, "--json", CONVERTD_API_KEY=key)
    assert [found["job_id"] for found in json.loads(listed.stdout)] == [job]
    assert job in invoke(folder, "jobs", "list", *remote, CONVERTD_API_KEY=key).stdout
    shown = invoke(folder, "jobs", "show", job, *remote, CONVERTD_API_KEY=key)
    assert json.loads(shown.stdout)["status"] == "completed"
    cancelled = invoke(folder, "jobs", "cancel", job, *remote, CONVERTD_API_KEY=key)
    assert (cancelled.exit_code, cancelled.stderr) == (0, f"convertd: {job} is deleted.\n")
    gone = invoke(folder, "jobs", "show", job, *remote, CONVERTD_API_KEY=key)
    assert (gone.exit_code, gone.stderr) == (1, "convertd: No such job.\n")


def test_failures_and_wrong_usage(folder: Path, server: Running) -> None:
    key = server.account(10)
    remote = ("--remote", server.url)
    submitted = invoke(folder, "convert", "bad.png", "--to", "webp", "--async", *remote, CONVERTD_API_KEY=key)
    job = submitted.stdout.strip()
    waited = invoke(folder, "jobs", "wait", job, *remote, CONVERTD_API_KEY=key)
    assert (waited.exit_code, waited.stdout) == (1, "")
    assert waited.stderr.startswith(f"convertd: {job} is failed: ")
    assert "corrupt_input" in invoke(folder, "jobs", "list", *remote, "--json", CONVERTD_API_KEY=key).stdout
    (folder / "text.png").write_text("no picture")
    refused = invoke(folder, "convert", "text.png", "--to", "xyz", "--async", *remote, CONVERTD_API_KEY=key)
    assert (refused.exit_code, refused.stdout) == (2, "")
    for arguments in (("convert", "photo.heic", "--to", "webp", "--async"), ("jobs", "list", "--remote", "nonsense")):
        assert invoke(folder, *arguments, CONVERTD_API_KEY=key).exit_code == 2
    assert invoke(folder, "jobs", "list", "--remote", server.url, CONVERTD_API_KEY="").exit_code == 2
