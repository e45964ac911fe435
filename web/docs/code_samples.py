"""Code samples of API requests in several languages. They read the API key from $CONVERTD_API_KEY."""

import json
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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

_PYTHON_RECEIVER = """\
import os
from http.server import BaseHTTPRequestHandler, HTTPServer

from convertd_client import InvalidWebhook, verify_webhook


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            message = verify_webhook(body, self.headers, os.environ["WEBHOOK_SECRET"])
        except InvalidWebhook:
            status = 400
        else:
            status = 204
            print(message.id, message.type, message.data, flush=True)
        self.send_response(status)
        self.end_headers()


HTTPServer(("", int(os.environ.get("PORT", 8080))), Receiver).serve_forever()
"""

_NODE_RECEIVER = """\
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const key = Buffer.from(process.env.WEBHOOK_SECRET.replace("whsec_", ""), "base64");

function verify(headers, body) {
  const signed = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`;
  const expected = Buffer.from("v1," + createHmac("sha256", key).update(signed).update(body).digest("base64"));
  const signatures = (headers["webhook-signature"] ?? "").split(" ").map((one) => Buffer.from(one));
  const genuine = signatures.some((one) => one.length === expected.length && timingSafeEqual(one, expected));
  const age = Math.abs(Date.now() / 1000 - Number(headers["webhook-timestamp"]));
  if (!genuine || !(age < 300)) throw new Error("This is no message of convertd.");
  return JSON.parse(body);
}

createServer(async (request, response) => {
  const body = Buffer.concat(await request.toArray());
  try {
    const { type, data } = verify(request.headers, body);
    console.log(request.headers["webhook-id"], type, JSON.stringify(data));
    response.writeHead(204).end();
  } catch {
    response.writeHead(400).end();
  }
}).listen(Number(process.env.PORT ?? 8080));
"""

WEBHOOK_SAMPLES: Mapping[str, str] = MappingProxyType({"Python": _PYTHON_RECEIVER, "Node.js": _NODE_RECEIVER})
"""Servers that receive messages of webhooks, verify the signature and print the event, by language. The
secret and the port are the environment variables WEBHOOK_SECRET and PORT."""


@dataclass(frozen=True)
class Call:
    """A request. `files` are pairs of field and file name; a binary response is written to the file `saves`."""

    method: str
    url: str
    form: Mapping[str, str] = field(default_factory=dict)
    files: tuple[tuple[str, str], ...] = ()
    body: Mapping[str, Any] | None = None
    needs_key: bool = True
    accept: str | None = None
    saves: str | None = None

    @property
    def is_form(self) -> bool:
        return bool(self.form or self.files)


def curl(call: Call) -> str:
    """The request as a curl command."""
    parts = [f"curl {call.url}" if call.method in ("GET", "POST") else f"curl -X {call.method} {call.url}"]
    if call.needs_key:
        parts.append(f'-H "Authorization: Bearer ${VARIABLE}"')
    if call.accept:
        parts.append(f'-H "Accept: {call.accept}"')
    if call.body is not None:
        parts += ['-H "Content-Type: application/json"', f"-d '{json.dumps(call.body)}'"]
    parts += [f'-F "{name}=@{file}"' for name, file in call.files]
    parts += [f"-F {name}={value}" for name, value in call.form.items()]
    if call.method == "POST" and not call.is_form and call.body is None:
        parts[0] = f"curl -X POST {call.url}"
    if call.saves:
        parts.append(f'-o "{call.saves}"')
    return " \\\n  ".join(parts)


def python(call: Call) -> str:
    """The request with `requests`."""
    headers = []
    if call.needs_key:
        headers.append(f'"Authorization": f"Bearer {{os.environ[\'{VARIABLE}\']}}"')
    if call.accept:
        headers.append(f'"Accept": "{call.accept}"')
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
        lines.append('print(response.json()["data"])')
    return "\n".join(lines)


def javascript(call: Call) -> str:
    """The request with `fetch`, for Node.js."""
    lines = ['import { openAsBlob } from "node:fs";'] if call.files else []
    lines += ['import { writeFile } from "node:fs/promises";'] if call.saves else []
    lines += [""] if lines else []
    options = [f'method: "{call.method}"'] if call.method != "GET" else []
    headers = [f"Authorization: `Bearer ${{process.env.{VARIABLE}}}`"] if call.needs_key else []
    headers += [f'Accept: "{call.accept}"'] if call.accept else []
    headers += ['"Content-Type": "application/json"'] if call.body is not None else []
    options += [f"headers: {{ {', '.join(headers)} }}"] if headers else []
    if call.is_form:
        lines.append("const form = new FormData();")
        lines += [f'form.append("{name}", await openAsBlob("{file}"), "{file}");' for name, file in call.files]
        lines += [f'form.append("{name}", "{value}");' for name, value in call.form.items()]
        options.append("body: form")
    elif call.body is not None:
        options.append(f"body: JSON.stringify({json.dumps(call.body)})")
    inside = "".join(f"  {one},\n" for one in options)
    lines.append(f'const response = await fetch("{call.url}"{f", {{{chr(10)}{inside}}}" if inside else ""});')
    lines.append("if (!response.ok) throw new Error((await response.json()).error.message);")
    if call.saves:
        lines.append(f'await writeFile("{call.saves}", Buffer.from(await response.arrayBuffer()));')
    else:
        lines.append("console.log((await response.json()).data);")
    return "\n".join(lines)


def php(call: Call) -> str:
    """The request with PHP's cURL."""
    lines = ["<?php", f"$curl = curl_init('{call.url}');"]
    options = ["CURLOPT_RETURNTRANSFER => true"]
    if call.method != "GET":
        options.append(f"CURLOPT_CUSTOMREQUEST => '{call.method}'")
    headers = [f"'Authorization: Bearer ' . getenv('{VARIABLE}')"] if call.needs_key else []
    headers += [f"'Accept: {call.accept}'"] if call.accept else []
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
    lines += ["if (curl_getinfo($curl, CURLINFO_HTTP_CODE) !== 200) {", "    exit($response);", "}"]
    lines.append(f"file_put_contents('{call.saves}', $response);" if call.saves else "print_r(json_decode($response));")
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
        lines += [f'form.WriteField("{name}", "{value}")' for name, value in call.form.items()]
        lines.append("form.Close()")
        source, content_type = "&body", "form.FormDataContentType()"
    elif call.body is not None:
        packages.append("strings")
        source, content_type = f"strings.NewReader(`{json.dumps(call.body)}`)", '"application/json"'
    lines.append(f'request, _ := http.NewRequest("{call.method}", "{call.url}", {source})')
    lines += [f'request.Header.Set("Authorization", "Bearer "+os.Getenv("{VARIABLE}"))'] if call.needs_key else []
    lines += [f'request.Header.Set("Accept", "{call.accept}")'] if call.accept else []
    lines += [f'request.Header.Set("Content-Type", {content_type})'] if content_type else []
    lines += ["response, err := http.DefaultClient.Do(request)", "if err != nil {", "\tlog.Fatal(err)", "}"]
    lines += ["defer response.Body.Close()", "if response.StatusCode != 200 {", "\tlog.Fatal(response.Status)", "}"]
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
