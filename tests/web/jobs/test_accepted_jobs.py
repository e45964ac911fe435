"""Requests that are accepted as jobs: which ones, what is checked and answered, and how their ends are announced."""

import json
from typing import Any

import pytest

from engine.errors import CorruptInput
from engine.executor import Executor
from storage.tables.models import Job
from storage.tables.webhook_models import Delivery
from tests.support.executors.fake import EndlessExecutor, FailingExecutor
from tests.support.requests.jobs import ASYNC, Site
from tests.support.samples.certificates import pkcs12_file
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document

RECEIVER = "https://receiver.invalid/hook"


def test_a_request_is_processed_in_the_background(site: Site) -> None:
    response = site.post(ASYNC, output_format="JPG", tag="mine", quality="30")
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
    assert content == site.post(output_format="jpeg", quality="30").content
    assert site.credits() == (48, 0)
    usage = site.send("GET", "/account/usage").json()["data"]
    assert (usage["total_conversions"], usage["by_operation"]["convert"], usage["credits_used"]) == (2, 2, 2)


@pytest.mark.parametrize("path", ["/convert", "/convert/json"])
def test_a_client_waits_for_the_end(site: Site, path: str) -> None:
    job = site.submit(path, 200, headers={"Prefer": "wait=60, Respond-Async"})
    assert (job["status"], job["result"]["output_format"]) == ("completed", "png")
    assert job["download_url"] == job["result"]["download_url"]  # as in a response to a request that is no job
    site.executor.executor = EndlessExecutor()
    assert site.submit(path, headers={"Prefer": 'respond-async; x, wait="1"'})["status"] in ("queued", "processing")


@pytest.mark.parametrize(("height", "blobs"), [(48, 0), (96, 1)])
def test_small_files_need_no_blob(site: Site, height: int, blobs: int) -> None:
    form: Any = {"files": {"file": ("a.bmp", image("BMP", (64, height)))}, "data": {"output_format": "png"}}
    site.executor.executor = EndlessExecutor()
    waiting = site.send("POST", "/convert", **form, headers=ASYNC).json()["data"]
    assert len([blob for blob in site.blobs() if blob.startswith(waiting["job_id"])]) == blobs
    site.end(waiting)

    site.executor.executor = site.usual
    ended = site.send("POST", "/convert", **form, headers={"Prefer": "respond-async, wait=60"}).json()["data"]
    made = site.send("GET", ended["download_url"].removeprefix("/api/v1")).content
    assert made == site.send("POST", "/convert", **form).content


def test_only_requests_that_ask_for_it_are_jobs(site: Site) -> None:
    for preference in ("wait=10", "return=minimal", "respond-async-not", ""):
        response = site.post({"Prefer": preference}, tag="x")
        assert (response.status_code, response.headers["Content-Type"]) == (200, "image/png")
        assert "Preference-Applied" not in response.headers
    dry = site.submit(dry_run="true", status=200)
    assert (dry["output_format"], dry["credits"]) == ("png", 1)
    assert site.send("GET", "/jobs").json()["data"] == {"jobs": [], "next_cursor": None}


def test_a_webhook_makes_a_job(site: Site) -> None:
    response = site.post(webhook_url="https://app.example/hook?a=b")
    assert (response.status_code, "Preference-Applied" in response.headers) == (202, False)
    assert response.json()["data"]["webhook_url"] == "https://app.example/hook?a=b"
    assert site.get(response.json()["data"], wait=60)["status"] == "completed"


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://example.com/", "example.com", "https://", "https://a b/", "https://a:b@c/", 5),
        *("http://127.0.0.1/hook", "http://[::1]/", "http://169.254.169.254/latest", "https://2130706433/"),
    ],
)
def test_malformed_and_forbidden_webhook_urls_are_refused(site: Site, url: object) -> None:
    stored = site.server.upload(image(), key=site.key)
    body = {"output_format": "png", "webhook_url": url}
    refused = site.send("POST", f"/files/{stored['file_id']}/convert", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "webhook_url")


@pytest.mark.parametrize("tag", ["", "x" * 101, "a\nb"])
def test_malformed_tags_are_refused(site: Site, tag: str) -> None:
    refused = site.post(ASYNC, tag=tag)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tag")


def test_everything_is_checked_before_a_job_is_accepted(site: Site) -> None:
    def refused(**changes: Any) -> tuple[int, str]:
        request = {"files": {"file": ("a.jpg", image())}, "data": {"output_format": "png"}, **changes}
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
    done = site.get(merged.json()["data"], wait=60)
    assert (done["operation"], done["status"], done["result"]["filename"]) == ("pdf_merge", "completed", "merged.pdf")

    stored = site.server.upload(image(), key=site.key)
    for again in (False, True):
        path = f"/files/{stored['file_id']}/convert"
        accepted = site.send("POST", path, json={"output_format": "webp", "tag": "t"}, headers=ASYNC)
        done = site.get(accepted.json()["data"], wait=60)
        assert (done["status"], done["result"]["file_id"] == stored["file_id"]) == ("completed", not again)
        assert site.end(done)["deleted"]
    assert site.send("GET", f"/files/{stored['file_id']}").json()["data"]["status"] == "processed"
    assert site.credits() == (47, 0)


def test_the_same_request_gets_the_same_job(site: Site) -> None:
    site.executor.executor = EndlessExecutor()
    headers = {"Idempotency-Key": "once"}
    job = site.submit(headers=headers)
    response = site.post({**headers, **ASYNC})
    assert (response.status_code, response.headers["Idempotency-Replayed"]) == (202, "true")
    assert (response.json()["data"], response.headers["Location"]) == (job, f"/api/v1/jobs/{job['job_id']}")
    site.submit(headers=headers, status=202)
    for changes in ({"tag": "other"}, {"output_format": "webp"}):
        assert site.post({**headers, **ASYNC}, **changes).status_code == 422
    assert site.credits() == (49, 1)
    assert len(site.send("GET", "/jobs").json()["data"]["jobs"]) == 1


def messages(site: Site) -> list[tuple[str, str | None, Any]]:
    """The event, the webhook and the job of each message of the account."""
    account = site.account_id()
    found = site.server.database.run_blocking(
        lambda transaction: transaction.all(Delivery.select().where(Delivery.account == account))
    )
    return [(row.event, row.webhook, json.loads(row.body)["data"]) for row in found]


@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_each_end_is_announced_once(site: Site, status: str) -> None:
    webhook = site.send("POST", "/webhooks", json={"url": RECEIVER}).json()["data"]
    executors: dict[str, Executor] = {"failed": FailingExecutor(CorruptInput("broken")), "cancelled": EndlessExecutor()}
    site.executor.executor = executors.get(status, site.usual)
    job = site.submit(webhook_url=RECEIVER, headers=ASYNC)
    ended = site.end(job) if status == "cancelled" else site.get(job, wait=60)
    ended.pop("deleted", None)
    sent = messages(site)
    assert {(event, hook) for event, hook, _ in sent} == {
        (f"job.{status}", None),
        (f"job.{status}", webhook["webhook_id"]),
    }
    assert len(sent) == 2
    assert [data for _, _, data in sent] == [ended, ended]


def test_requests_that_are_no_jobs_are_not_announced(site: Site) -> None:
    site.send("POST", "/webhooks", json={"url": RECEIVER})
    assert site.server.convert(b"no picture").status_code == 400
    assert messages(site) == []


def test_messages_are_erased_with_their_job(site: Site) -> None:
    """Also one that is still to be delivered. It is a job with all its fields."""
    jobs = [site.get(site.submit(webhook_url=RECEIVER, tag="mine"), wait=60) for _ in range(2)]
    database, table = site.server.database, Delivery
    delivered = table.update(next_attempt_at=None).where(table.job == jobs[0]["job_id"])
    database.run_blocking(lambda transaction: transaction.execute(delivered))
    for job in jobs:
        assert site.end(job)["deleted"]
    found = {data["job_id"]: data for _, _, data in messages(site)}
    erased = {"result": None, "error": None, "tag": None, "webhook_url": None}
    assert found == {job["job_id"]: {**job, **erased} for job in jobs}


def test_a_key_is_forgotten_when_its_job_ends(site: Site) -> None:
    files = {"file": ("a.pdf", document("A", 1)), "certificate": ("jane.p12", pkcs12_file("Jane", "secret"))}
    form = {"certificate_password": "secret"}

    sent = site.send("POST", "/pdf/sign", files=files, data=form, headers={"Prefer": "respond-async, wait=60"})

    assert sent.status_code == 200, sent.text
    job = sent.json()["data"]
    assert (job["status"], job["operation"]) == ("completed", "pdf_sign")
    assert [blob for blob in site.blobs() if blob.startswith(job["job_id"])] == []
    rows = site.server.database.run_blocking(
        lambda transaction: transaction.all(Job.select().where(Job.job_id == job["job_id"]))
    )
    assert [row.request for row in rows] == [None]
