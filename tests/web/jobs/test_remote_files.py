"""Jobs whose files the server fetches, and whose results it sends elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.tables import ledger_audit
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Receiver, reply

ASYNC = {"Prefer": "respond-async"}


@pytest.fixture(scope="module")
def running(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server with one slot for jobs."""
    folder: Path = tmp_path_factory.mktemp("jobs")
    settings: dict[str, Any] = {"rate_limit_free": 10_000, "url_allow": ["127.0.0.2"], "workers": 1}
    with servers.running(folder, **settings) as server:
        yield server


@pytest.fixture
def place() -> Iterator[Receiver]:
    with Receiver(reply(200, image()), "127.0.0.2") as server:
        yield server


def submit(server: Running, key: str, path: str = "/convert", **body: Any) -> Any:
    fields = {"output_format": "png", **body} if path == "/convert" else body
    response = server.request("POST", path, key, json=fields, headers=ASYNC)
    assert response.status_code == 202, response.text
    return response.json()["data"]


def ended(server: Running, key: str, job: Any) -> Any:
    path = f"/jobs/{job['job_id']}"
    return server.request("GET", path, key, headers={"Prefer": "wait=30"}).json()["data"]


def credits(server: Running, key: str) -> int:
    assert server.database.run_blocking(ledger_audit.check) == ()
    return int(server.request("GET", "/account", key).json()["data"]["credits_remaining"])


def test_a_job_fetches_its_file(running: Running, place: Receiver) -> None:
    key = running.account()
    job = submit(running, key, url=f"{place.url}/a.jpg", url_headers={"X-Own": "1"}, width=9)
    assert (job["input_format"], job["output_format"]) == (None, "png")
    done = ended(running, key, job)
    assert (done["status"], done["input_format"]) == ("completed", "jpeg")
    assert (done["result"]["original_name"], done["result"]["width"]) == ("a.jpg", 9)
    assert (place.requests[0].headers["x-own"], credits(running, key)) == ("1", 49)
    place.respond = reply(200, document("one", 1))
    merged = ended(running, key, submit(running, key, "/pdf/merge", urls=[place.url] * 2))
    assert (merged["status"], merged["result"]["page_count"]) == ("completed", 2)
    assert eventually(lambda: running.work_files() == [])


def test_a_job_fails_as_the_request_would(running: Running, place: Receiver) -> None:
    key = running.account()
    place.respond = reply(404)
    failed = ended(running, key, submit(running, key, url=place.url))
    assert failed["status"] == "failed"
    expected = {"code": "invalid_parameter", "param": "url", "reason": "http_status", "details": {"status": 404}}
    assert expected.items() <= failed["error"].items()
    place.respond = reply(302, location="http://127.0.0.1:9/")
    assert ended(running, key, submit(running, key, url=place.url))["error"]["reason"] == "forbidden_address"
    place.respond = reply(200, content_length=str(1 << 40))
    assert ended(running, key, submit(running, key, url=place.url))["error"]["code"] == "file_too_large"
    place.respond = reply(200, b"\0words")
    assert ended(running, key, submit(running, key, url=place.url))["error"]["code"] == "invalid_file_type"
    place.respond = reply(200, image())
    pair = ended(running, key, submit(running, key, url=place.url, output_format="epub"))
    assert pair["error"]["code"] == "unsupported_conversion"
    assert credits(running, key) == 50


def test_what_is_known_is_refused_at_once(running: Running, place: Receiver) -> None:
    key = running.account()
    for fields in ({"url": "http://127.0.0.1/"}, {"url": "x"}, {"url": place.url, "export_url": "http://10.0.0.1/"}):
        body = {"output_format": "png", **fields}
        problem(running.request("POST", "/convert", key, json=body, headers=ASYNC), 400, "invalid_parameter")
    body = {"output_format": "nef", "url": place.url}
    problem(running.request("POST", "/convert", key, json=body, headers=ASYNC), 400, "unsupported_conversion")
    poor = running.account(credits=0)
    body = {"output_format": "png", "url": place.url}
    problem(running.request("POST", "/convert", poor, json=body, headers=ASYNC), 402, "no_credits")
    assert (place.connections, credits(running, key)) == (0, 50)


def test_a_slow_file_delays_no_other_job(running: Running, place: Receiver) -> None:
    key, other = running.account(), running.account()
    place.respond = place.hang
    slow = submit(running, key, url=place.url)
    assert eventually(lambda: len(place.requests) == 1)
    files = {"file": ("photo.jpg", image()), "output_format": (None, "png")}
    quick = running.request("POST", "/convert", other, files=files, headers=ASYNC).json()["data"]
    assert ended(running, other, quick)["status"] == "completed"
    assert running.request("DELETE", f"/jobs/{slow['job_id']}", key).json()["data"]["status"] == "cancelled"
    assert eventually(lambda: running.work_files() == [])
    assert credits(running, key) == 50


def test_the_result_of_a_job_is_sent(running: Running, place: Receiver) -> None:
    key = running.account()
    done = ended(running, key, submit(running, key, url=place.url, export_url=f"{place.url}/out"))
    result = running.request("GET", f"/files/{done['result']['file_id']}/download", key).content
    assert (place.requests[1].method, place.requests[1].path, place.requests[1].body) == ("PUT", "/out", result)
    place.respond = reply(403)
    content = {"file": ("photo.jpg", image()), "output_format": (None, "png"), "export_url": (None, place.url)}
    job = running.request("POST", "/convert", key, files=content, headers=ASYNC).json()["data"]
    error = ended(running, key, job)["error"]
    assert (error["code"], error["reason"], error["details"]) == ("processing_failed", "export_failed", {"status": 403})
    assert credits(running, key) == 49
