"""Code samples of API requests in several languages. They read the API key from $CONVERTD_API_KEY."""

import json
import shlex
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

VARIABLE = "CONVERTD_API_KEY"

COMMAND_SAMPLE = f"""\
convertd convert photo.heic photo.jpg
convertd convert --width 800 --max-bytes 20000 photo.heic photo.avif
convertd convert *.heic --to webp
export {VARIABLE}=cvd_live_…
convertd convert --remote {{url}} photo.heic photo.png"""
"""The command line; `url` is the one of the server, without the path of the API."""

CLIENT_SAMPLE = """\
from convertd_client import Client, ConvertdError

with Client("{url}") as client:
    result = client.convert("photo.heic", "webp", to="photo.webp", width=800)
    print(result.warnings, result.credits_remaining)
    try:
        client.convert("photo.heic", "nef", to="photo.nef")
    except ConvertdError as error:
        print(error.code, error.message, error.request_id)"""
"""The Python client; `url` is the one of the server, without the path of the API."""

_PROGRAMS = Path(__file__).parent / "samples"


def _program(stem: str, **suffixes: str) -> Mapping[str, str]:
    """The text of a program by language."""
    return MappingProxyType({name: (_PROGRAMS / f"{stem}{suffix}").read_text() for name, suffix in suffixes.items()})


PHOTOS_PROGRAM = _program("photos", curl=".sh", Python=".py", JavaScript=".mjs", PHP=".php", Go=".go")
"""A program that converts the photos of a folder, by language. `{url}` in it is for the URL of the API."""

WEBHOOK_SAMPLES = _program("receiver", Python=".py", JavaScript=".mjs", PHP=".php", Go=".go", Java=".java")
"""Servers that receive messages of webhooks, verify the signature and print the event, by language. The
secret and the port are the environment variables WEBHOOK_SECRET and PORT."""


@dataclass(frozen=True)
class Call:
    """A request. `files` are pairs of field and file name.

    A binary response is written to the file `saves`; of others, what they `show` is printed: the `data` of JSON, all of
    it, or text.
    """

    method: str
    url: str
    form: Mapping[str, str] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    needs_key: bool = True
    headers: Mapping[str, str] = field(default_factory=dict)
    saves: str | None = None
    shows: Literal["data", "json", "text"] = "data"

    @property
    def is_form(self) -> bool:
        return bool(self.form or self.files)


def curl(call: Call) -> str:
    """The request as a curl command."""
    url = shlex.quote(call.url) if "?" in call.url else call.url
    parts = [f"curl {url}" if call.method in ("GET", "POST") else f"curl -X {call.method} {url}"]
    if call.needs_key:
        parts.append(f'-H "Authorization: Bearer ${VARIABLE}"')
    parts += [f'-H "{name}: {value}"' for name, value in call.headers.items()]
    if call.body is not None:
        parts += ['-H "Content-Type: application/json"', f"-d {shlex.quote(json.dumps(call.body))}"]
    parts += [f'-F "{name}=@{file}"' for name, file in call.files]
    parts += [f"-F {shlex.quote(f'{name}={value}')}" for name, value in call.form.items()]
    if call.method == "POST" and not call.is_form and call.body is None:
        parts[0] = f"curl -X POST {url}"
    if call.saves:
        parts.append(f'-o "{call.saves}"')
    return " \\\n  ".join(parts)


def python(call: Call) -> str:
    """The request with `requests`."""
    headers = []
    if call.needs_key:
        headers.append(f'"Authorization": f"Bearer {{os.environ[\'{VARIABLE}\']}}"')
    headers += [f'"{name}": "{value}"' for name, value in call.headers.items()]
    arguments = [f'"{call.url}"']
    if headers:
        arguments.append(f"headers={{{', '.join(headers)}}}")
    if call.files:
        files = ", ".join(f'("{name}", open("{file}", "rb"))' for name, file in call.files)
        arguments.append(f"files=[{files}]")
    if call.form:
        arguments.append(f"data={json.dumps(dict(call.form))}")
    if call.body is not None:
        arguments.append(f"json={json.dumps(call.body)}")
    lines = ["import os", "", "import requests", ""] if call.needs_key else ["import requests", ""]
    lines += [f"response = requests.{call.method.lower()}(", *(f"    {one}," for one in arguments), ")"]
    lines.append("response.raise_for_status()")
    if call.saves:
        lines += [f'with open("{call.saves}", "wb") as file:', "    file.write(response.content)"]
    else:
        shown = {"data": 'response.json()["data"]', "json": "response.json()", "text": "response.text"}
        lines.append(f"print({shown[call.shows]})")
    return "\n".join(lines)


def javascript(call: Call) -> str:
    """The request with `fetch`, for Node.js."""
    lines = ['import { openAsBlob } from "node:fs";'] if call.files else []
    lines += ['import { writeFile } from "node:fs/promises";'] if call.saves else []
    lines += [""] if lines else []
    options = [f'method: "{call.method}"'] if call.method != "GET" else []
    headers = [f"Authorization: `Bearer ${{process.env.{VARIABLE}}}`"] if call.needs_key else []
    headers += [f'{name}: "{value}"' for name, value in call.headers.items()]
    headers += ['"Content-Type": "application/json"'] if call.body is not None else []
    options += [f"headers: {{ {', '.join(headers)} }}"] if headers else []
    if call.is_form:
        lines.append("const form = new FormData();")
        lines += [f'form.append("{name}", await openAsBlob("{file}"), "{file}");' for name, file in call.files]
        lines += [f'form.append("{name}", {json.dumps(value)});' for name, value in call.form.items()]
        options.append("body: form")
    elif call.body is not None:
        options.append(f"body: JSON.stringify({json.dumps(call.body)})")
    inside = "".join(f"  {one},\n" for one in options)
    lines.append(f'const response = await fetch("{call.url}"{f", {{{chr(10)}{inside}}}" if inside else ""});')
    lines.append("if (!response.ok) throw new Error((await response.json()).error.message);")
    if call.saves:
        lines.append(f'await writeFile("{call.saves}", Buffer.from(await response.arrayBuffer()));')
    else:
        shown = {
            "data": "(await response.json()).data",
            "json": "await response.json()",
            "text": "await response.text()",
        }
        lines.append(f"console.log({shown[call.shows]});")
    return "\n".join(lines)


def php(call: Call) -> str:
    """The request with PHP's cURL."""
    lines = ["<?php", f"$curl = curl_init('{call.url}');"]
    options = ["CURLOPT_RETURNTRANSFER => true"]
    if call.method != "GET":
        options.append(f"CURLOPT_CUSTOMREQUEST => '{call.method}'")
    headers = [f"'Authorization: Bearer ' . getenv('{VARIABLE}')"] if call.needs_key else []
    headers += [f"'{name}: {value}'" for name, value in call.headers.items()]
    headers += ["'Content-Type: application/json'"] if call.body is not None else []
    options += [f"CURLOPT_HTTPHEADER => [{', '.join(headers)}]"] if headers else []
    if call.is_form:
        fields = [
            f"'{_php_field(name, index)}' => new CURLFile('{file}')" for index, (name, file) in enumerate(call.files)
        ]
        fields += [f"'{name}' => '{value}'" for name, value in call.form.items()]
        options.append(f"CURLOPT_POSTFIELDS => [{', '.join(fields)}]")
    elif call.body is not None:
        options.append(f"CURLOPT_POSTFIELDS => '{json.dumps(call.body)}'")
    lines += ["curl_setopt_array($curl, [", *(f"    {one}," for one in options), "]);", "$response = curl_exec($curl);"]
    lines += ["if (curl_getinfo($curl, CURLINFO_HTTP_CODE) >= 400) {"]
    lines += ["    fwrite(STDERR, $response ?: curl_error($curl));", "    exit(1);", "}"]
    if call.saves:
        lines.append(f"file_put_contents('{call.saves}', $response);")
    else:
        lines.append("echo $response;" if call.shows == "text" else "print_r(json_decode($response));")
    return "\n".join(lines)


def go(call: Call) -> str:
    """The request with Go's standard library. Omits the handling of local errors for brevity."""
    packages = ["io", "log", "net/http", "os"]
    lines = []
    content_type = None
    source = "nil"
    if call.is_form:
        packages += ["bytes", "mime/multipart"]
        lines += ["var body bytes.Buffer", "form := multipart.NewWriter(&body)"]
        for name, file in call.files:
            opened = ["{", f'\tfile, _ := os.Open("{file}")', f'\tpart, _ := form.CreateFormFile("{name}", "{file}")']
            lines += [*opened, "\tio.Copy(part, file)", "}"]
        lines += [f'form.WriteField("{name}", {json.dumps(value)})' for name, value in call.form.items()]
        lines.append("form.Close()")
        source, content_type = "&body", "form.FormDataContentType()"
    elif call.body is not None:
        packages.append("strings")
        source, content_type = f"strings.NewReader(`{json.dumps(call.body)}`)", '"application/json"'
    lines.append(f'request, _ := http.NewRequest("{call.method}", "{call.url}", {source})')
    lines += [f'request.Header.Set("Authorization", "Bearer "+os.Getenv("{VARIABLE}"))'] if call.needs_key else []
    lines += [f'request.Header.Set("{name}", "{value}")' for name, value in call.headers.items()]
    lines += [f'request.Header.Set("Content-Type", {content_type})'] if content_type else []
    lines += ["response, err := http.DefaultClient.Do(request)", "if err != nil {", "\tlog.Fatal(err)", "}"]
    lines += ["defer response.Body.Close()", "if response.StatusCode >= 400 {", "\tlog.Fatal(response.Status)", "}"]
    if call.saves:
        lines += [f'file, _ := os.Create("{call.saves}")', "io.Copy(file, response.Body)"]
    else:
        lines.append("io.Copy(os.Stdout, response.Body)")
    imports = "\n".join(f'\t"{name}"' for name in sorted(packages))
    code = textwrap.indent("\n".join(lines), "\t")
    return f"package main\n\nimport (\n{imports}\n)\n\nfunc main() {{\n{code}\n}}"


def _php_field(name: str, index: int) -> str:
    """PHP needs a different name for every part of an array."""
    return name.replace("[]", f"[{index}]")


LANGUAGES: Mapping[str, Callable[[Call], str]] = MappingProxyType(
    {"curl": curl, "Python": python, "JavaScript": javascript, "PHP": php, "Go": go}
)
