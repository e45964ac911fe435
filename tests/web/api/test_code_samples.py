"""Code samples: they run, in the languages installed on this machine."""

import ast
import os
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import pytest

from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from web.docs.code_samples import CLIENT_SAMPLE, COMMAND_SAMPLE, LANGUAGES, VARIABLE, Call

_RUN = {
    "curl": ["sh", "{}"],
    "Python": [sys.executable, "{}"],
    "JavaScript": ["node", "{}"],
    "PHP": ["php", "{}"],
    "Go": ["go", "run", "{}"],
}
_SUFFIXES = {"curl": ".sh", "Python": ".py", "JavaScript": ".mjs", "PHP": ".php", "Go": ".go"}
_HERE = [language for language, command in _RUN.items() if shutil.which(command[0])]


def run(language: str, call: Call, folder: Path, key: str) -> str:
    """Runs the sample and returns its output."""
    program = folder / f"program{_SUFFIXES[language]}"
    program.write_text(LANGUAGES[language](call))
    command = [part.format(program) for part in _RUN[language]]
    environment = {**os.environ, VARIABLE: key}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl_and_python_are_installed() -> None:
    assert {"curl", "Python"} <= {*_HERE}


@pytest.mark.parametrize("language", _HERE)
def test_a_form(server: Running, tmp_path: Path, language: str) -> None:
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    form = {"output_format": "png"}
    call = Call("POST", f"{server.api}/convert", form, (("file", "photo.heic"),), saves="photo.png")
    run(language, call, tmp_path, server.account())
    assert (tmp_path / "photo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("language", _HERE)
def test_several_files(server: Running, tmp_path: Path, language: str) -> None:
    (tmp_path / "page.pdf").write_bytes(sample("pdf"))
    files = (("files[]", "page.pdf"),) * 2
    call = Call("POST", f"{server.api}/pdf/merge", files=files, accept="application/json")
    assert "page_count" in run(language, call, tmp_path, server.account())


@pytest.mark.parametrize("language", _HERE)
def test_a_json_body_and_no_body(server: Running, tmp_path: Path, language: str) -> None:
    key = server.account()
    assert "batch_" in run(language, Call("POST", f"{server.api}/batch", body={"output_format": "webp"}), tmp_path, key)
    assert "credits_remaining" in run(language, Call("GET", f"{server.api}/account"), tmp_path, key)
    assert "by_input_format" in run(language, Call("GET", f"{server.api}/formats", needs_key=False), tmp_path, "")
    file = server.upload(sample("png"), key=key)["file_id"]
    assert file in run(language, Call("DELETE", f"{server.api}/files/{file}"), tmp_path, key)


def test_samples_contain_all_parts_of_a_call() -> None:
    call = Call("POST", "https://convert.example/api/v1/register", body={"email": "a@b.example"}, needs_key=False)
    for language, write in LANGUAGES.items():
        assert VARIABLE not in write(call), language
        assert "a@b.example" in write(call)
    ast.parse(LANGUAGES["Python"](call))


def test_the_command_line(server: Running, tmp_path: Path) -> None:
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    script = COMMAND_SAMPLE.format(url=server.url).replace("cvd_live_…", server.account())
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["sh", "-ec", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    made = {"photo.jpg", "photo.avif", "photo.webp", "photo.png"}
    assert {file.name for file in tmp_path.iterdir()} == {"photo.heic", *made}


def test_the_python_client(server: Running, tmp_path: Path) -> None:
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    environment = {**os.environ, VARIABLE: server.account(credits=5)}
    program = CLIENT_SAMPLE.format(url=server.url)
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first.endswith(" 4")
    assert second.startswith("unsupported_conversion ")
    assert (tmp_path / "photo.webp").read_bytes()[8:12] == b"WEBP"


def test_the_docs_show_the_samples_as_they_are(server: Running) -> None:
    text = unescape(http.get(f"{server.url}/docs/sdks").text)
    for shown in (COMMAND_SAMPLE, CLIENT_SAMPLE):
        assert shown.format(url="http://localhost:8000") in text
