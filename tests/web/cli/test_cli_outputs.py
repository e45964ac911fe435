"""`convertd convert` with `--filename`, `--outputs`, `--preset` and `--to auto`, here and on a server."""

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.command_line import invoke, write_samples
from tests.support.servers.in_process import Running

TWO = json.dumps([{"output_format": "webp", "width": 16, "name": "small"}, {"output_format": "png"}])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_samples(tmp_path)


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
