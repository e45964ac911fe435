"""Every tool over HTTP, as a command and by the client, from its declaration alone."""

import json
from base64 import b64encode
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pikepdf
import pytest
from PIL import Image

from convertd_client import Client
from engine.registry import load_registry
from tests.support.command_line import invoke
from tests.support.requests.checks import problem
from tests.support.samples.certificates import pkcs12_file
from tests.support.samples.generated import sample
from tests.support.samples.pairs import every
from tests.support.samples.pdf_documents import document, opened
from tests.support.samples.tool_requests import tool_requests
from tests.support.servers.in_process import Running

_TOOLS = load_registry().tools
_REQUESTS = tool_requests()
_FORMATS = {  # the others make PDFs
    "pdf-extract-images": "png",
    "pdf-extract-attachments": "file",
    "pdf-info": "json",
    "pdf-verify": "json",
}
_AS_JOB = {"Prefer": "respond-async, wait=60"}


def _files(name: str) -> list[tuple[str, tuple[str, bytes]]]:
    """The parts of a form with the files of a request."""
    request = _REQUESTS[name]
    field = "files[]" if _TOOLS[name].takes_several else "file"
    parts = [(field, (f"my {number}.bin", data)) for number, data in enumerate(request.inputs)]
    return [*parts, *((part, ("more.bin", data)) for part, data in request.files.items())]


def _form(name: str) -> dict[str, str]:
    options = _REQUESTS[name].options
    return {key: value if isinstance(value, str) else json.dumps(value) for key, value in options.items()}


def _count(name: str, data: bytes) -> int:
    """The number of files of a result."""
    if not _TOOLS[name].archive:
        assert data.startswith(b"{" if _FORMATS.get(name) == "json" else b"%PDF-")
        return 1
    with ZipFile(BytesIO(data)) as archive:
        assert archive.testzip() is None
        return len(archive.namelist())


@pytest.mark.parametrize("name", sorted(_REQUESTS))
def test_over_http(server: Running, name: str) -> None:
    path, expected = f"/pdf/{name.removeprefix('pdf-')}", _REQUESTS[name].count
    before = _used(server, name)

    binary = server.request("POST", path, files=_files(name), data=_form(name))
    described = server.request("POST", f"/tools/{name}/json", files=_files(name), data=_form(name)).json()["data"]

    container = "zip" if _TOOLS[name].archive else None
    assert (binary.status_code, _count(name, binary.content)) == (200, expected)
    assert (described["container"], described["output_format"]) == (container, _FORMATS.get(name, "pdf"))
    assert described["file_count"] == (expected if container else len(_files(name)))
    stored = server.request("GET", described["download_url"].removeprefix("/api/v1"))
    assert _count(name, stored.content) == expected
    assert _used(server, name) == before + 2


def test_pictures_have_a_size(server: Running) -> None:
    name = "pdf-extract-images"
    binary = server.request("POST", "/pdf/extract-images", files=_files(name), data=_form(name))
    described = server.request("POST", "/pdf/extract-images/json", files=_files(name), data=_form(name)).json()["data"]
    stored = server.request("GET", f"/files/{described['file_id']}").json()["data"]

    with ZipFile(BytesIO(binary.content)) as archive, Image.open(archive.open(archive.namelist()[0])) as first:
        size = first.size
    assert (described["width"], described["height"]) == (stored["width"], stored["height"]) == size
    assert (binary.headers["X-Width"], binary.headers["X-Height"]) == (str(size[0]), str(size[1]))


@pytest.mark.parametrize("name", every(8, sorted(_REQUESTS)))
def test_as_a_job(server: Running, name: str) -> None:
    path = f"/pdf/{name.removeprefix('pdf-')}"

    answer = server.request("POST", path, files=_files(name), data=_form(name), headers=_AS_JOB)

    job = answer.json()["data"]
    assert (answer.status_code, job["status"]) == (200, "completed")
    stored = server.request("GET", job["result"]["download_url"].removeprefix("/api/v1"))
    assert _count(name, stored.content) == _REQUESTS[name].count


def test_files_that_a_tool_needs_are_missed_before_a_job_is_accepted(server: Running) -> None:
    needed = {name: tool.files for name, tool in _TOOLS.items() if any(file.minimum for file in tool.files.values())}
    before = server.request("GET", "/jobs").json()["data"]

    for name, (missing, *_) in needed.items():
        path = f"/pdf/{name.removeprefix('pdf-')}"
        sent: dict[str, Any] = {"files": _files(name)[:1]}
        by_url: dict[str, Any] = {"data": {"url": "https://example.com/a.pdf"}}
        for body, headers in ((sent, {}), (sent, _AS_JOB), (by_url, _AS_JOB)):
            refused = server.request("POST", path, **body, headers=headers)
            problem(refused, 400, "invalid_parameter", reason="missing", param=missing)
        stages: dict[str, Any] = {
            "files": _files(name)[:1],
            "data": {"stages": json.dumps([{"tool": name}])},
            "headers": _AS_JOB,
        }
        refused = server.request("POST", "/pdf/pipe", **stages)
        problem(refused, 400, "invalid_parameter", reason="missing", param=f"stages[0].{missing}")

    assert needed.keys() == {"pdf-attach", "pdf-overlay", "pdf-sign"}
    assert server.request("GET", "/jobs").json()["data"] == before


def test_files_are_attached_with_their_names(server: Running) -> None:
    names = ["factur x.xml", "Zahlen.CSV"]
    parts = [
        ("file", ("a.pdf", document("A", 1))),
        ("attachments", (names[0], b"<x/>")),
        ("attachments[]", (names[1], b"1")),
    ]

    attached = server.request("POST", "/pdf/attach", files=parts).content
    job = server.request("POST", "/pdf/attach", files=parts, headers=_AS_JOB).json()["data"]
    by_job = server.request("GET", job["result"]["download_url"].removeprefix("/api/v1")).content
    extracted = server.request("POST", "/pdf/extract-attachments", files={"file": by_job}).content
    refused = server.request("POST", "/pdf/attach", files=[parts[0], *parts[1:2] * 21])

    with opened(attached) as read:
        assert len(read.attachments) == 2
    with ZipFile(BytesIO(extracted)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == {
            "Zahlen.csv": b"1",
            "factur x.xml": b"<x/>",
        }
    problem(refused, 400, "invalid_parameter", reason="out_of_range", param="attachments")


def _used(server: Running, name: str) -> int:
    usage: dict[str, int] = server.request("GET", "/account/usage").json()["data"]["by_operation"]
    return usage.get(name.replace("-", "_"), 0)


def test_the_catalogue_and_the_documentation(server: Running) -> None:
    tools = {tool["id"]: tool for tool in server.request("GET", "/tools").json()["data"]["tools"]}
    paths = server.request("GET", "/openapi.json").json()["paths"]

    for name, request in _REQUESTS.items():
        assert tools[name]["endpoint"] == f"/api/v1/pdf/{name.removeprefix('pdf-')}"
        assert {f"/pdf/{name.removeprefix('pdf-')}", f"/pdf/{name.removeprefix('pdf-')}/json"} <= paths.keys()
        taken = {option["name"] for option in tools[name]["options"]}
        assert set(request.options) <= taken
        assert ("password" in taken) is ("pdf" in tools[name]["input_formats"])
        assert ("sanitize" in taken) is (tools[name]["output_formats"] == ["pdf"])


@pytest.mark.parametrize("name", every(4, sorted(_REQUESTS)))
def test_as_a_command_and_by_the_client(server: Running, tmp_path: Path, name: str) -> None:
    request = _REQUESTS[name]
    inputs = [tmp_path / f"{number}.bin" for number in range(len(request.inputs))]
    for path, data in zip(inputs, request.inputs, strict=True):
        path.write_bytes(data)
    additional = {field: tmp_path / f"{field}.bin" for field in request.files}
    for field, path in additional.items():
        path.write_bytes(request.files[field])
    suffix = "zip" if _TOOLS[name].archive else "pdf"
    flags = [f"--{key.replace('_', '-')}" for key, value in request.options.items() if value is True]
    for key, value in ({**_form(name), **additional}).items():
        flags += [] if value == "true" else [f"--{key.replace('_', '-')}", str(value)]

    done = invoke(tmp_path, name, *map(str, inputs), "-o", f"here.{suffix}", *flags)
    given: Any = {**request.options, **additional}
    with Client(server.url, server.key) as client:
        files: Any = inputs if _TOOLS[name].takes_several else inputs[0]
        sent = client.tool(name, files, to=tmp_path / f"there.{suffix}", **given)

    assert done.exit_code == 0, done.stderr
    assert _count(name, (tmp_path / f"here.{suffix}").read_bytes()) == request.count
    assert _count(name, (tmp_path / f"there.{suffix}").read_bytes()) == request.count
    assert (sent.page_count is None) is (_TOOLS[name].target.name != "pdf")


def test_stages_take_files_of_any_field(server: Running, tmp_path: Path) -> None:
    stages = json.dumps([{"tool": "pdf-watermark", "stamp": "logo.png"}, {"tool": "pdf-rotate", "angle": 90}])
    (tmp_path / "a.pdf").write_bytes(document("A", 1))
    (tmp_path / "logo.png").write_bytes(sample("png"))
    parts = [("file", ("a.pdf", document("A", 1))), ("logo.png", ("logo.png", sample("png")))]

    sent = server.request("POST", "/pdf/pipe", files=parts, data={"stages": stages})
    unused = server.request("POST", "/pdf/pipe", files=[*parts, ("more", ("b.png", b"1"))], data={"stages": stages})
    wrong = server.request("POST", "/pdf/rotate", files=parts, data={"angle": "90"})
    done = invoke(tmp_path, "pdf-pipe", "a.pdf", "-o", "b.pdf", "--stages", stages)

    assert done.exit_code == 0, done.stderr
    for data in (sent.content, (tmp_path / "b.pdf").read_bytes()):
        with opened(data) as read:
            assert read.pages[0].obj.Rotate == 90
            assert len(read.pages[0].obj.Resources.XObject) == 1
    problem(unused, 400, "invalid_parameter", reason="unknown_parameter", param="more")
    problem(wrong, 400, "invalid_parameter", reason="unknown_parameter", param="logo.png")


def test_an_empty_value_is_not_absence(server: Running) -> None:
    with pikepdf.open(BytesIO(document("A", 1))) as made:
        made.docinfo.Title = pikepdf.String("old")
        made.save(file := BytesIO())
    sent = {"file": ("a.pdf", file.getvalue())}

    cleared = server.request("POST", "/pdf/metadata", files=sent, data={"title": ""})
    missing = server.request("POST", "/pdf/metadata", files=sent)

    assert "/Title" not in opened(cleared.content).docinfo
    problem(missing, 400, "invalid_parameter", reason="missing", param="title")


def test_passwords_are_not_kept(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    files, secrets = {"file": ("a.pdf", document("A", 1))}, ("open-sesame-1", "open-sesame-2")
    form = dict(zip(("user_password", "owner_password"), secrets, strict=True))
    once = {"Idempotency-Key": "protect"}

    first = server.request("POST", "/pdf/protect/json", files=files, data=form, headers=once)
    again = server.request("POST", "/pdf/protect/json", files=files, data=form, headers=once)
    refused = server.request("POST", "/pdf/protect", files=files, data={**form, "allow": "all"})

    assert again.json()["data"] == first.json()["data"]
    problem(refused, 400, "invalid_parameter", param="allow")
    kept = [path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file()]
    texts = [*kept, caplog.text.encode(), first.content, refused.content]
    assert not any(secret.encode() in text for secret in secrets for text in texts)


def test_keys_of_certificates_are_not_kept(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    key = pkcs12_file("Jane", "open-sesame-3")
    files = {"file": ("a.pdf", document("A", 1)), "certificate": ("jane.p12", key)}
    form, once = {"certificate_password": "open-sesame-3"}, {"Idempotency-Key": "sign"}

    signed = server.request("POST", "/pdf/sign/json", files=files, data=form, headers=once)
    again = server.request("POST", "/pdf/sign/json", files=files, data=form, headers=once)
    refused = server.request("POST", "/pdf/sign", files=files, data={"certificate_password": "open-sesame-4"})

    assert again.json()["data"] == signed.json()["data"]
    problem(refused, 400, "invalid_parameter", param="certificate_password")
    kept = [path.read_bytes() for path in server.data_dir.rglob("*") if path.is_file()]
    texts = [*kept, caplog.text.encode(), signed.content, refused.content]
    for secret in (b"open-sesame-3", b"open-sesame-4", key, b64encode(key)):
        assert not any(secret in text for text in texts)


def test_lists_are_separated_by_commas_or_json(server: Running) -> None:
    files = {"file": ("a.pdf", document("A", 5))}
    for pages in ("2,4-5", '[2, "4-5"]', '["2","4","5"]'):
        data = server.request("POST", "/pdf/delete-pages/json", files=files, data={"pages": pages}).json()["data"]
        assert data["deleted_pages"] == [2, 4, 5]
    for pages in ("[]", "[2.5]", '{"2": 3}', "[[2]]", "[2"):
        answer = server.request("POST", "/pdf/delete-pages", files=files, data={"pages": pages})
        problem(answer, 400, "invalid_parameter", param="pages")
