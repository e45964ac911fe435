"""Jobs over HTTP: accepted at once, processed in the background, waited for, listed, cancelled and deleted."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.errors import CorruptInput, StepFailed, TimedOut, WorkerCrashed
from storage.tables import accounts, ledger_audit, models
from storage.tables.jobs import MAX_UNFINISHED
from tests.support.executors.fake import EndlessExecutor, FailingExecutor, SwitchedExecutor
from tests.support.requests import http
from tests.support.samples.forms import picture
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually

ASYNC = {"Prefer": "respond-async"}
ENDED = ("completed", "failed", "cancelled")


class Site:
    """A server whose executor a test replaces, with an account of 50 credits."""

    def __init__(self, server: Running, executor: SwitchedExecutor) -> None:
        self.server = server
        self.executor = executor
        self.usual = executor.executor
        self.key = server.account(50)

    def submit(self, path: str = "/convert", status: int = 202, **fields: Any) -> Any:
        """Sends a request that is to be processed in the background. Returns the job."""
        headers = {**ASYNC, **fields.pop("headers", {})}
        data = {"output_format": "png", **fields} if path.startswith("/convert") else fields
        files = {"file": ("photo.jpg", picture())}
        response = self.server.request("POST", path, self.key, data=data, files=files, headers=headers)
        assert response.status_code == status, response.text
        return response.json()["data"]

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.server.request(method, path, self.key, **options)

    def get(self, job: Any, wait: int | None = None) -> Any:
        headers = {} if wait is None else {"Prefer": f"wait={wait}"}
        response = self.send("GET", f"/jobs/{job['job_id']}", headers=headers)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def end(self, job: Any) -> Any:
        return self.send("DELETE", f"/jobs/{job['job_id']}").json()["data"]

    def credits(self) -> tuple[int, int]:
        """The credits of the account that are left, and those that are held."""
        found = self.server.database.run_blocking(accounts.get, self.account_id())
        return found.credits_remaining, found.credits_held

    def account_id(self) -> str:
        email = self.send("GET", "/account").json()["data"]["email"]
        account = self.server.database.run_blocking(accounts.find, email)
        assert account is not None
        return account.id

    def blobs(self) -> set[str]:
        return {path.name for path in (self.server.data_dir / "blobs").iterdir()}


@pytest.fixture(scope="module")
def running(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    executor = SwitchedExecutor(servers.executor)
    # Of four slots, jobs may use two while requests come, as many as an account may.
    settings: dict[str, Any] = {"rate_limit_free": 10_000, "rate_limit_paid": 10_000, "workers": 4}
    with servers.running(tmp_path_factory.mktemp("jobs"), executor, **settings) as server:
        yield Site(server, executor)


@pytest.fixture
def site(running: Site) -> Iterator[Site]:
    site = Site(running.server, running.executor)
    yield site
    site.executor.executor = running.usual
    for job in site.send("GET", "/jobs?limit=100").json()["data"]["jobs"]:
        if job["status"] not in ENDED:
            site.end(job)
    assert eventually(lambda: not [blob for blob in site.blobs() if blob.startswith("job_")])
    assert site.credits()[1] == 0
    assert site.server.database.run_blocking(ledger_audit.check) == ()


def test_a_request_is_processed_in_the_background(site: Site) -> None:
    response = site.send(
        "POST",
        "/convert",
        files={"file": ("photo.jpg", picture())},
        data={"output_format": "JPG", "tag": "mine", "quality": "30"},
        headers=ASYNC,
    )
    job = response.json()["data"]
    assert (response.status_code, response.headers["Preference-Applied"]) == (202, "respond-async")
    assert response.headers["Location"] == f"/api/v1/jobs/{job['job_id']}"
    assert (job["status"], job["operation"], job["tag"], job["progress"]) == ("queued", "convert", "mine", None)
    assert (job["input_format"], job["output_format"], job["position"]) == ("jpeg", "jpeg", 0)

    ended = site.get(job, wait=60)
    assert (ended["status"], ended["attempts"], ended["progress"], ended["error"]) == ("completed", 1, 1.0, None)
    assert ended["created_at"] <= ended["started_at"] <= ended["finished_at"] < ended["expires_at"]
    content = site.send("GET", ended["result"]["download_url"].removeprefix("/api/v1")).content
    assert (len(content), ended["result"]["filename"]) == (ended["result"]["processed_size"], "photo.jpg")
    same = site.send(
        "POST", "/convert", files={"file": ("photo.jpg", picture())}, data={"output_format": "jpeg", "quality": "30"}
    )
    assert content == same.content
    assert site.credits() == (48, 0)
    usage = site.send("GET", "/account/usage").json()["data"]
    assert (usage["total_conversions"], usage["by_operation"]["convert"], usage["credits_used"]) == (2, 2, 2)


@pytest.mark.parametrize("path", ["/convert", "/convert/json"])
def test_a_client_waits_for_the_end(site: Site, path: str) -> None:
    job = site.submit(path, 200, headers={"Prefer": "wait=60, Respond-Async"})
    assert (job["status"], job["result"]["output_format"]) == ("completed", "png")
    assert job["download_url"] == job["result"]["download_url"]  # as in a response to a request that is no job
    site.executor.executor = EndlessExecutor()
    assert site.submit(path, 202, headers={"Prefer": 'respond-async; x, wait="1"'})["status"] in (
        "queued",
        "processing",
    )


def test_only_requests_that_ask_for_it_are_jobs(site: Site) -> None:
    for preference in ("wait=10", "return=minimal", "respond-async-not", ""):
        response = site.send(
            "POST",
            "/convert",
            files={"file": ("photo.jpg", picture())},
            data={"output_format": "png", "tag": "x"},
            headers={"Prefer": preference},
        )
        assert (response.status_code, response.headers["Content-Type"]) == (200, "image/png")
        assert "Preference-Applied" not in response.headers
    dry = site.submit(dry_run="true", status=200)
    assert (dry["output_format"], dry["credits"]) == ("png", 1)
    assert site.send("GET", "/jobs").json()["data"] == {"jobs": [], "next_cursor": None}


def test_a_webhook_makes_a_job(site: Site) -> None:
    response = site.send(
        "POST",
        "/convert",
        files={"file": ("photo.jpg", picture())},
        data={"output_format": "png", "webhook_url": "https://example.com/hook?a=b"},
    )
    assert (response.status_code, "Preference-Applied" in response.headers) == (202, False)
    assert response.json()["data"]["webhook_url"] == "https://example.com/hook?a=b"
    assert site.get(response.json()["data"], wait=60)["status"] == "completed"


@pytest.mark.parametrize("url", ["ftp://example.com/", "example.com", "https://", "https://a b/", "https://a:b@c/", 5])
def test_malformed_webhook_urls_are_refused(site: Site, url: object) -> None:
    stored = site.server.upload(picture(), key=site.key)
    body = {"output_format": "png", "webhook_url": url}
    refused = site.send("POST", f"/files/{stored['file_id']}/convert", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "webhook_url")


@pytest.mark.parametrize("tag", ["", "x" * 101, "a\nb"])
def test_malformed_tags_are_refused(site: Site, tag: str) -> None:
    refused = site.send(
        "POST",
        "/convert",
        files={"file": ("photo.jpg", picture())},
        data={"output_format": "png", "tag": tag},
        headers=ASYNC,
    )
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tag")


def test_everything_is_checked_before_a_job_is_accepted(site: Site) -> None:
    def refused(**changes: Any) -> tuple[int, str]:
        request = {"files": {"file": ("a.jpg", picture())}, "data": {"output_format": "png"}, **changes}
        response = site.send("POST", "/convert", headers=ASYNC, **request)
        return response.status_code, response.json()["error"]["code"]

    assert refused(data={"output_format": "xyz"}) == (400, "unsupported_conversion")
    assert refused(data={"output_format": "png", "width": "0"}) == (400, "invalid_parameter")
    assert refused(data={"output_format": "png", "unknown": "0"}) == (400, "invalid_parameter")
    assert refused(files={"file": ("a.jpg", b"no picture")}) == (400, "invalid_file_type")
    site.key = site.server.account(0)
    assert refused() == (402, "no_credits")
    assert site.send("GET", "/jobs").json()["data"]["jobs"] == []


def test_tools_stored_files_and_json_twins_make_jobs(site: Site) -> None:
    files = [("files[]", (name, sample("pdf"))) for name in ("a.pdf", "b.pdf")]
    merged = site.send("POST", "/pdf/merge", files=files, headers=ASYNC)
    assert merged.status_code == 202, merged.text
    ended = site.get(merged.json()["data"], wait=60)
    assert (ended["operation"], ended["status"], ended["result"]["filename"]) == (
        "pdf_merge",
        "completed",
        "merged.pdf",
    )

    stored = site.server.upload(picture(), key=site.key)
    for again in (False, True):
        path = f"/files/{stored['file_id']}/convert"
        accepted = site.send("POST", path, json={"output_format": "webp", "tag": "t"}, headers=ASYNC)
        ended = site.get(accepted.json()["data"], wait=60)
        assert (ended["status"], ended["result"]["file_id"] == stored["file_id"]) == ("completed", not again)
        assert site.end(ended)["deleted"]
    assert site.send("GET", f"/files/{stored['file_id']}").json()["data"]["status"] == "processed"
    assert site.credits() == (47, 0)


def test_the_same_request_gets_the_same_job(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    headers = {"Idempotency-Key": "once"}
    job = site.submit(headers=headers)
    response = site.send(
        "POST",
        "/convert",
        files={"file": ("photo.jpg", picture())},
        data={"output_format": "png"},
        headers={**headers, **ASYNC},
    )
    assert (response.status_code, response.headers["Idempotency-Replayed"]) == (202, "true")
    assert (response.json()["data"], response.headers["Location"]) == (job, f"/api/v1/jobs/{job['job_id']}")
    site.submit(headers=headers, status=202)
    for changes in ({"tag": "other"}, {"output_format": "webp"}):
        assert (
            site.send(
                "POST",
                "/convert",
                files={"file": ("photo.jpg", picture())},
                data={"output_format": "png", **changes},
                headers={**headers, **ASYNC},
            ).status_code
            == 422
        )
    assert site.credits() == (49, 1)
    assert len(site.send("GET", "/jobs").json()["data"]["jobs"]) == 1


def test_jobs_are_cancelled_while_they_wait_or_run(site: Site) -> None:
    endless = site.executor.executor = EndlessExecutor()
    jobs = [site.submit() for _ in range(4)]
    assert eventually(lambda: endless.running == 2)
    assert [site.get(job)["status"] for job in jobs] == ["processing", "processing", "queued", "queued"]
    assert [site.get(job)["position"] for job in jobs] == [None, None, 0, 1]
    assert site.credits() == (46, 4)

    cancelled = site.end(jobs[2])
    assert (cancelled["status"], cancelled["deleted"], cancelled["result"]) == ("cancelled", False, None)
    assert site.end(jobs[0])["status"] == "cancelled"
    assert eventually(lambda: endless.cancelled == 1)
    assert eventually(lambda: site.get(jobs[3])["status"] == "processing")
    assert site.credits() == (48, 2)
    assert site.end(jobs[2])["deleted"]
    assert site.send("GET", f"/jobs/{jobs[2]['job_id']}").status_code == 404
    assert site.send("DELETE", f"/jobs/{jobs[2]['job_id']}").status_code == 404


def test_an_ended_job_is_deleted_with_its_result(site: Site) -> None:
    ended = site.get(site.submit(), wait=60)
    download = ended["result"]["download_url"].removeprefix("/api/v1")
    assert site.send("GET", download).status_code == 200
    assert site.end(ended)["deleted"]
    assert site.send("GET", download).status_code == 404
    assert site.credits() == (49, 0)


def test_jobs_are_listed(site: Site) -> None:
    ended = site.get(site.submit(tag="a"), wait=60)
    site.executor.executor = EndlessExecutor()
    jobs = [ended, *(site.submit(tag=tag) for tag in ("b", "a", "b"))]

    def found(query: str) -> tuple[list[str], str | None]:
        page = site.send("GET", f"/jobs?{query}").json()["data"]
        return [job["job_id"] for job in page["jobs"]], page["next_cursor"]

    ids = [job["job_id"] for job in reversed(jobs)]
    assert found("") == (ids, None)
    first, cursor = found("limit=3")
    assert first == ids[:3]
    assert found(f"limit=3&cursor={cursor}") == (ids[3:], None)
    assert found("tag=a") == (ids[1::2], None)
    assert found("status=completed") == ([ended["job_id"]], None)
    for query in ("limit=0", "limit=101", "limit=x", "status=done", "cursor=x", "cursor=-1", "unknown=1"):
        assert site.send("GET", f"/jobs?{query}").status_code == 400
    stranger = site.server.account()
    for method in ("GET", "DELETE"):
        assert site.server.request(method, f"/jobs/{ids[0]}", stranger).status_code == 404
    assert site.server.request("GET", f"/jobs/{ids[0]}/events", stranger).status_code == 404
    assert site.server.request("GET", "/jobs", stranger).json()["data"]["jobs"] == []


def test_a_failed_job_is_not_charged(site: Site) -> None:
    site.executor.executor = FailingExecutor(CorruptInput("The picture is broken."))
    ended = site.get(site.submit(), wait=60)
    error = ended["error"]
    assert (ended["status"], ended["attempts"], ended["result"]) == ("failed", 1, None)
    assert (error["code"], error["reason"], error["retryable"]) == ("processing_failed", "corrupt_input", False)
    assert error["request_id"].startswith("req_")
    assert site.credits() == (50, 0)
    assert site.send("GET", "/account/usage").json()["data"]["failed_conversions"] == 1


@pytest.mark.parametrize(
    ("errors", "status", "reason", "attempts"),
    [
        ([WorkerCrashed("It crashed.")], "completed", None, 2),
        ([WorkerCrashed("It crashed.")] * 2, "failed", "worker_crashed", 2),
        ([OSError("A bug.")] * 2, "completed", None, 3),
        ([OSError("A bug.")] * 3, "failed", None, 3),
        ([TimedOut("It took too long.")], "failed", "timeout", 1),
        ([StepFailed("It failed.")], "failed", "engine_error", 1),
    ],
)
def test_attempts(site: Site, errors: list[Exception], status: str, reason: str | None, attempts: int) -> None:
    usual = site.usual
    failures = FailingExecutor(*errors)

    class Then(SwitchedExecutor):
        async def run(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return await failures.run(*args, **kwargs)
            except (StopIteration, RuntimeError):
                return await usual.run(*args, **kwargs)

    site.executor.executor = Then(usual)
    ended = site.get(site.submit(), wait=60)
    assert (ended["status"], ended["attempts"]) == (status, attempts)
    assert (ended["error"] or {}).get("reason") == reason
    assert site.credits() == (50 - (status == "completed"), 0)


def test_an_account_has_at_most_a_thousand_jobs(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    account, lane = site.account_id(), models.Lane
    site.submit()

    def wait_more(transaction: Any, count: int) -> None:
        transaction.execute(lane.update(waiting=lane.waiting + count).where(lane.account == account))

    site.server.database.run_blocking(wait_more, MAX_UNFINISHED - 1)
    try:
        response = site.send(
            "POST",
            "/convert",
            files={"file": ("a.jpg", picture())},
            data={"output_format": "png"},
            headers=ASYNC,
        )
    finally:
        site.server.database.run_blocking(wait_more, 1 - MAX_UNFINISHED)
    assert (response.status_code, response.json()["error"]["reason"]) == (429, "queue_full")
    assert int(response.headers["Retry-After"]) >= 1
    assert site.credits() == (49, 1)


def test_a_batch_is_a_job_with_progress(site: Site) -> None:
    batch = site.send("POST", "/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
    files = [site.server.upload(picture(), path=f"/batch/{batch}/files", key=site.key)["file_id"] for _ in range(3)]
    body = {"output_format": "webp", "file_ids": [*files, "file_unknown"], "tag": "all"}
    accepted = site.send("POST", f"/batch/{batch}/convert", json=body, headers=ASYNC)
    job = accepted.json()["data"]
    assert (accepted.status_code, job["operation"], job["progress"], job["input_format"]) == (202, "batch", 0, None)
    ended = site.get(job, wait=60)
    assert (ended["status"], ended["progress"], ended["output_format"]) == ("completed", 1.0, "webp")
    result = ended["result"]
    assert [entry["status"] for entry in result["results"]] == ["success"] * 3 + ["failed"]
    assert (result["successful"], result["failed"], result["batch_id"]) == (3, 1, batch)
    assert site.credits() == (47, 0)
    assert site.send("GET", f"/batch/{batch}").json()["data"]["status"] == "completed"


def test_a_batch_is_converted_for_the_credits_there_are(site: Site) -> None:
    site.key = site.server.account(2)
    batch = site.send("POST", "/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
    files = [site.server.upload(picture(), path=f"/batch/{batch}/files", key=site.key)["file_id"] for _ in range(4)]
    body = {"output_format": "webp", "file_ids": ["file_unknown", *files]}
    job = site.send("POST", f"/batch/{batch}/convert", json=body, headers=ASYNC).json()["data"]
    results = site.get(job, wait=60)["result"]["results"]
    assert sum(entry["status"] == "success" for entry in results) == 2
    assert [entry["error"]["code"] for entry in results if "error" in entry] == [
        "not_found",
        "no_credits",
        "no_credits",
    ]
    assert site.credits() == (0, 0)
    refused = site.send("POST", f"/batch/{batch}/convert", json=body, headers=ASYNC)
    assert refused.status_code == 402


def events(site: Site, job: Any) -> Iterator[Any]:
    """The jobs of an event stream."""
    url, auth = f"{site.server.api}/jobs/{job['job_id']}/events", {"Authorization": f"Bearer {site.key}"}
    with httpx.stream("GET", url, headers=auth, timeout=60) as response:
        assert response.headers["Content-Type"] == "text/event-stream"
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_changes_are_sent_as_events(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    jobs = [site.submit() for _ in range(3)]
    stream = events(site, jobs[2])
    assert next(stream)["status"] == "queued"
    site.end(jobs[0])
    assert next(stream)["status"] == "processing"
    site.end(jobs[2])
    assert [job["status"] for job in stream] == ["cancelled"]
    assert [job["status"] for job in events(site, jobs[2])] == ["cancelled"]


def test_waiting_clients_need_no_threads(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    job = site.submit()
    auth, url = {"Authorization": f"Bearer {site.key}"}, f"{site.server.api}/jobs/{job['job_id']}"
    before = threading.active_count()
    assert before < 100
    with httpx.Client(limits=httpx.Limits(max_connections=40), timeout=60, headers=auth) as client:
        streams = [client.stream("GET", f"{url}/events") for _ in range(40)]
        opened = [stream.__enter__() for stream in streams]
        assert {response.status_code for response in opened} == {200}
        assert threading.active_count() <= before + 2
        started = time.monotonic()
        site.end(job)
        ends = [[line for line in response.iter_lines() if line.startswith("data: ")][-1] for response in opened]
        assert {json.loads(line.removeprefix("data: "))["status"] for line in ends} == {"cancelled"}
        assert time.monotonic() - started < 30
        for stream in streams:
            stream.__exit__(None, None, None)


def test_jobs_of_a_server_that_stops_are_run_by_the_next_one(servers: Servers, tmp_path: Path) -> None:
    executor = SwitchedExecutor(EndlessExecutor())
    with servers.running(tmp_path, executor) as server:
        site = Site(server, executor)
        jobs = [site.submit() for _ in range(3)]
        assert eventually(lambda: site.get(jobs[0])["status"] == "processing")
        key = site.key
    with servers.running(tmp_path) as server:
        site = Site(server, executor)
        site.key = key
        ended = [site.get(job, wait=60) for job in jobs]
        assert [(job["status"], job["attempts"]) for job in ended] == [("completed", 1)] * 3
        assert site.credits() == (47, 0)
        assert http.get(f"{server.url}/healthz").status_code == 200
