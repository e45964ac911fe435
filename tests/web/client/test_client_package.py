"""The distribution of the Python client: its files, its generated module, and its examples."""

import doctest
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Literal, get_args, get_type_hints
from zipfile import ZipFile

import httpx
import pytest

from convertd_client import AsyncClient, Client, ConvertdError, NotFound
from convertd_client.schema import ConvertOptions
from engine.options import Option
from engine.registry import load_registry
from tests.support.readme import ROOT
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from web.api.errors import STATUS

_FOLDER = ROOT / "web" / "client"
_IGNORED = shutil.ignore_patterns("build", "*.egg-info", "__pycache__")
_TYPES: dict[str, Any] = {
    "integer": int,
    "number": float,
    "string": str,
    "boolean": bool,
    "array": tuple[Mapping[str, Any], ...],
}


def test_the_generated_module_is_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, _FOLDER / "generate.py", "python", tmp_path / "schema.py"], check=True)

    current = (_FOLDER / "convertd_client" / "schema.py").read_text()
    assert (tmp_path / "schema.py").read_text() == current, "run python web/client/generate.py"


def test_the_options_are_those_of_all_conversions() -> None:
    def hint(option: Option) -> Any:
        if option.file:
            return str | PathLike[str] | bytes | BinaryIO
        values = option.schema.get("enum")
        return Literal[tuple(values)] if values else _TYPES[option.schema["type"]]

    registry = load_registry()
    declared: dict[str, Any] = {}
    for plan in registry.catalogue():
        declared |= {name: hint(registry.options[name]) for name in registry.pair_options(plan)}

    declared |= {"export_url": str, "export_headers": Mapping[str, str]}  # of each request with one result
    declared |= {
        "formats": str,
        "preset": str,
        "outputs": tuple[Mapping[str, Any], ...],
    }  # They say what the target is.
    assert {name: get_args(one) or one for name, one in get_type_hints(ConvertOptions).items()} == {
        name: get_args(one) or one for name, one in declared.items()
    }


def test_every_code_has_an_error_class() -> None:
    assert {kind.code for kind in ConvertdError.__subclasses__()} >= set(STATUS)


def test_both_clients_have_the_same_methods() -> None:
    def calls(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert calls(Client) == calls(AsyncClient)


def test_the_readme_examples(server: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("photo.heic", "page.pdf"):
        (tmp_path / name).write_bytes(sample(name.rpartition(".")[2]))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONVERTD_URL", server.url)
    monkeypatch.setenv("CONVERTD_API_KEY", server.key)

    done = doctest.testfile(str(_FOLDER / "README.md"), module_relative=False)

    assert done.attempted >= 9
    assert done.failed == 0


def test_files_among_the_options_of_a_tool_are_sent_as_files(tmp_path: Path) -> None:
    (tmp_path / "logo.png").write_bytes(b"a picture")
    sent = []

    def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"data": {"tools": [], "total": 0}, "meta": {"request_id": "req_1"}})
        sent.append(request.read())
        return httpx.Response(404, json={"error": {"code": "not_found", "message": "No."}})

    client = Client("http://a.example", http_transport=httpx.MockTransport(respond))
    with client, pytest.raises(NotFound):
        client.tool("pdf-stamp", b"%PDF", name="a.pdf", stamp=tmp_path / "logo.png", text="Copy", pages=None)

    parts = re.findall(rb"form-data; (.*)\r\n(?:Content-Type: .*\r\n)?\r\n(.*)\r\n", sent[0])
    files = {b'name="file"; filename="a.pdf"': b"%PDF", b'name="stamp"; filename="logo.png"': b"a picture"}
    assert dict(parts) == {b'name="text"': b"Copy", **files}


def test_the_metadata_is_that_of_the_server() -> None:
    client, server = (tomllib.loads((path / "pyproject.toml").read_text())["project"] for path in (_FOLDER, ROOT))

    assert client["version"] == server["version"]
    assert set(client["dependencies"]) <= set(server["dependencies"])


@pytest.mark.long
def test_the_wheels_own_different_files_and_the_client_runs_alone(tmp_path: Path) -> None:
    """Else the removal of one would break the other. The builds are of a copy, in which they leave files."""
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    for package in ("config", "engine", "plugins", "storage", "web"):
        shutil.copytree(ROOT / package, tmp_path / package, ignore=_IGNORED)
    pip = (sys.executable, "-m", "pip", "--quiet")
    build = (*pip, "wheel", "--no-deps", "--no-build-isolation", ".", "./web/client")
    subprocess.run(build, cwd=tmp_path, check=True)
    client, server = sorted(tmp_path.glob("*.whl"), key=lambda wheel: wheel.stat().st_size)
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "alone", client], check=True)
    owned = {name for name in ZipFile(client).namelist() if name.startswith("convertd_client/")}
    served = set(ZipFile(server).namelist())

    assert {"web/app.py", "web/static/site.css", "web/pages/docs/changelog.md"} <= served
    assert not [name for name in served if "client/" in name]
    assert {"convertd_client/__init__.py", "convertd_client/py.typed"} <= owned
    program = "import sys; sys.path.insert(0, 'alone'); import convertd_client as c; print(c.__file__, c.Client())"
    shown = subprocess.run([sys.executable, "-Ic", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert shown.stdout == f"{tmp_path / 'alone/convertd_client/__init__.py'} Client('http://localhost:8000/api/v1')\n"
