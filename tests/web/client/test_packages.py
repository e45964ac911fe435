"""Packages of other languages are built, compiled, and their function converts files, waits and reads errors."""

import importlib.resources
import os
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from PIL import Image

from tests.support.readme import ROOT
from tests.support.requests.checks import published
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from tests.support.servers.receiver import Receiver, reply
from web.client.package_builds import LANGUAGES, BuildError, build, simplified

_GENERATE = ROOT / "web" / "client" / "generate.py"

_TYPESCRIPT = """
import { readFile, writeFile } from 'node:fs/promises';
import { api, client, convert, ConvertdError } from 'convertd';

const settings = { url: process.env.API!, apiKey: process.env.KEY! };
const photo = new File([await readFile('photo.jpg')], 'photo.jpg');
await writeFile('direct.png', await convert(photo, 'png', { width: 9, height: 7, fit: 'cover' }, settings));
await writeFile('waited.png', await convert(photo, 'png', { width: 8 }, { ...settings, background: true }));
const other = { ...settings, url: process.env.OTHER! };
for (const [file, to] of [[new File(['?'], 'photo.jpg'), settings], [photo, other], [photo, other]] as const)
  try {
    await convert(file, 'png', {}, to);
  } catch (error) {
    if (error instanceof ConvertdError) console.log(`${error.status} ${error.code}: ${error.message}`);
  }

client.setConfig({ baseUrl: settings.url, auth: settings.apiKey });
const stored = await api.convertToJson({ body: { file: photo, output_format: 'png' }, throwOnError: true });
const made: api.ConversionResult | api.Job = stored.data.data;
if (made.kind === 'job') throw new Error(made.status);
console.log(made.output_format, made.file_count);
"""

_PHP = r"""<?php
spl_autoload_register(function (string $name) {
    $path = __DIR__ . '/lib/' . str_replace(['Convertd\\', '\\'], ['', '/'], $name) . '.php';
    if (is_file($path)) {
        require $path;
    }
});
$converter = new Convertd\Converter(getenv('API'), getenv('KEY'));
file_put_contents('direct.png', $converter->convert('photo.jpg', 'png', ['width' => 9, 'height' => 7]));
file_put_contents('waited.png', $converter->convert('photo.jpg', 'png', ['width' => 8], background: true));
file_put_contents('broken.jpg', '?');
$other = new Convertd\Converter(getenv('OTHER'), getenv('KEY'));
foreach ([[$converter, 'broken.jpg'], [$other, 'photo.jpg'], [$other, 'photo.jpg']] as [$one, $file]) {
    try {
        $one->convert($file, 'png');
    } catch (Convertd\ConvertdError $error) {
        echo "$error->status $error->error: {$error->getMessage()}\n";
    }
}
"""

_PHP_OPERATIONS = r"""
require '/usr/share/php/GuzzleHttp/autoload.php';
$settings = (new Convertd\Configuration())->setHost(getenv('API'))->setAccessToken(getenv('KEY'));
$conversion = new Convertd\Api\ConversionApi(new GuzzleHttp\Client(), $settings);
$photo = new SplFileObject('photo.jpg');
$made = $conversion->convertToJson(output_format: 'png', file: $photo)->getData();
echo "{$made->getOutputFormat()} {$made->getFileCount()}\n";
"""

_GO = """
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	convertd "convertd.example/sdk/go"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	converter := convertd.Converter{URL: os.Getenv("API"), APIKey: os.Getenv("KEY")}
	for name, width := range map[string]int{"direct.png": 9, "waited.png": 8} {
		photo, err := os.Open("photo.jpg")
		check(err)
		converter.Background = name == "waited.png"
		content, err := converter.Convert(ctx, photo, "photo.jpg", "png", map[string]any{"width": width})
		check(err)
		check(os.WriteFile(name, content, 0o644))
	}
	other := convertd.Converter{URL: os.Getenv("OTHER")}
	for _, one := range []convertd.Converter{converter, other, other} {
		_, err := one.Convert(ctx, strings.NewReader("?"), "photo.jpg", "png", nil)
		var refused *convertd.ConvertdError
		if errors.As(err, &refused) {
			fmt.Printf("%d %s: %s\\n", refused.Status, refused.Code, refused)
		}
	}

	settings := convertd.NewConfiguration()
	settings.Servers = convertd.ServerConfigurations{{URL: os.Getenv("API")}}
	operations := convertd.NewAPIClient(settings).ConversionAPI
	photo, err := os.Open("photo.jpg")
	check(err)
	ctx = context.WithValue(ctx, convertd.ContextAccessToken, os.Getenv("KEY"))
	made, _, err := operations.ConvertToJson(ctx).File(photo).OutputFormat("png").Execute()
	check(err)
	fmt.Println(made.Data.OutputFormat, made.Data.FileCount)
}
"""

_JAVA = """
import convertd.ApiClient;
import convertd.Converter;
import convertd.api.CatalogueApi;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;

class Program {
  public static void main(String[] arguments) throws Exception {
    Converter converter = new Converter(System.getenv("API"), System.getenv("KEY"));
    Path photo = Path.of("photo.jpg");
    Files.write(Path.of("direct.png"), converter.convert(photo, "png", Map.of("width", 9), false));
    Files.write(Path.of("waited.png"), converter.convert(photo, "png", Map.of("width", 8), true));
    Files.writeString(Path.of("broken.jpg"), "?");
    Converter other = new Converter(System.getenv("OTHER"), System.getenv("KEY"));
    for (Converter one : new Converter[] {converter, other, other}) {
      try {
        one.convert(Path.of("broken.jpg"), "png", Map.of(), false);
      } catch (Converter.ConvertdError error) {
        System.out.println(error.status + " " + error.code + ": " + error.getMessage());
      }
    }
    ApiClient client = new ApiClient();
    client.updateBaseUri(System.getenv("API"));
    System.out.println(new CatalogueApi(client).conversionsGet("jpeg", "png", null).getData().getOutputFormat());
  }
}
"""
_GENERATOR = ("openapi-generator-cli", "java")
_COMPILER = ("typescript@5.9.3", "@types/node@20.19.25")
# The modules of Java that the package needs, in files of Debian and in the file of the generator.
_JARS = ("httpmime", "httpcore", "httpclient", "commons-logging", "jakarta-annotation-api")


@pytest.fixture
def package(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of the package of the language that the test names, with the files that its program reads."""
    language: str = request.param[0]
    programs: tuple[str, ...] = request.param[1:]
    for program in programs:
        if shutil.which(program, path=_path()) is None:
            pytest.skip(f"{program} is not installed")
    folder = tmp_path / language
    _run(tmp_path, sys.executable, str(_GENERATE), language, str(folder))
    (folder / "photo.jpg").write_bytes(sample("jpeg"))
    return folder


def _needs(language: str, *programs: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("package", [(language, *programs)], ids=[language], indirect=True)


def test_every_language_has_its_code_and_a_place_in_the_documentation() -> None:
    folders = {path.name for path in (ROOT / "web" / "client" / "packages").iterdir()}
    assert {*LANGUAGES} == folders
    page = (ROOT / "web" / "pages" / "docs" / "sdks.html").read_text()
    assert all(f"generate.py {language}" in page for language in LANGUAGES)


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("text")
    with pytest.raises(BuildError, match="is not empty"):
        build("go", tmp_path, published())
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_the_document_of_generators_has_no_values_of_several_plain_types() -> None:
    paths = simplified(published())["paths"]
    form, attached = (
        paths[f"/pdf/{name}"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
        for name in ("form", "attach")
    )
    assert form["fields"]["additionalProperties"] == {}
    assert attached["attachments"]["items"]["format"] == "binary"
    assert "minItems" not in attached["attachments"]
    (period,) = (one for one in paths["/account/usage"]["get"]["parameters"] if one["name"] == "period")
    assert period["schema"] == {"type": "string"}
    assert "anyOf" in paths["/convert/json"]["post"]["responses"]["400"]["content"]["application/json"]["schema"]


@pytest.mark.long
@_needs("typescript", "npm", "node")
def test_typescript(server: Running, package: Path) -> None:
    project = package.parent
    (project / "program.mts").write_text(_TYPESCRIPT)
    (project / "photo.jpg").write_bytes(sample("jpeg"))
    _run(project, "npm", "install", "--silent", "--no-audit", *_COMPILER, f"./{package.name}")
    _run(project, "npx", "tsc", "--strict", "--target", "es2022", "--module", "nodenext", "program.mts")
    _check(server, project, _run(project, "node", "program.mjs", server=server), stored="png 1\n")


@pytest.mark.long
@_needs("php", *_GENERATOR, "php")
def test_php(server: Running, package: Path) -> None:
    guzzle = Path("/usr/share/php/GuzzleHttp/autoload.php").exists()
    (package / "program.php").write_text(_PHP + (_PHP_OPERATIONS if guzzle else ""))
    for path in package.rglob("*.php"):
        assert _run(package, "php", "--syntax-check", str(path)).startswith("No syntax errors")
    printed = _run(package, "php", "program.php", server=server)
    _check(server, package, printed, stored="png 1\n" if guzzle else "")


@pytest.mark.long
@_needs("go", *_GENERATOR, "go")
def test_go(server: Running, package: Path) -> None:
    (package / "program").mkdir()
    (package / "program" / "main.go").write_text(_GO)
    _run(package, "go", "vet", "./...")
    _check(server, package, _run(package, "go", "run", "./program", server=server), stored="png 1\n")


@pytest.mark.long
@_needs("csharp", *_GENERATOR)
def test_csharp_is_written(package: Path) -> None:
    """It is not compiled: no compiler of C# is in Debian, PyPI or npm."""
    project = (package / "src" / "Convertd" / "Convertd.csproj").read_text()
    assert f"<Version>{version('convertd')}</Version>" in project
    assert (package / "src" / "Convertd" / "Converter.cs").is_file()
    assert "PdfMergeAsync(" in (package / "src" / "Convertd" / "Api" / "PDFApi.cs").read_text()


@pytest.mark.long
@_needs("java", *_GENERATOR, "javac")
def test_java(server: Running, package: Path) -> None:
    (package / "Program.java").write_text(_JAVA)
    jars = [f"/usr/share/java/{name}.jar" for name in _JARS]
    absent = [jar for jar in jars if not Path(jar).exists()]
    if absent:
        pytest.skip(f"{', '.join(absent)} is not installed")
    generator = importlib.resources.files("openapi_generator_cli") / "openapi-generator.jar"  # has the others
    path = os.pathsep.join([*jars, str(generator), "classes"])
    sources = [str(file) for file in package.rglob("*.java") if "/test/" not in str(file)]
    (package / "classes").mkdir()
    _run(package, "javac", "-nowarn", "-d", "classes", "-cp", path, *sources)
    _check(server, package, _run(package, "java", "-cp", path, "Program", server=server), stored="png\n")


def _check(server: Running, package: Path, printed: str, stored: str = "") -> None:
    """Checks what a program has written: the image of a request, the one of a job, and the messages of errors."""
    for name, width in (("direct.png", 9), ("waited.png", 8)):
        with Image.open(package / name) as image:
            assert (image.format, image.width) == ("PNG", width)
    message = server.convert(b"?", "png", name="photo.jpg").json()["error"]["message"]
    refusals = (f"400 invalid_file_type: {message}", "500 unknown: Status 500", "200 cancelled: The job was cancelled.")
    assert printed == "\n".join(refusals) + f"\n{stored}"


def _path() -> str:
    return f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


def _run(folder: Path, *command: str, server: Running | None = None) -> str:
    """Runs a command, which must succeed, next to a server that a proxy hides at times. Returns its output."""
    responses = iter(
        (
            reply(502, b'{"error": null}', retry_after="Wed, 21 Oct 2026 07:28:00 GMT"),
            reply(500, b'{"error": "Broken"}'),
            reply(202, b'{"data": {"job_id": "job_1", "status": "cancelled", "error": null}}'),
        )
    )
    with Receiver(lambda request, send: next(responses)(request, send)) as other:
        own = {} if server is None else {"API": server.api, "KEY": server.account(), "OTHER": other.url}
        environment = {**os.environ, "PATH": _path(), **own}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
