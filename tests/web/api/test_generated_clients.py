"""Clients generated from the OpenAPI document convert files, run tools and jobs, and read errors."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running

pytestmark = pytest.mark.slow

Generate = Callable[[Path, str], list[str]]
"""Generates a client and a program in a folder, for the API at an URL. Returns the command that runs the program."""

_OPENAPI_TS = ("@hey-api/openapi-ts@0.99.0", "typescript@5.9.3", "@types/node@20.19.25")
_OPENAPI_GENERATOR = "openapi-generator-cli==7.26.0"
_COMPILER = ("--strict", "--skipLibCheck", "--target", "es2022", "--module", "commonjs", "--moduleResolution", "node")

_PYTHON = """
import os
from io import BytesIO
from pathlib import Path

from client.api.conversion import convert, convert_to_json, inspect
from client.api.files import files_convert, files_get, files_upload
from client.api.jobs import jobs_get
from client.api.pdf import pdf_merge
from client.client import AuthenticatedClient
from client.models import ConvertBody, FilesConvertBody, ConvertToJsonBody, InspectBody, PdfMergeBody, FilesUploadBody
from client.models import Fit, PdfMergeOptions
from client.types import File
from httpx import Timeout

client = AuthenticatedClient(os.environ["API"], os.environ["KEY"], timeout=Timeout(60))


def source(content):
    return File(BytesIO(content), "photo.jpg")


def photo():
    return source(Path("photo.jpg").read_bytes())


page = Path("page.pdf").read_bytes()
refused = convert.sync_detailed(client=client, body=ConvertBody(file=source(b"?"), output_format="png"))
assert (refused.status_code, refused.parsed.error.code) == (400, "invalid_file_type"), refused
options = {"progressive": True, "fit": Fit.COVER, "width": 9, "height": 7}
converted = convert.sync(client=client, body=ConvertBody(file=photo(), output_format="png", **options))
Path("photo.png").write_bytes(converted.payload.read())
merged = pdf_merge.sync(client=client, body=PdfMergeBody(files=[source(page), source(page)], outline=True))
Path("merged.pdf").write_bytes(merged.payload.read())
assert PdfMergeOptions(outline=True).outline
planned = inspect.sync(client=client, body=InspectBody(file=photo(), output_format="png"))
assert planned.data.credits_ == 1 and planned.data.width, planned
stored = convert_to_json.sync(client=client, body=ConvertToJsonBody(file=photo(), output_format="png", **options))
assert stored.data.output_format == "png" and stored.data.container is None, stored
assert (stored.data.width, stored.data.height, stored.data.warnings) == (9, 7, []), stored
refused = convert_to_json.sync(client=client, body=ConvertToJsonBody(file=source(b"?"), output_format="png"))
assert refused.error.code == "invalid_file_type", refused
uploaded = files_upload.sync(client=client, body=FilesUploadBody(file=photo()))
assert files_get.sync(uploaded.data.file_id, client=client).data.error is None
body = FilesConvertBody(output_format="png", fit=Fit.FILL, width=8, height=8)
assert files_convert.sync(uploaded.data.file_id, client=client, body=body).data.width == 8
job = convert_to_json.sync(
    client=client, body=ConvertToJsonBody(file=photo(), output_format="png"), prefer="respond-async"
)
ended = jobs_get.sync(job.data.job_id, client=client, prefer="wait=60")
assert (ended.data.status, ended.data.result["output_format"]) == ("completed", "png"), ended
"""

_JAVA_GENERATOR = """
import os
from pathlib import Path

import openapi_client as api

client = api.ApiClient(api.Configuration(host=os.environ["API"], access_token=os.environ["KEY"]))
conversion, files, pdf, jobs = api.ConversionApi(client), api.FilesApi(client), api.PDFApi(client), api.JobsApi(client)
photo, page = ("photo.jpg", Path("photo.jpg").read_bytes()), Path("page.pdf").read_bytes()
options = {"progressive": True, "fit": api.Fit.COVER, "width": 9, "height": 7}
Path("photo.png").write_bytes(conversion.convert(output_format="png", file=photo, **options))
Path("merged.pdf").write_bytes(pdf.pdf_merge(files=[page, page], outline=True))
assert conversion.inspect(output_format="png", file=photo).data.width
stored = conversion.convert_to_json(output_format="png", file=photo, **options).data
assert stored.output_format == "png" and stored.container is None, stored
assert (stored.width, stored.height, stored.warnings) == (9, 7, []), stored
try:
    conversion.convert(output_format="png", file=("photo.jpg", b"?"))
except api.ApiException as refused:
    assert refused.data.actual_instance.error.code == "invalid_file_type", refused
else:
    raise AssertionError
file_id = files.files_upload(file=photo).data.file_id
assert files.files_get(file_id).data.error is None
body = api.FilesConvertRequest(output_format="png", fit=api.Fit.FILL, width=8, height=8)
assert files.files_convert(file_id, files_convert_request=body).data.width == 8
accepted = conversion.convert_to_json_with_http_info(output_format="png", file=photo, prefer="respond-async")
assert accepted.status_code == 202
ended = jobs.jobs_get(accepted.data.data.job_id, prefer="wait=60").data
assert (ended.status, ended.result["output_format"]) == ("completed", "png"), ended
"""

_TYPESCRIPT_FETCH = """
import { readFileSync, writeFileSync } from 'node:fs';
import { Configuration, ConversionApi, Fit, JobsApi, PDFApi, FilesApi, ResponseError } from './client';

const source = (path: string) => new Blob([readFileSync(path)]);
const write = async (path: string, file: Blob) => writeFileSync(path, Buffer.from(await file.arrayBuffer()));
const check = (holds: boolean, shown: unknown) => { if (!holds) throw new Error(JSON.stringify(shown)); };

async function main() {
  const configuration = new Configuration({ basePath: process.env.API, accessToken: process.env.KEY });
  const conversion = new ConversionApi(configuration), files = new FilesApi(configuration);
  const photo = source('photo.jpg'), page = source('page.pdf');
  const options = { progressive: true, fit: Fit.Cover, width: 9, height: 7 };
  await write('photo.png', await conversion.convert({ file: photo, outputFormat: 'png', ...options }));
  await write('merged.pdf', await new PDFApi(configuration).pdfMerge({ files: [page, page], outline: true }));
  check((await conversion.inspect({ file: photo, outputFormat: 'png' })).data.width !== null, options);
  const stored = (await conversion.convertToJson({ file: photo, outputFormat: 'png', ...options })).data;
  check(stored.outputFormat === 'png' && stored.container === null, stored);
  check(stored.width === 9 && stored.height === 7 && !stored.warnings.length, stored);
  try {
    await conversion.convert({ file: new File(['?'], 'photo.jpg'), outputFormat: 'png' });
    check(false, 'no error');
  } catch (refused) {
    check(refused instanceof ResponseError, String(refused));
    check((await (refused as ResponseError).response.json()).error.code === 'invalid_file_type', refused);
  }
  const { fileId } = (await files.filesUpload({ file: photo })).data;
  check((await files.filesGet({ fileId })).data.error === null, fileId);
  const filesConvertRequest = { outputFormat: 'png', fit: Fit.Fill, width: 8, height: 8 };
  check((await files.filesConvert({ fileId, filesConvertRequest })).data.width === 8, fileId);
  const accepted = await conversion.convertToJsonRaw({ file: photo, outputFormat: 'png', prefer: 'respond-async' });
  const { job_id: jobId } = (await accepted.raw.json()).data;
  const ended = (await new JobsApi(configuration).jobsGet({ jobId, prefer: 'wait=60' })).data;
  check(ended.status === 'completed' && ended.result?.output_format === 'png', ended);
}

main();
"""

_TYPESCRIPT = """
import { readFileSync, writeFileSync } from 'node:fs';
import { client } from './client/client.gen';
import { convert, convertToJson, inspect, jobsGet, pdfMerge } from './client/sdk.gen';
import { filesConvert, filesGet, filesUpload } from './client/sdk.gen';
import type { ConvertOptions, Fit } from './client/types.gen';

const source = (path: string) => new Blob([readFileSync(path)]);
const write = async (path: string, file?: Blob) => writeFileSync(path, Buffer.from(await file!.arrayBuffer()));
const check = (holds: boolean, shown: unknown) => { if (!holds) throw new Error(JSON.stringify(shown)); };

async function main() {
  client.setConfig({ baseUrl: process.env.API, auth: () => process.env.KEY });
  const photo = source('photo.jpg'), page = source('page.pdf'), output_format = 'png', fit: Fit = 'cover';
  const options: ConvertOptions = { progressive: true, fit, width: 9, height: 7 };
  await write('photo.png', (await convert({ body: { file: photo, output_format, ...options } })).data as Blob);
  await write('merged.pdf', (await pdfMerge({ body: { 'files[]': [page, page], outline: true } })).data as Blob);
  check((await inspect({ body: { file: photo, output_format, ...options } })).data!.data.width !== null, options);
  const stored = (await convertToJson({ body: { file: photo, output_format, ...options } })).data!.data;
  if (stored.kind === 'job') throw new Error(stored.status);
  check(stored.width === 9 && stored.height === 7 && !stored.warnings.length, stored);
  check(stored.output_format === 'png' && stored.container === null, stored);
  const refused = (await convert({ body: { file: new File(['?'], 'photo.jpg'), output_format } })).error!;
  check(refused.error.code === 'invalid_file_type', refused);
  const { file_id } = (await filesUpload({ body: { file: photo } })).data!.data;
  check((await filesGet({ path: { file_id } })).data!.data.error === null, file_id);
  const body = { output_format, ...options };
  const filled = (await filesConvert({ path: { file_id }, body })).data!.data;
  check(filled.kind === 'result' && filled.width === 9, filled);
  const accepted = await convertToJson({ body: { file: photo, output_format }, headers: { Prefer: 'respond-async' } });
  check(accepted.response!.status === 202, accepted.error);
  const job = accepted.data!.data;
  if (job.kind !== 'job') throw new Error(job.file_id);
  const { job_id } = job;
  const ended = (await jobsGet({ path: { job_id }, headers: { Prefer: 'wait=60' } })).data!.data;
  check(ended.status === 'completed' && ended.result?.output_format === 'png', ended);
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
    _generate(folder, "python", document, ".")
    (folder / "program.py").write_text(_JAVA_GENERATOR)
    return [sys.executable, "program.py"]


def _typescript_fetch(folder: Path, document: str) -> list[str]:
    _generate(folder, "typescript-fetch", document, "client")
    _install(folder, *_OPENAPI_TS[1:])
    return _compiled(folder, _TYPESCRIPT_FETCH)


def _openapi_ts(folder: Path, document: str) -> list[str]:
    _install(folder, *_OPENAPI_TS)
    _run(folder, "npx", "openapi-ts", "--input", document, "--output", "client")
    return _compiled(folder, _TYPESCRIPT)


def _generate(folder: Path, kind: str, document: str, output: str) -> None:
    assert shutil.which("java"), "openapi-generator needs Java: apt-get install default-jre-headless"
    _run(folder, sys.executable, "-m", "pip", "install", "--quiet", "--target", "generator", _OPENAPI_GENERATOR)
    generator = ("generator/bin/openapi-generator-cli", "generate", "-g", kind, "-i", document, "-o", output)
    _run(folder, *generator, PYTHONPATH="generator")


def _install(folder: Path, *packages: str) -> None:
    assert shutil.which("npm"), "clients in TypeScript need npm: apt-get install npm"
    _run(folder, "npm", "install", "--silent", "--no-audit", *packages)


def _compiled(folder: Path, program: str) -> list[str]:
    (folder / "program.ts").write_text(program)
    _run(folder, "npx", "tsc", *_COMPILER, "--outDir", "compiled", "program.ts")
    return ["node", "compiled/program.js"]


_DOWNLOADED = pytest.mark.long  # needs the registries of packages
_GENERATORS = (
    pytest.param(_openapi_python_client, id="openapi-python-client"),
    pytest.param(_openapi_generator, marks=_DOWNLOADED, id="openapi-generator"),
    pytest.param(_typescript_fetch, marks=_DOWNLOADED, id="typescript-fetch"),
    pytest.param(_openapi_ts, marks=_DOWNLOADED, id="openapi-ts"),
)


@pytest.mark.parametrize("generate", _GENERATORS)
@pytest.mark.long
def test_a_generated_client(server: Running, tmp_path: Path, generate: Generate) -> None:
    (tmp_path / "photo.jpg").write_bytes(sample("jpeg"))
    (tmp_path / "page.pdf").write_bytes(sample("pdf"))
    (tmp_path / "openapi.json").write_bytes(http.get(f"{server.api}/openapi.json").content)
    program = generate(tmp_path, "openapi.json")
    _run(tmp_path, *program, API=server.api, KEY=server.account())
    with Image.open(tmp_path / "photo.png") as image:
        assert (image.format, image.size) == ("PNG", (9, 7))
    assert (tmp_path / "merged.pdf").read_bytes().startswith(b"%PDF")


def _run(folder: Path, *command: str, **environment: str) -> str:
    """Runs the command, which must succeed. Returns its output."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
