"""The collection for Postman has each operation; newman, which runs collections, sends its requests to a server."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.requests import http
from tests.support.requests.checks import published
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from web.api.values import API
from web.docs.postman import collection

_NEWMAN = "newman@6.2.2"
# Folders whose requests need nothing but files and what earlier ones have made.
_FOLDERS = ("Conversion", "Files", "Presets", "pdfMerge", "Catalogue", "Service")


def test_each_operation_is_a_request() -> None:
    document = published()
    operations = {
        one["operationId"]: (method.upper(), "security" not in one)
        for item in document["paths"].values()
        for method, one in item.items()
        if method != "servers"
    }
    made = collection(document)
    requests = {one["name"]: one["request"] for folder in made["item"] for one in folder["item"]}
    assert {name: (one["method"], "auth" not in one) for name, one in requests.items()} == operations
    variables = {one["key"]: one["value"] for one in made["variable"]}
    assert (variables["baseUrl"] + API, variables["apiKey"]) == (document["servers"][0]["url"], "")
    assert requests["filesGet"]["url"]["raw"] == "{{baseUrl}}/api/v1/files/{{file_id}}"
    assert requests["healthGet"]["url"]["raw"] == "{{baseUrl}}/healthz"
    assert {"file_id", "job_id", "webhook_id"} <= {*variables}
    assert {one["key"] for one in requests["pdfMerge"]["body"]["formdata"]} == {"files[]"}


@pytest.mark.long
def test_newman_sends_the_requests(server: Running, tmp_path: Path) -> None:
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    for name, content in (("photo.heic", sample("heic")), ("document.pdf", sample("pdf"))):
        (tmp_path / name).write_bytes(content)
    (tmp_path / "collection.json").write_text(http.get(f"{server.url}/postman.json").text)
    subprocess.run(["npm", "install", "--silent", "--no-audit", _NEWMAN], cwd=tmp_path, check=True)
    folders = [argument for name in _FOLDERS for argument in ("--folder", name)]
    told = subprocess.run(
        [
            *("npx", "newman", "run", "collection.json", *folders),
            *("--env-var", f"baseUrl={server.url}", "--env-var", f"apiKey={server.account()}"),
            *("--reporters", "json", "--reporter-json-export", "report.json"),
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert (tmp_path / "report.json").exists(), told.stdout + told.stderr
    ran = json.loads((tmp_path / "report.json").read_text())["run"]["executions"]
    refused = {one["item"]["name"]: one["response"]["code"] for one in ran if one["response"]["code"] >= 300}
    assert {"convert", "filesConvert", "filesDownload", "presetsGet", "pdfMerge"} <= {
        one["item"]["name"] for one in ran
    }
    assert refused == {"linksDownload": 404, "filesDownloadZip": 404}, "no such token, and a file without a result"
