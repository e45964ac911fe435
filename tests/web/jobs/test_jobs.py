"""Jobs: how they end, are waited for, listed, cancelled and deleted."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine.errors import CorruptInput, StepFailed, TimedOut, WorkerCrashed
from storage.database import Database, Transaction
from storage.tables import jobs as jobs_table
from storage.tables import models
from storage.tables import servers as server_rows
from storage.tables.jobs import MAX_UNFINISHED
from storage.tables.ledger import FOREVER, ServerInstance
from tests.support.executors.fake import EndlessExecutor, FailingExecutor, SwitchedExecutor
from tests.support.requests import http
from tests.support.requests.account_requests import signed_in
from tests.support.requests.jobs import ASYNC, Site
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Servers, eventually


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


def test_jobs_are_cancelled_on_the_dashboard(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    jobs = [site.submit() for _ in range(3)]
    with signed_in(site.server, site.key) as client:
        assert "queued, 0 ahead" in client.get("/dashboard/jobs").text
        for job in jobs:
            assert client.post(f"/dashboard/jobs/{job['job_id']}/cancel").status_code == 303
    assert [site.get(job)["status"] for job in jobs] == ["cancelled"] * 3


def test_a_job_of_the_same_process_is_killed_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check for jobs that other servers have cancelled."""
    endless = site.executor.executor = EndlessExecutor()
    site.get(site.submit(), wait=0)
    monkeypatch.setattr("web.services.jobs.job_runner.INTERVAL", 3600.0)
    job = site.submit()
    assert eventually(lambda: endless.running == 2)
    site.end(job)
    assert eventually(lambda: endless.cancelled == 1)


def test_a_run_ends_when_its_job_was_claimed_again(site: Site) -> None:
    """Even by the same server: only the latest run of a job can end it."""
    endless = site.executor.executor = EndlessExecutor()
    job = site.submit()
    assert eventually(lambda: endless.running == 1)
    own = models.Job.job_id == job["job_id"]
    change = models.Job.update(fence=models.Job.fence + 1).where(own)
    site.server.database.run_blocking(lambda transaction: transaction.execute(change))
    assert eventually(lambda: endless.cancelled == 1)
    assert site.get(job)["status"] == "processing"


def test_the_next_job_of_an_account_starts_when_one_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the check for jobs that wait: slots are free, but the account runs as many jobs as it may."""
    monkeypatch.setattr("web.services.jobs.job_runner.INTERVAL", 3600.0)
    endless = site.executor.executor = EndlessExecutor()
    jobs = [site.submit() for _ in range(3)]
    assert eventually(lambda: endless.running == 2)
    site.end(jobs[0])
    assert eventually(lambda: site.get(jobs[2])["status"] == "processing")


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
    for query in ("limit=0", "limit=101", "limit=x", "status=done", "cursor=x", "cursor=-1"):
        assert site.send("GET", f"/jobs?{query}").status_code == 400
    stranger = site.server.account()
    for method in ("GET", "DELETE"):
        assert site.server.request(method, f"/jobs/{ids[0]}", stranger).status_code == 404
    assert site.server.request("GET", f"/jobs/{ids[0]}/events", stranger).status_code == 404
    assert site.server.request("GET", "/jobs", stranger).json()["data"]["jobs"] == []


def test_a_failed_job_is_not_charged(site: Site) -> None:
    site.executor.executor = FailingExecutor(CorruptInput("The image is broken."))
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


def change(site: Site, job: Any, **values: Any) -> int:
    """Changes the row of a job that runs. Returns the number of such jobs."""
    table = models.Job
    query = table.update(**values).where((table.job_id == job["job_id"]) & (table.status == "processing"))
    return site.server.database.run_blocking(lambda transaction: transaction.execute(query))


@pytest.mark.parametrize("alone", [3600.0, 0.0])
@pytest.mark.long
def test_the_second_job_to_die_with_its_server_fails(site: Site, alone: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first time, it waits until no other job runs. For some seconds, none is started beside it."""
    monkeypatch.setattr("web.services.jobs.job_runner.ALONE", alone)
    endless = site.executor.executor = EndlessExecutor()
    poison, other = site.submit(), site.submit()
    assert eventually(lambda: endless.running == 2)
    assert change(site, poison, server="dead", lease_until=0)
    assert eventually(lambda: endless.cancelled == 1)
    assert eventually(lambda: site.get(poison)["status"] == "queued")
    assert site.get(poison, wait=1)["status"] == "queued"
    site.end(other)
    assert eventually(lambda: endless.running == 1 and site.get(poison)["status"] == "processing")
    assert site.credits() == (49, 1)
    another = site.submit()
    assert site.get(another, wait=1)["status"] == ("queued" if alone else "processing")
    assert change(site, poison, server="dead", lease_until=0)
    ended = site.get(poison, wait=60)
    assert (ended["status"], ended["attempts"], ended["error"]["reason"]) == ("failed", 2, "worker_crashed")
    assert eventually(lambda: site.get(another)["status"] == "processing")
    assert site.credits() == (49, 1)


def test_a_lost_run_that_fails_leaves_the_files_to_the_next_one(site: Site) -> None:
    usual, accepted = site.usual, threading.Event()

    class LosesFirstRun(SwitchedExecutor):
        async def run(self, *args: Any, **kwargs: Any) -> Any:
            site.executor.executor = usual
            assert await asyncio.to_thread(lambda: accepted.wait(60) and change(site, job, server="another", fence=9))
            raise CorruptInput("The image is broken.")

    site.executor.executor = LosesFirstRun(usual)
    files = {"file": ("large.bmp", image("BMP", (200, 100)))}  # not saved in the row
    job = site.send("POST", "/convert", files=files, data={"output_format": "png"}, headers=ASYNC).json()["data"]
    accepted.set()
    assert eventually(lambda: site.executor.executor is usual)
    assert eventually(lambda: site.get(job)["status"] == "processing" and change(site, job, lease_until=0) == 1)
    ended = site.get(job, wait=60)
    assert (ended["status"], ended["attempts"]) == ("completed", 2)


@pytest.mark.long
def test_after_an_outage_other_servers_can_give_a_sign_of_life_first(
    site: Site, servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_rows, "TIMEOUT", 4)
    monkeypatch.setattr(server_rows, "INTERVAL", 0.5)
    another, table, database = ServerInstance("another", "boot"), models.Server, site.server.database
    endless = site.executor.executor = EndlessExecutor()
    job = site.submit()
    assert eventually(lambda: endless.running == 1)

    def be_away() -> None:
        database.run_blocking(server_rows.beat, another)
        database.run_blocking(Transaction.execute, table.update(alive_at=0).where(table.name == "another"))
        assert change(site, job, server="another", boot="boot") == 1
        time.sleep(3)

    def beats(since: float) -> bool:
        own = table.select().where((table.name != "another") & (table.alive_at >= since))
        return bool(database.run_blocking(Transaction.rows, own))

    servers.block(be_away)
    back = int(time.time())
    assert eventually(lambda: beats(back))
    database.run_blocking(server_rows.beat, another)
    assert eventually(lambda: beats(back + 2))
    assert (site.get(job)["status"], site.get(job)["attempts"]) == ("processing", 1)
    lease = models.Job.select(models.Job.lease_until).where(models.Job.job_id == job["job_id"])
    assert database.run_blocking(Transaction.rows, lease) == [(FOREVER,)]
    database.run_blocking(Transaction.execute, table.update(alive_at=0).where(table.name == "another"))
    assert eventually(lambda: site.get(job)["attempts"] == 2 or site.get(job)["status"] == "queued")


def test_an_account_has_at_most_a_thousand_jobs(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    account, lane = site.account_id(), models.Lane
    site.submit()

    def wait_more(transaction: Any, count: int) -> None:
        transaction.execute(lane.update(waiting=lane.waiting + count).where(lane.account == account))

    site.server.database.run_blocking(wait_more, MAX_UNFINISHED - 1)
    try:
        response = site.send(
            "POST", "/convert", files={"file": ("a.jpg", image())}, data={"output_format": "png"}, headers=ASYNC
        )
    finally:
        site.server.database.run_blocking(wait_more, 1 - MAX_UNFINISHED)
    assert (response.status_code, response.json()["error"]["reason"]) == (429, "queue_full")
    assert int(response.headers["Retry-After"]) >= 1
    assert site.credits() == (49, 1)


def test_a_batch_is_a_job_with_progress(site: Site) -> None:
    batch = site.send("POST", "/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
    files = [site.server.upload(image(), path=f"/batch/{batch}/files", key=site.key)["file_id"] for _ in range(3)]
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
    contents = [sample("png")[:100], *[image()] * 4]  # the first one is damaged
    path = f"/batch/{batch}/files"
    files = [site.server.upload(content, path=path, key=site.key)["file_id"] for content in contents]
    body = {"output_format": "webp", "file_ids": ["file_unknown", *files]}
    job = site.send("POST", f"/batch/{batch}/convert", json=body, headers=ASYNC).json()["data"]
    results = site.get(job, wait=60)["result"]["results"]
    assert sum(entry["status"] == "success" for entry in results) == 2
    codes = [entry["error"]["code"] for entry in results if "error" in entry]
    assert codes == ["not_found", "processing_failed", "no_credits", "no_credits"]
    assert site.credits() == (0, 0)
    assert site.send("POST", f"/batch/{batch}/convert", json=body, headers=ASYNC).status_code == 402


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
    stopped = Database(f"sqlite:///{tmp_path / 'convertd.db'}")
    found = stopped.run_blocking(jobs_table.read_all, [job["job_id"] for job in jobs])
    stopped.close()
    assert {(job.status, job.attempts) for job in found} == {("queued", 0)}  # another server need not wait
    with servers.running(tmp_path) as server:
        site = Site(server, executor)
        site.key = key
        ended = [site.get(job, wait=60) for job in jobs]
        assert [(job["status"], job["attempts"]) for job in ended] == [("completed", 1)] * 3
        assert site.credits() == (47, 0)
        assert http.get(f"{server.url}/healthz").status_code == 200
