"""Pages that convert: for the account that is signed in, and as trials; the pages of tools and of files."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pikepdf
import pytest
from PIL import Image

from config.pricing import MIB
from config.settings import Settings
from engine.registry import load_registry
from storage.tables import accounts, sessions
from tests.support.executors.fake import HeldExecutor
from tests.support.requests import http
from tests.support.requests.account_requests import signed_in
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running, Servers, eventually
from web.site.pages import tool_page

TRIALS_PER_ADDRESS = Settings().trials


@pytest.fixture(scope="module")
def site(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings: dict[str, Any] = {
        "rate_limit_free": 3,
        "rate_limit_anonymous": 1000,
        "operator_contact": "help@example.com",
    }
    with servers.running(tmp_path_factory.mktemp("work"), **settings) as running:
        yield running


def converted(client: httpx.Client, *, key: str = "", **headers: str) -> httpx.Response:
    sent = {**headers, **({"Idempotency-Key": key} if key else {})}
    files = {"file": ("drawing.png", sample("png"))}
    return client.post("/try/convert", files=files, data={"output_format": "jpeg"}, headers=sent)


def test_the_session_pays_once_and_keeps_the_result(site: Running) -> None:
    """More often than the account's rate limit for the API allows."""
    key = site.account(credits=9)
    with signed_in(site, key) as client:
        first, again = converted(client, key="once"), converted(client, key="once")
        others = [converted(client) for _ in range(4)]
        files = re.findall(r'name="(file_\w+)"', client.get("/dashboard/files").text)
    described = json.loads(first.headers["X-Result"])
    assert described == json.loads(again.headers["X-Result"])
    assert first.content == again.content
    assert (first.headers["X-Credits-Remaining"], again.headers["Idempotency-Replayed"]) == ("8", "true")
    assert [response.headers["X-Credits-Remaining"] for response in others] == ["7", "6", "5", "4"]
    assert len(files) == 5
    assert described["file_id"] == files[-1]


def test_a_conversion_goes_on_as_a_job_unless_it_is_cancelled(servers: Servers, data_dir: Path) -> None:
    """A repeated request gets the result of the job, which is charged once."""
    executor = HeldExecutor(servers.executor)
    with servers.running(data_dir, executor) as site, signed_in(site, key := site.account(credits=3)) as client:

        def jobs() -> list[Any]:
            found: list[Any] = site.request("GET", "/jobs", key).json()["data"]["jobs"]
            return found

        client.timeout = 0.5
        assert client.post("/try/cancel", headers={"Idempotency-Key": "cancelled"}).status_code == 204
        for name in ("cancelled", "once"):
            with pytest.raises(httpx.ReadTimeout):
                converted(client, key=name)
        assert eventually(lambda: len(jobs()) == 1)
        assert jobs()[0]["tag"] == "drawing.png"
        client.timeout = 60
        servers.block(executor.open.set)
        repeated = converted(client, key="once")
        assert Image.open(io.BytesIO(repeated.content)).format == "JPEG"
        assert repeated.headers["X-Credits-Remaining"] == "2"
        assert json.loads(repeated.headers["X-Result"])["file_id"] == jobs()[0]["result"]["file_id"]
        assert len(jobs()) == 1


def test_a_session_by_email_pays_too(site: Running) -> None:
    email = site.request("GET", "/account", site.account(credits=1)).json()["data"]["email"]
    account = site.database.run_blocking(accounts.find, email)
    assert account is not None
    token = site.database.run_blocking(sessions.begin_without_key, account.id)
    with http.Client(base_url=site.url, headers={"Origin": site.url}, cookies={"convertd_account": token}) as client:
        assert converted(client).headers["X-Credits-Remaining"] == "0"
        problem(converted(client), 402, "no_credits")


def test_no_other_site_and_no_other_account(site: Running) -> None:
    with signed_in(site, site.account(credits=1)) as client:
        for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "same-site"}):
            problem(converted(client, **headers), 400, "invalid_parameter", reason="cross_site")
        for expected in ("", "acct_other"):
            response = converted(client, **{"X-Page-Account": expected})
            problem(response, 400, "invalid_parameter", reason="signed_in_changed")
        assert "1 credit<" in client.get("/").text


def test_only_successful_trials_count(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as site, http.Client(base_url=site.url, headers={"Origin": site.url}) as client:
        for _ in range(TRIALS_PER_ADDRESS + 1):
            broken = {"file": ("a.png", sample("png")[:60])}
            answer = client.post("/try/convert", files=broken, data={"output_format": "jpeg"})
            problem(answer, 500, "processing_failed")
        left = [json.loads(converted(client).headers["X-Result"])["trials_remaining"] for _ in range(2)]
        assert left == [TRIALS_PER_ADDRESS - 1, TRIALS_PER_ADDRESS - 2]
        assert f"<strong>{left[-1]} of {TRIALS_PER_ADDRESS}</strong>" in client.get("/").text


def test_previews_of_large_files_and_of_pages(site: Running) -> None:
    large = {"file": ("a.png", sample("png") + bytes(5 * MIB + 1))}
    with signed_in(site, site.account(credits=1)) as client:
        assert client.post("/try/preview", files=large).status_code == 200
        pages = {"file": ("a.pdf", document("pages", 3))}
        several = client.post("/try/preview", files=pages, data={"pages": "2-3"})
        assert len(ZipFile(io.BytesIO(several.content)).namelist()) == 2
        single = client.post("/try/preview", files=pages, data={"pages": "3"})
        assert max(Image.open(io.BytesIO(single.content)).size) == 1000
        for wrong in ("1-13", "3-2", "all", "0"):
            refused = client.post("/try/preview", files=pages, data={"pages": wrong})
            problem(refused, 400, "invalid_parameter", param="pages", details={"max": 12})
        assert "1 credit<" in client.get("/").text


def test_each_tool_has_a_page_and_runs_from_it(site: Running) -> None:
    start = http.get(site.url).text
    tools = load_registry().tools
    assert set(re.findall(r'href="(/tools/[^"]+)"', start)) == {tool_page(tool) for tool in tools.values()}
    assert tool_page(tools["pdf-merge"]) == "/tools/merge-pdf"
    for tool in tools.values():
        page = http.get(site.url + tool_page(tool))
        assert f"<h1>{tool.title}</h1>" in page.text.replace("&#x27;", "'")
        assert tool.words
    assert http.get(f"{site.url}/tools/none-pdf").status_code == 404
    files = [("files[]", (f"{name}.pdf", document(name, 2))) for name in ("a", "b")]
    made = http.post(f"{site.url}/try/tools/pdf-merge", files=files, headers={"Origin": site.url})
    assert len(pikepdf.open(io.BytesIO(made.content)).pages) == 4
    assert json.loads(made.headers["X-Result"])["trials_remaining"] == TRIALS_PER_ADDRESS - 1
    by_url = {"urls": '["http://127.0.0.1/a.pdf"]'}
    refused = http.post(f"{site.url}/try/tools/pdf-merge", files=files, data=by_url, headers={"Origin": site.url})
    problem(refused, 400, "invalid_parameter", reason="unknown_parameter")


def test_files_of_the_account(site: Running) -> None:
    with signed_in(site, site.account(credits=2)) as client, signed_in(site, site.account()) as other:
        ids = [json.loads(converted(client).headers["X-Result"])["file_id"] for _ in range(2)]
        path = f"/dashboard/files/{ids[0]}"
        preview, result = client.get(f"{path}/preview"), client.get(f"{path}/download")
        assert Image.open(io.BytesIO(preview.content)).format == "WEBP"
        assert result.content == converted_by_api(site)
        for end in ("preview", "download"):
            assert other.get(f"{path}/{end}").status_code == 404
        chosen = dict.fromkeys(ids, "on")
        assert ZipFile(io.BytesIO(client.post("/dashboard/files/zip", data=chosen).content)).testzip() is None
        assert other.post("/dashboard/files/delete", data=chosen).status_code == 404
        assert client.post("/dashboard/files/zip", data={}).status_code == 400
        assert client.post("/dashboard/files/delete", data={ids[0]: "on"}).status_code == 303
        assert re.findall(r'name="(file_\w+)"', client.get("/dashboard/files").text) == [ids[1]]


def converted_by_api(site: Running) -> bytes:
    return site.convert(sample("png"), "jpeg").content


@pytest.mark.long
def test_pages_for_search_engines_and_agents(site: Running) -> None:
    sitemap = http.get(f"{site.url}/sitemap.xml").text
    root = sitemap.partition("<loc>")[2].partition("/</loc>")[0]
    listed = re.findall(f"<loc>{root}(/[^<]*)</loc>", sitemap)
    assert "/tools/merge-pdf" in listed
    assert not any(http.head(site.url + path).status_code != 200 for path in listed if "/options/" in path)
    assert f"]({root}/docs/convert)" in http.get(f"{site.url}/llms.txt").text


def test_files_about_the_site(site: Running, servers: Servers, data_dir: Path) -> None:
    assert http.get(f"{site.url}/manifest.webmanifest").json()["icons"][0]["src"].startswith("/static/mark.svg")
    assert "Contact: mailto:help@example.com\n" in http.get(f"{site.url}/.well-known/security.txt").text
    collection = http.get(f"{site.url}/postman.json")
    assert collection.headers["Content-Type"] == "application/json"
    assert collection.json()["info"]["name"] == "convertd"
    with servers.running(data_dir) as anonymous:
        assert http.get(f"{anonymous.url}/.well-known/security.txt").status_code == 404
    page = http.get(f"{site.url}/tools/ocr-pdf").text
    assert re.search('<link rel="canonical" href="http://[^/"]+/tools/ocr-pdf">', page)
    assert '<meta property="og:title" content="OCR - convertd">' in page
