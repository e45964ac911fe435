"""`convertd convert --remote`: the same results and messages as without a server."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.support.command_line import invoke, run_command, write_samples
from tests.support.servers import Running, Servers


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
    remote = invoke(folder, *arguments, "--remote", server.url, CONVERTD_API_KEY=key)

    assert remote.exit_code == local.exit_code == 1
    assert "quality_ignored" in local.stderr
    assert sorted(remote.stderr.splitlines()) == sorted([*local.stderr.splitlines(), "convertd: 9 credits remain."])
    assert [path.name for path in (folder / "out").iterdir()] == ["photo.tiff"]


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
        ("http://localhost:1", ("photo.heic", "photo.jpg", "--explain"), "k"),
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
