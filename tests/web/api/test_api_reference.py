"""The API reference, derived from an OpenAPI document, and code samples, which run in the languages installed here."""

import ast
import os
import subprocess
import sys
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.support.requests import http
from tests.support.results.programs import languages_here, run_sample
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from web.docs.api_reference import endpoints
from web.docs.code_samples import CLIENT_SAMPLE, COMMAND_SAMPLE, LANGUAGES, VARIABLE, Call

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "servers": [{"url": "https://convert.example/api/v1"}],
    "security": [{"bearer": []}],
    "components": {
        "responses": {"NotFound": {"description": "No such file."}},
        "schemas": {"Status": {"enum": ["pending", "processed"], "description": "Where the file is."}},
    },
    "paths": {
        "/convert": {
            "post": {
                "operationId": "convert",
                "summary": "Converts a file.",
                "tags": ["Conversion"],
                "requestBody": {
                    "content": {
                        "multipart/form-data": {
                            "example": {"file": "photo.heic", "output_format": "webp", "quality": 80},
                            "schema": {
                                "required": ["file", "output_format"],
                                "properties": {
                                    "file": {"type": "string", "contentMediaType": "application/octet-stream"},
                                    "output_format": {"type": "string", "examples": ["webp"]},
                                    "quality": {
                                        "type": "integer",
                                        "minimum": 1,
                                        "maximum": 100,
                                        "description": "Of what is lossy.",
                                        "examples": [80],
                                    },
                                },
                            },
                        }
                    }
                },
                "responses": {"200": {"description": "The file.", "content": {"image/*": {}}}},
            }
        },
        "/files/{file_id}": {
            "get": {
                "operationId": "file",
                "summary": "Describes a file.",
                "tags": ["Files"],
                "security": [],
                "parameters": [
                    {
                        "name": "file_id",
                        "in": "path",
                        "required": True,
                        "description": "The file.",
                        "schema": {"type": "string"},
                    }
                ],
                "responses": {
                    "200": {
                        "description": "All that is known.",
                        "content": {
                            "application/json": {
                                "schema": {
                                    "properties": {
                                        "data": {
                                            "properties": {
                                                "size": {"type": ["integer", "null"]},
                                                "names": {"type": "array", "items": {"type": "string"}},
                                                "status": {"$ref": "#/components/schemas/Status"},
                                            }
                                        }
                                    }
                                },
                                "example": {"data": {"size": 3}},
                            }
                        },
                    },
                    "404": {"$ref": "#/components/responses/NotFound"},
                },
            }
        },
    },
}


def test_a_form() -> None:
    convert, _ = endpoints(DOCUMENT)
    assert (convert.id, convert.method, convert.path, convert.tag) == ("convert", "POST", "/convert", "Conversion")
    assert convert.needs_key
    assert [(field.name, field.type, field.required) for field in convert.fields] == [
        ("file", "file", True),
        ("output_format", "string", True),
        ("quality", "integer 1 to 100", False),
    ]
    assert convert.fields[2].description == "Of what is lossy."
    assert convert.samples["curl"].splitlines() == [
        "curl https://convert.example/api/v1/convert \\",
        '  -H "Authorization: Bearer $CONVERTD_API_KEY" \\',
        '  -F "file=@photo.heic" \\',
        "  -F output_format=webp \\",
        "  -F quality=80 \\",
        '  -o "result.webp"',
    ]


def test_a_response() -> None:
    _, file = endpoints(DOCUMENT)
    assert not file.needs_key
    assert [(field.name, field.location) for field in file.fields] == [("file_id", "path")]
    known, missing = file.responses
    assert [(field.name, field.type) for field in known.fields] == [
        ("size", "integer or null"),
        ("names", "string[]"),
        ("status", '"pending" | "processed"'),
    ]
    assert known.fields[2].description == "Where the file is."
    assert known.example == '{\n  "data": {\n    "size": 3\n  }\n}'
    assert (missing.status, missing.description) == ("404", "No such file.")
    assert (missing.fields, missing.example) == ((), None)
    assert "https://convert.example/api/v1/files/FILE_ID" in file.samples["curl"]


def test_the_fields_of_a_body_and_of_what_it_refers_to() -> None:
    status = {"type": ["string", "null"], "enum": ["pending", "processed", None], "examples": ["pending"]}
    options = {"required": ["pages"], "properties": {"pages": {"type": "string", "examples": ["1"]}}}
    count = {"type": ["integer", "null"], "minimum": 1, "maximum": 9}
    own = {"properties": {"status": status, "count": count, "state": {"$ref": "#/components/schemas/Status"}}}
    schema = {"required": ["status"], "allOf": [own, {"$ref": "#/components/schemas/Options"}]}
    body = {"content": {"application/json": {"schema": schema}}}
    operation: dict[str, Any] = {**DOCUMENT["paths"]["/convert"]["post"], "requestBody": body}
    schemas = {**DOCUMENT["components"]["schemas"], "Options": options}

    (found,) = endpoints({**DOCUMENT, "components": {"schemas": schemas}, "paths": {"/a": {"post": operation}}})

    assert [(field.name, field.type, field.location, field.required) for field in found.fields] == [
        ("status", '"pending" | "processed"', "body", True),
        ("count", "integer 1 to 9", "body", False),
        ("state", '"pending" | "processed"', "body", False),
        ("pages", "string", "body", True),
    ]
    assert '{"status": "pending", "pages": "1"}' in found.samples["curl"]


def run(language: str, call: Call, folder: Path, key: str) -> str:
    """Runs the sample and returns its output."""
    done = run_sample(language, LANGUAGES[language](call), key, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_curl_and_python_are_installed() -> None:
    assert {"curl", "Python"} <= {*languages_here()}


@pytest.mark.parametrize("language", languages_here())
def test_samples_with_a_form(server: Running, tmp_path: Path, language: str) -> None:
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    form = {"output_format": "png"}
    call = Call("POST", f"{server.api}/convert", form, (("file", "photo.heic"),), saves="photo.png")
    run(language, call, tmp_path, server.account())
    assert (tmp_path / "photo.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("language", languages_here())
def test_several_files(server: Running, tmp_path: Path, language: str) -> None:
    (tmp_path / "page.pdf").write_bytes(sample("pdf"))
    files = (("files[]", "page.pdf"),) * 2
    call = Call("POST", f"{server.api}/pdf/merge", files=files, headers={"Accept": "application/json"})
    assert "page_count" in run(language, call, tmp_path, server.account())


@pytest.mark.parametrize("language", languages_here())
def test_a_json_body_and_no_body(server: Running, tmp_path: Path, language: str) -> None:
    key, form = server.account(), {"output_format": "webp"}
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    assert "batch_" in run(language, Call("POST", f"{server.api}/batch", body={"output_format": "webp"}), tmp_path, key)
    assert "credits_remaining" in run(language, Call("GET", f"{server.api}/account"), tmp_path, key)
    photo = (("file", "photo.heic"),)
    start = Call("POST", f"{server.api}/convert", form, photo, headers={"Prefer": "respond-async"})
    assert "job_" in run(language, start, tmp_path, key)
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
