"""The ends of jobs are announced to webhooks, in the transaction that ends them."""

import json
from typing import Any

import pytest

from engine.errors import CorruptInput
from engine.executor import Executor
from storage.tables.webhook_models import Delivery
from tests.support.executors.fake import EndlessExecutor, FailingExecutor
from tests.support.requests.jobs import ASYNC, Site

RECEIVER = "https://receiver.invalid/hook"


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
