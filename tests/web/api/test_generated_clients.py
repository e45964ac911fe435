"""Clients generated from the OpenAPI document convert files and read errors."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running

pytestmark = pytest.mark.slow

Generate = Callable[[Path, str], list[str]]
"""Generates a client and a program in a folder, for the API at an URL. Returns the command that runs the program."""

_PYTHON = """
import os
from io import BytesIO
from pathlib import Path

from client.api.conversion import convert, convert_to_json, inspect
from client.api.files import get_file, upload_file
from client.api.pdf import merge_pdfs
from client.client import AuthenticatedClient
from client.models import ConvertBody, ConvertToJsonBody, InspectBody, MergePdfsBody, UploadFileBody
from client.types import File

client = AuthenticatedClient(os.environ["API"], os.environ["KEY"])


def source(content):
    return File(BytesIO(content), "photo.jpg")


photo, page = source(Path("photo.jpg").read_bytes()), Path("page.pdf").read_bytes()
refused = convert.sync_detailed(client=client, body=ConvertBody(file=source(b"?"), output_format="png"))
assert (refused.status_code, refused.parsed.error.code) == (400, "invalid_file_type"), refused
converted = convert.sync(client=client, body=ConvertBody(file=photo, output_format="png", lossless=True))
Path("photo.png").write_bytes(converted.payload.read())
merged = merge_pdfs.sync(client=client, body=MergePdfsBody(files=[source(page), source(page)]))
Path("merged.pdf").write_bytes(merged.payload.read())
photo.payload.seek(0)
planned = inspect.sync(client=client, body=InspectBody(file=photo, output_format="png"))
assert planned.data.credits_ == 1 and planned.data.width, planned
photo.payload.seek(0)
stored = convert_to_json.sync(client=client, body=ConvertToJsonBody(file=photo, output_format="png"))
assert stored.data.output_format == "png" and stored.data.container is None, stored
refused = convert_to_json.sync(client=client, body=ConvertToJsonBody(file=source(b"?"), output_format="png"))
assert refused.error.code == "invalid_file_type", refused
photo.payload.seek(0)
uploaded = upload_file.sync(client=client, body=UploadFileBody(file=photo))
assert get_file.sync(uploaded.data.file_id, client=client).data.error is None
"""

_JAVA_GENERATOR = """
import os
from pathlib import Path

import openapi_client as api

client = api.ApiClient(api.Configuration(host=os.environ["API"], access_token=os.environ["KEY"]))
conversion, files, pdf = api.ConversionApi(client), api.FilesApi(client), api.PDFApi(client)
photo, page = ("photo.jpg", Path("photo.jpg").read_bytes()), Path("page.pdf").read_bytes()
Path("photo.png").write_bytes(conversion.convert(photo, "png", lossless=True))
Path("merged.pdf").write_bytes(pdf.merge_pdfs([page, page]))
assert conversion.inspect(photo, "png").data.width
stored = conversion.convert_to_json(photo, "png").data
assert stored.output_format == "png" and stored.container is None, stored
try:
    conversion.convert(("photo.jpg", b"?"), "png")
except api.ApiException as refused:
    assert refused.data.actual_instance.error.code == "invalid_file_type", refused
file_id = files.upload_file(photo).data.file_id
assert files.get_file(file_id).data.error is None
"""

_TYPESCRIPT = """
import { readFileSync, writeFileSync } from 'node:fs';
import { client } from './client/client.gen';
import { convert, convertToJson, getFile, inspect, mergePdfs, uploadFile } from './client/sdk.gen';

const source = (path: string) => new Blob([readFileSync(path)]);
const write = async (path: string, file?: Blob) => writeFileSync(path, Buffer.from(await file!.arrayBuffer()));
const check = (holds: boolean, shown: unknown) => { if (!holds) throw new Error(JSON.stringify(shown)); };

async function main() {
  client.setConfig({ baseUrl: process.env.API, auth: () => process.env.KEY });
  const photo = source('photo.jpg'), page = source('page.pdf');
  const options = { output_format: 'png', lossless: true };
  await write('photo.png', (await convert({ body: { file: photo, ...options } })).data);
  await write('merged.pdf', (await mergePdfs({ body: { 'files[]': [page, page] } })).data);
  const stored = (await convertToJson({ body: { file: photo, ...options } })).data!.data;
  check((await inspect({ body: { file: photo, ...options } })).data!.data.width !== null, options);
  check(stored.output_format === 'png' && stored.container === null, stored);
  const refused = (await convert({ body: { file: new Blob(['?']), ...options } })).error!;
  check(refused.error.code === 'invalid_file_type', refused);
  const { file_id } = (await uploadFile({ body: { file: photo } })).data!.data;
  check((await getFile({ path: { file_id } })).data!.data.error === null, file_id);
}

main();
"""


def _openapi_python_client(folder: Path, document: str) -> list[str]:
    arguments = ("generate", "--path", document, "--meta", "none", "--output-path", "client")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # of ruff, without which it warns
    told = _run(folder, sys.executable, "-m", "openapi_python_client", *arguments, PATH=path)
    assert told == "Generating client\n"  # and no warnings
    (folder / "program.py").write_text(_PYTHON)
    return [sys.executable, "program.py"]


def _openapi_generator(folder: Path, document: str) -> list[str]:
    _run(folder, sys.executable, "-m", "pip", "install", "--quiet", "--target", "generator", "openapi-generator-cli")
    arguments = ("generate", "-g", "python", "-i", document, "-o", ".")
    _run(folder, "generator/bin/openapi-generator-cli", *arguments, PYTHONPATH="generator")
    (folder / "program.py").write_text(_JAVA_GENERATOR)
    return [sys.executable, "program.py"]


def _openapi_ts(folder: Path, document: str) -> list[str]:
    _run(folder, "npm", "install", "--silent", "@hey-api/openapi-ts", "typescript@5", "@types/node@20")
    _run(folder, "npx", "openapi-ts", "--input", document, "--output", "client")
    (folder / "program.ts").write_text(_TYPESCRIPT)
    compiler = ("--strict", "--target", "es2022", "--module", "commonjs", "--moduleResolution", "node")
    _run(folder, "npx", "tsc", *compiler, "--skipLibCheck", "--outDir", "compiled", "program.ts")
    return ["node", "compiled/program.js"]


_GENERATORS: dict[str, Generate] = {
    "openapi-python-client": _openapi_python_client,
    "openapi-generator": _openapi_generator,
    "openapi-ts": _openapi_ts,
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """The first generator is installed with the other packages of the tests, the others on demand."""
    names = [*_GENERATORS][: None if metafunc.config.getoption("--generators") == "all" else 1]
    metafunc.parametrize("generator", names)


def test_files_and_errors(server: Running, tmp_path: Path, generator: str) -> None:
    (tmp_path / "photo.jpg").write_bytes(sample("jpeg"))
    (tmp_path / "page.pdf").write_bytes(sample("pdf"))
    (tmp_path / "openapi.json").write_bytes(http.get(f"{server.api}/openapi.json").content)
    program = _GENERATORS[generator](tmp_path, "openapi.json")
    _run(tmp_path, *program, API=server.api, KEY=server.account())
    assert (tmp_path / "photo.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "merged.pdf").read_bytes().startswith(b"%PDF")


def _run(folder: Path, *command: str, **environment: str) -> str:
    """Runs the command, which must succeed. Returns its output."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
