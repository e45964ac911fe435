"""Clients of six languages, and the shapes of their requests where the programs are not here."""

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.conformance.service import API, BOUNDARY, Service, form, part, png, posting

_NAME = "häuser 1.png"
_TRUST = os.environ.get("SSL_CERT_FILE", "")
_TRUSTING = dict.fromkeys(("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"), _TRUST) if _TRUST else {}

_NODE = """
const [url, key, source, target] = process.argv.slice(1);
const fs = require("fs");
const form = new FormData();
form.append("file", new Blob([fs.readFileSync(source)]), source.split("/").pop());
form.append("output_format", "jpeg");
fetch(url, { method: "POST", body: form, headers: { Authorization: `Bearer ${key}` } })
  .then((answer) => answer.arrayBuffer()).then((data) => fs.writeFileSync(target, Buffer.from(data)));
"""
_PHP = """
[, $url, $key, $source, $target] = $argv;
$curl = curl_init($url);
curl_setopt_array($curl, [CURLOPT_RETURNTRANSFER => true, CURLOPT_HTTPHEADER => ["Authorization: Bearer $key"],
    CURLOPT_POSTFIELDS => ["file" => new CURLFile($source), "output_format" => "jpeg"]]);
file_put_contents($target, curl_exec($curl));
"""
_REQUESTS = """
import sys, requests
url, key, source, target = sys.argv[1:]
with open(source, "rb") as file:
    answer = requests.post(url, headers={"Authorization": f"Bearer {key}"}, files={"file": file},
                           data={"output_format": "jpeg"})
open(target, "wb").write(answer.content)
"""
_POWERSHELL = """
param($Url, $Key, $Source, $Target)
Invoke-WebRequest -Uri $Url -Method Post -Headers @{ Authorization = "Bearer $Key" } -OutFile $Target `
    -Form @{ file = Get-Item $Source; output_format = "jpeg" }
"""
_GO = """
package main

import ("bytes"; "io"; "mime/multipart"; "net/http"; "os"; "path/filepath")

func main() {
	content, _ := os.ReadFile(os.Args[3])
	body := &bytes.Buffer{}
	form := multipart.NewWriter(body)
	file, _ := form.CreateFormFile("file", filepath.Base(os.Args[3]))
	file.Write(content)
	form.WriteField("output_format", "jpeg")
	form.Close()
	request, _ := http.NewRequest("POST", os.Args[1], io.MultiReader(body)) // of unknown length: in chunks
	request.Header.Set("Authorization", "Bearer "+os.Args[2])
	request.Header.Set("Content-Type", form.FormDataContentType())
	answer, err := http.DefaultClient.Do(request)
	if err != nil { panic(err) }
	result, _ := io.ReadAll(answer.Body)
	os.WriteFile(os.Args[4], result, 0o600)
}
"""


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _curl(url: str, key: str, source: str, target: str) -> list[str]:
    fields = ["-F", f"file=@{source}", "-F", "output_format=jpeg"]
    return [_program("curl"), "-sS", "-H", f"Authorization: Bearer {key}", *fields, "-o", target, url]


def _requests(*arguments: str) -> list[str]:
    if importlib.util.find_spec("requests") is None:
        pytest.skip("requests is not installed")
    return [sys.executable, "-c", _REQUESTS, *arguments]


def _node(*arguments: str) -> list[str]:
    return [_program("node"), "-e", _NODE, *arguments]


def _php(*arguments: str) -> list[str]:
    php = _program("php")
    if "curl" not in subprocess.run([php, "-m"], capture_output=True, text=True, check=True).stdout.split():
        pytest.skip("PHP has no cURL")
    return [php, "-d", f"curl.cainfo={_TRUST}", "-r", _PHP, "--", *arguments]


def _powershell(*arguments: str) -> list[str]:
    script = Path(arguments[-1]).with_suffix(".ps1")
    script.write_text(_POWERSHELL)
    return [_program("pwsh"), "-File", str(script), *arguments]


def _go(*arguments: str) -> list[str]:
    script = Path(arguments[-1]).with_suffix(".go")
    script.write_text(_GO)
    return [_program("go"), "run", str(script), *arguments]


@pytest.mark.parametrize(
    "command",
    [_curl, _requests, _node, _php, _powershell, pytest.param(_go, marks=pytest.mark.long)],
    ids=["curl", "requests", "node", "php", "powershell", "go"],
)
def test_a_client_converts(service: Service, tmp_path: Path, command: Callable[..., list[str]]) -> None:
    source, target = tmp_path / _NAME, tmp_path / "result"
    source.write_bytes(png())
    arguments = command(f"{service.url}{API}/convert", service.keys.main, str(source), str(target))
    subprocess.run(arguments, env={**os.environ, **_TRUSTING}, check=True, timeout=120)
    assert target.read_bytes()[:2] == b"\xff\xd8", target.read_bytes()[:300]


def test_httpx_converts_while_it_reads(service: Service) -> None:
    """In chunks, from an iterator."""
    body = form(part(f'; name="file"; filename="{_NAME}"', png()), part('; name="output_format"', b"jpeg"))
    headers = {"Authorization": f"Bearer {service.keys.main}"}
    headers["Content-Type"] = f"multipart/form-data; boundary={BOUNDARY}"
    response = httpx.post(f"{service.url}{API}/convert", content=iter([body[:40], body[40:]]), headers=headers)
    assert (response.status_code, response.content[:2]) == (200, b"\xff\xd8")


_SHAPES = {
    # PowerShell 7 and C#: no quotes, two forms of the name, a type for text, and a boundary in quotes
    "dotnet": (
        "; name=file; filename=\"=?utf-8?B?aMOkdXNlciAxLnBuZw==?=\"; filename*=utf-8''h%C3%A4user%201.png",
        "; name=output_format",
        "text/plain; charset=utf-8",
        f'"{BOUNDARY}"',
    ),
    "go": ('; name="file"; filename="häuser 1.png"', '; name="output_format"', None, BOUNDARY),
    "java": ("; name=\"file\"; filename*=UTF-8''h%C3%A4user%201.png", '; name="output_format"', "text/plain", BOUNDARY),
}


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("waits", [False, True])
def test_the_shape_of_a_client(service: Service, shape: str, waits: bool) -> None:
    """Also with `Expect: 100-continue`, as PHP's cURL, .NET and PowerShell send it with large files."""
    file, field, text_type, boundary = _SHAPES[shape]
    types = [f"Content-Type: {text_type}"] if text_type else []
    body = form(part(file, png(), "Content-Type: application/octet-stream"), part(field, b"jpeg", *types))
    head = posting(len(body), "Expect: 100-continue\r\n" if waits else "", boundary)
    (answer,) = service.raw(head, body_later=body) if waits else service.raw(head + body)
    assert (answer.status, answer.body[:2]) == (200, b"\xff\xd8")
    assert "h%C3%A4user%201.jpg" in answer.headers["content-disposition"]
