"""The samples of the API reference are complete requests, in each of their languages: they run as they are printed."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any, TypeAlias

import pytest

from tests.support.requests import http
from tests.support.results.conversions import run_tool
from tests.support.results.programs import languages_here, run_sample
from tests.support.samples.certificates import pkcs12_file
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.samples.pdf_forms import form
from tests.support.servers.in_process import Running
from tests.support.servers.mail_server import token_sent_to
from web.docs.api_reference import Endpoint, endpoints

Id: TypeAlias = Callable[[Running], str]


def _data(server: Running, method: str, path: str, **request: Any) -> Any:
    response = server.request(method, path, **request)
    assert response.is_success, response.text
    return response.json()["data"]


def _file(server: Running) -> str:
    """A converted file."""
    file = str(server.upload(sample("png"))["file_id"])
    _data(server, "POST", f"/files/{file}/convert", json={"output_format": "webp"})
    return file


def _batch(server: Running) -> str:
    batch = str(_data(server, "POST", "/batch", json={"output_format": "webp"})["batch_id"])
    file = server.upload(sample("png"), path=f"/batch/{batch}/files")["file_id"]
    _data(server, "POST", f"/batch/{batch}/convert", json={"output_format": "webp", "file_ids": [file]})
    return batch


def _job(server: Running) -> str:
    files, form, headers = {"file": sample("png")}, {"output_format": "webp"}, {"Prefer": "respond-async"}
    return str(_data(server, "POST", "/convert", files=files, data=form, headers=headers)["job_id"])


def _preset(server: Running) -> str:
    _data(server, "PUT", "/presets/small", json={"output_format": "webp"})
    return "small"


def _key(server: Running) -> str:
    return str(_data(server, "POST", "/account/keys", json={})["key_id"])


def _webhook(server: Running) -> str:
    return str(_data(server, "POST", "/webhooks", json={"url": "https://127.0.0.2/hook"})["webhook_id"])


def _delivery(server: Running) -> str:
    return str(_data(server, "POST", f"/webhooks/{_webhook(server)}/test")["delivery_id"])


def _link(server: Running) -> str:
    return str(_data(server, "POST", f"/files/{_file(server)}/links", json={})["url"]).rpartition("/")[2]


def _verification(server: Running) -> str:
    address = f"{token_hex(4)}@example.test"
    http.post(f"{server.api}/register", json={"email": address, "name": "Samples"})
    return f"/verify?token={token_sent_to(server, address)}"


_IDS: Mapping[str, Id] = MappingProxyType(
    {
        "/verify?token=TOKEN": _verification,
        "FILE_ID": _file,
        "BATCH_ID": _batch,
        "JOB_ID": _job,
        "KEY_ID": _key,
        "WEBHOOK_ID": _webhook,
        "DELIVERY_ID": _delivery,
        "TOKEN": _link,
        "/NAME": lambda server: f"/{_preset(server)}",
        "INPUT_FORMAT": lambda server: "heic",
        "OUTPUT_FORMAT": lambda server: "webp",
    }
)


@pytest.fixture(scope="module")
def reference(server: Running) -> list[Endpoint]:
    """The endpoints that clients call."""
    every_one = endpoints(http.get(f"{server.api}/openapi.json").json())
    return [one for one in every_one if one.path != "/webhooks/stripe"]


@pytest.fixture(scope="module")
def files() -> Mapping[str, bytes]:
    """The files that the samples name."""
    pages = run_tool("pdf-resize-pages", run_tool("pdf-merge", form(), document("A", 9)).data, page_size="a4").data
    illustrated = run_tool("pdf-overlay", pages, files={"overlay": sample("png")}).data
    return {
        "photo.heic": sample("heic"),
        "document.pdf": run_tool("pdf-attach", illustrated, files={"attachments": b"a,b"}).data,
        "data.csv": b"a,b",
        "letterhead.pdf": sample("pdf"),
        "signer.p12": pkcs12_file(),
    }


def _request(text: str, server: Running) -> str:
    """The sample for this server, with ids of what exists for its words in capitals."""
    text = text.replace("http://localhost:8000", server.url)
    text = re.sub(r"file_[0-9]\w{20,}", lambda _: _file(server), text)
    for name in (name for name in _IDS if name in text):
        text = text.replace(name, _IDS[name](server))
    return text


def _failures(language: str, chosen: list[Endpoint], server: Running, files: Mapping[str, bytes], folder: Path) -> str:
    """What the samples of these endpoints print if they fail."""
    failed = []
    for endpoint in chosen:
        here = folder / endpoint.id
        here.mkdir()
        for name, content in files.items():
            (here / name).write_bytes(content)
        caller = replace(server, key=server.account())
        done = run_sample(language, _request(endpoint.samples[language], caller), caller.key, here)
        made = {path.name for path in here.iterdir() if path.stat().st_size} - files.keys()
        if done.returncode or not (done.stdout.strip() or made):
            answers = b"".join((here / name).read_bytes() for name in made)
            failed.append(f"{endpoint.id}: {done.stdout}{done.stderr}{answers!r}")
    return "\n".join(failed)


def test_each_request_with_curl(
    server: Running, reference: list[Endpoint], files: Mapping[str, bytes], tmp_path: Path
) -> None:
    assert _failures("curl", reference, server, files, tmp_path) == ""


@pytest.mark.long
@pytest.mark.parametrize("language", languages_here())
def test_each_request_in_each_language(
    server: Running, reference: list[Endpoint], files: Mapping[str, bytes], tmp_path: Path, language: str
) -> None:
    # Few addresses can be registered from an address, which the test with curl does.
    others = [one for one in reference if one.path != "/register"]
    assert _failures(language, others, server, files, tmp_path) == ""
