"""A third-party plugin, installed with pip into a separate environment, is loaded and used."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from struct import pack, unpack
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, cast
from zipfile import ZipFile

import pytest
from PIL import Image

from convertd_client import Client, InvalidParameter
from tests.support.readme import read
from tests.support.requests import http
from tests.support.samples.generated import saved

_ROOT = Path(__file__).parents[1]
_PNG = saved(Image.new("RGB", (3, 2), "orange"), "PNG")
_CLEAR = saved(Image.new("RGBA", (3, 2), (255, 165, 0, 0)), "PNG")
_FF = pack(">8sII", b"farbfeld", 30, 10) + bytes.fromhex("00000000ffffffff") * 300


def _pixels(file: bytes) -> tuple[tuple[int, int], list[tuple[int, ...]]]:
    """Width and height, and the high bytes of the samples of each pixel."""
    signature, width, height = unpack(">8sII", file[:16])
    assert (signature, len(file)) == (b"farbfeld", 16 + 8 * width * height)
    return (width, height), [tuple(file[start : start + 8 : 2]) for start in range(16, len(file), 8)]


@pytest.fixture(scope="module")
def public() -> Iterator[Path]:
    """A folder that every user can read. From another one, each start of convertd imports all modules."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(scope="module")
def binaries(public: Path) -> Path:
    """The programs of a new environment with convertd and the plugin, which uses the installed dependencies."""
    venv.create(public / "venv", symlinks=True)
    (packages,) = (public / "venv" / "lib").glob("python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    sources = [public / "convertd", public / "plugin", public / "convertd" / "web" / "client"]
    ignored = shutil.ignore_patterns(".*", "build", "*.egg-info", "__pycache__", "data", "tests")
    shutil.copytree(_ROOT, sources[0], ignore=ignored)
    shutil.copytree(Path(__file__).parent / "support" / "foreign_plugin", sources[1], ignore=ignored)
    programs = public / "venv" / "bin"
    python = programs / "python"
    pip: list[str | Path] = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, "--no-deps", "--no-build-isolation", "--ignore-installed", *sources], check=True)
    return programs


def test_the_plugin_appears_in_the_catalogue(binaries: Path) -> None:
    done = subprocess.run([binaries / "convertd", "formats", "--json"], check=True, capture_output=True)
    targets = json.loads(done.stdout)["by_input_format"]

    assert {"jpeg", "webp", "pdf", "tiff"} < set(targets["ff"])
    assert "ff" in targets["heic"]
    assert "ff" in targets["pdf"]


def test_the_plugin_converts(binaries: Path, tmp_path: Path) -> None:
    Image.new("RGB", (30, 20), "orange").save(tmp_path / "in.png")
    for source, target in (("in.png", "middle.ff"), ("middle.ff", "out.webp")):
        subprocess.run([binaries / "convertd", "convert", source, target], check=True, cwd=tmp_path)

    with Image.open(tmp_path / "out.webp") as image:
        assert image.size == (30, 20)
        assert image.convert("RGB").getpixel((15, 10)) == pytest.approx((255, 165, 0), abs=6)


@pytest.fixture(scope="module")
def url(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with the plugin. Its API key is in the file `key` of its folder."""
    folder = tmp_path_factory.mktemp("server")
    create: list[str | Path] = [binaries / "convertd", "account", "create", "--email", "a@example.com", "--name", "Ann"]
    (binaries / "key").write_text(subprocess.run(create, check=True, capture_output=True, text=True, cwd=folder).stdout)
    serve = (binaries / "convertd", "serve", "--port", "0")
    with subprocess.Popen(serve, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stderr is not None
        yield next(found[1] for line in server.stderr if (found := re.search(r"listening on (http://\S+?);", line)))
        server.terminate()
        server.stderr.read()


class TestTheOptionOfThePlugin:
    """`opaque`, a parameter of its encoder."""

    schema: ClassVar = {"type": "boolean", "default": False, "description": "Makes all pixels opaque."}

    def test_in_the_catalogue(self, url: str) -> None:
        options = http.get(f"{url}/api/v1/formats/png/ff").json()["data"]["options"]["properties"]

        assert options["opaque"] == self.schema

    def test_in_the_openapi_document(self, url: str) -> None:
        document = http.get(f"{url}/api/v1/openapi.json", timeout=30).json()

        assert (
            self.schema.items() <= document["components"]["schemas"]["ConvertOptions"]["properties"]["opaque"].items()
        )
        for path in ("/convert", "/files/{file_id}/convert", "/batch/{batch_id}/convert"):
            ((_, media),) = document["paths"][path]["post"]["requestBody"]["content"].items()
            assert media["schema"]["allOf"][1:] == [{"$ref": "#/components/schemas/ConvertOptions"}]

    def test_on_the_docs_page(self, url: str) -> None:
        (row,) = re.findall(r'<tr id="option-opaque"[^>]*>(.*?)</tr>', http.get(f"{url}/docs/options/more").text)

        assert "true, false" in row
        assert "Makes all pixels opaque." in row
        assert "to ff<" in row

    def test_in_requests_and_the_client(self, binaries: Path, url: str) -> None:
        with Client(url, (binaries / "key").read_text()) as client:
            right, wrong = (
                cast(Any, {"opaque": True}),
                cast(Any, {"opaqe": True}),
            )  # options that the client does not know
            result = client.convert(_CLEAR, "ff", **right)
            with pytest.raises(InvalidParameter) as caught:
                client.convert(_CLEAR, "ff", **wrong)

        assert _pixels(result.content) == ((3, 2), [(255, 165, 0, 255)] * 6)
        assert caught.value.details["available"][0] == "opaque"

    def test_in_the_command_with_a_server(self, binaries: Path, url: str, tmp_path: Path) -> None:
        (tmp_path / "in.png").write_bytes(_CLEAR)
        environment = {"CONVERTD_API_KEY": (binaries / "key").read_text()}
        command: list[str | Path] = [binaries / "convertd", "convert", "--remote", url, "--opaque", "in.png", "out.ff"]
        subprocess.run(command, check=True, cwd=tmp_path, env=environment)

        assert _pixels((tmp_path / "out.ff").read_bytes())[1][0][3] == 255

    def test_in_the_command(self, binaries: Path, tmp_path: Path) -> None:
        (tmp_path / "in.png").write_bytes(_CLEAR)
        command: list[str | Path] = [binaries / "convertd", "convert", "-y", "in.png", "out.ff"]
        for flag, alpha in (("--opaque", 255), ("--no-opaque", 0)):
            subprocess.run([*command, flag], check=True, cwd=tmp_path)
            assert _pixels((tmp_path / "out.ff").read_bytes())[1][0][3] == alpha
        wrong = subprocess.run([*command, "--opaqe"], capture_output=True, text=True, cwd=tmp_path, check=False)
        manual: list[str | Path] = [binaries / "convertd", "convert", "--help"]
        shown = subprocess.run(manual, check=True, capture_output=True, text=True, env={"COLUMNS": "200"})

        assert wrong.returncode == 2
        assert "--opaque" in wrong.stderr
        assert "Makes all pixels opaque." in shown.stdout


class TestTheToolOfThePlugin:
    """`ff-tiles`, which takes a second file and returns several."""

    def test_over_http(self, binaries: Path, url: str) -> None:
        key = {"Authorization": f"Bearer {(binaries / 'key').read_text().strip()}"}
        files = {"file": ("photo.ff", _FF), "stamp": ("mark.png", _PNG)}
        path = f"{url}/api/v1/tools/ff-tiles"
        answer = http.post(path, headers=key, files=files, data={"columns": "3"})
        described = http.post(f"{path}/json", headers=key, files=files).json()["data"]
        refused = http.post(path, headers=key, files={**files, "other": b"x"}).json()["error"]
        used = http.get(f"{url}/api/v1/account/usage", headers=key).json()["data"]["by_operation"]

        assert answer.headers["Content-Type"] == "application/zip"
        with ZipFile(BytesIO(answer.content)) as archive:
            assert archive.namelist() == [f"photo-tile-{number}.ff" for number in (1, 2, 3)]
            size, pixels = _pixels(archive.read("photo-tile-2.ff"))
            assert (size, pixels[0], pixels[99]) == ((10, 10), (255, 165, 0, 255), (0, 0, 255, 255))
        assert (described["container"], described["file_count"], described["output_format"]) == ("zip", 2, "ff")
        assert (refused["param"], refused["reason"]) == ("other", "unknown_parameter")
        assert used["ff_tiles"] == 2

    def test_in_the_documents(self, url: str) -> None:
        (tool,) = [one for one in http.get(f"{url}/api/v1/tools").json()["data"]["tools"] if one["id"] == "ff-tiles"]
        paths = http.get(f"{url}/api/v1/openapi.json", timeout=30).json()["paths"]
        form = paths["/tools/ff-tiles"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        own, options = form["allOf"]

        assert (tool["endpoint"], tool["name"], tool["plugin"]) == ("/api/v1/tools/ff-tiles", "Cut into tiles", "ff")
        assert paths["/tools/ff-tiles"]["post"]["operationId"] == "ffTiles"
        assert {*form["properties"]} == {"file", "stamp"}
        assert ("url" in own["properties"], "required" in form) == (True, False)
        assert options == {"$ref": "#/components/schemas/FfTilesOptions"}
        assert paths["/tools/ff-tiles/json"]["post"]["operationId"] == "ffTilesToJson"
        assert "ffTiles" in http.get(f"{url}/docs/tools").text

    def test_in_the_command_and_the_client(self, binaries: Path, url: str, tmp_path: Path) -> None:
        (tmp_path / "photo.ff").write_bytes(_FF)
        (tmp_path / "mark.png").write_bytes(_PNG)
        key = (binaries / "key").read_text().strip()
        run: list[str | Path] = [binaries / "convertd", "ff-tiles", "photo.ff", "--stamp", "mark.png", "--columns", "3"]
        for output, more in (("here.zip", []), ("there.zip", ["--remote", url])):
            environment = {**os.environ, "CONVERTD_API_KEY": key}
            subprocess.run([*run, "--columns", "3", "-o", output, *more], check=True, cwd=tmp_path, env=environment)
        with Client(url, key) as client:
            client.tool(
                "ff-tiles", tmp_path / "photo.ff", stamp=tmp_path / "mark.png", columns=3, to=tmp_path / "c.zip"
            )

        for name in ("here.zip", "there.zip", "c.zip"):
            with ZipFile(tmp_path / name) as archive:
                assert len(archive.namelist()) == 3

    def test_the_commands_of_the_readme(self, binaries: Path, url: str, tmp_path: Path) -> None:
        (tmp_path / "photo.ff").write_bytes(_FF)
        (tmp_path / "mark.png").write_bytes(_PNG)
        environment = {**os.environ, "CONVERTD_API_KEY": (binaries / "key").read_text().strip()}
        for command in read("plugins/README.md").section("Declaring a tool").commands():
            here = command.replace("http://localhost:8000", url).replace("localhost:8000", url)
            here = here.replace(".venv/bin", str(binaries))
            subprocess.run(["sh", "-ec", here], check=True, cwd=tmp_path, env=environment)

            with ZipFile(tmp_path / "tiles.zip") as archive:
                assert len(archive.namelist()) == 3
            (tmp_path / "tiles.zip").unlink()


def test_the_doctor_lists_the_plugin(binaries: Path) -> None:
    done = subprocess.run([binaries / "convertd", "doctor", "--json"], check=True, capture_output=True)
    found = json.loads(done.stdout)

    assert [plugin["error"] for plugin in found["plugins"] if plugin["name"] == "ff"] == [None]
    assert all(isinstance(present, bool) for present in found["sandbox"]["layers"].values())
    assert found["missing"] == []


@pytest.fixture(scope="module")
def folder(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working folder, with the package `tiny`, which the commands of the documentation have made and checked."""
    made = tmp_path_factory.mktemp("author")
    pip = f"{sys.executable} -m pip --python {binaries / 'python'} install --quiet --no-deps --no-build-isolation"
    for command in read("plugins/README.md").section("A package and its checks").commands()[:3]:
        here = command.replace(".venv/bin", str(binaries)).replace(f"{binaries}/python -m pip install", pip)
        subprocess.run(["sh", "-ec", here], check=True, cwd=made)
    return made


@pytest.mark.long
class TestAPackageOfTheCommand:
    """`convertd plugin new` and `convertd plugin check`, with a package that is installed into the environment."""

    @pytest.fixture
    def module(self, binaries: Path, folder: Path) -> Iterator[Path]:
        """The installed module, which is restored afterwards."""
        (found,) = (binaries.parent / "lib").glob("python*/site-packages/convertd_tiny.py")
        source = found.read_text()
        yield found
        found.write_text(source)

    def _run(self, binaries: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command: list[str | Path] = [binaries / "convertd", *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)

    def test_the_package_has_tests(self, binaries: Path, folder: Path) -> None:
        command: list[str | Path] = [binaries / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder / "tiny")

        assert "5 passed" in done.stdout

    @pytest.mark.parametrize(
        ("name", "status", "message"),
        [
            ("tiny", 1, "tiny exists already"),
            ("Tiny", 2, "Tiny is no name"),
            ("../tiny", 2, "../tiny is no name"),
            ("webp", 2, "webp is the name of an installed format"),
        ],
    )
    def test_other_names_are_refused(self, binaries: Path, folder: Path, name: str, status: int, message: str) -> None:
        before = sorted(folder.rglob("*"))
        done = self._run(binaries, folder, "plugin", "new", name)

        assert done.returncode == status
        assert message in done.stderr
        assert sorted(folder.rglob("*")) == before

    def test_a_plugin_that_crashes_fails_with_its_name(self, binaries: Path, folder: Path, module: Path) -> None:
        source = module.read_text()
        module.write_text(source.replace("raise CorruptInput(", "__import__('os')._exit(1)  # (", 1))

        done = self._run(binaries, folder, "plugin", "check", "tiny")

        assert done.returncode == 1
        assert "tiny: failed" in done.stdout
        assert "hostile files: a damaged tiny file ends with worker_crashed" in done.stdout

    def test_the_doctor_names_a_plugin_for_another_version(self, binaries: Path, folder: Path, module: Path) -> None:
        module.write_text(module.read_text().replace("PLUGIN_API = 1", "PLUGIN_API = 2"))

        done = self._run(binaries, folder, "doctor", "--json")

        plugins = {plugin["name"]: plugin for plugin in json.loads(done.stdout)["plugins"]}
        assert "the plugin is for PLUGIN_API 2; this version has 1" in plugins["tiny"]["error"]
        assert (plugins["tiny"]["reads"], plugins["ff"]["reads"]) == ([], ["ff"])

    def test_an_unknown_plugin_is_not_checked(self, binaries: Path, folder: Path) -> None:
        done = self._run(binaries, folder, "plugin", "check", "unknown")

        assert done.returncode == 2
        assert "there is no plugin unknown" in done.stderr
