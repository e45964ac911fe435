"""Messages: what is sent, about which jobs, when again, and to whom beside each other."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from storage.errors import TooManyRotations
from storage.tables import deliveries, receivers, webhooks
from storage.tables.receivers import MAX_FAILING, MAX_FAILURES, PAUSE
from storage.tables.webhooks import EVENTS
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.storage import OWNER, lose, open_account
from tests.support.servers.in_process import Running, eventually
from tests.support.servers.receiver import Received, Receiver, Send, reply
from tests.support.servers.webhook_sender import WebhookSender
from web.services.webhooks.deliveries import CAPACITY, CONCURRENCY

PNG = {"output_format": "png"}


@pytest.fixture
def account(sender: WebhookSender) -> str:
    return open_account(sender.database).id


def verified(request: Received, secret: str) -> object:
    return Webhook(secret).verify(request.body, dict(request.headers))


async def test_all_valid_secrets_sign_a_message(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    issued = sender.database.run_blocking(webhooks.add, account, f"{receiver.url}/hook", EVENTS)
    second = sender.database.run_blocking(webhooks.replace_secret, issued.webhook.webhook_id)
    own = sender.database.run_blocking(webhooks.replace_secret, account)
    async with sender.running():
        sender.add(account, f"{receiver.url}/own")
        await sender.until(lambda: len(receiver.requests) == 2)
    by_path = {request.path: request for request in receiver.requests}
    assert by_path.keys() == {"/hook", "/own"}
    for path, secrets, others in (("/hook", (issued.secret, second), (own,)), ("/own", (own,), (second,))):
        request = by_path[path]
        assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
        for secret in secrets:
            assert verified(request, secret) == json.loads(request.body)
        for secret in others:
            with pytest.raises(WebhookVerificationError):
                verified(request, secret)
    body = json.loads(by_path["/hook"].body)
    assert body.keys() == {"type", "timestamp", "data"}
    assert (body["type"], body["data"]) == ("job.completed", {"job_id": "job_1"})


async def test_all_secrets_of_a_day_sign(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    run = sender.database.run_blocking
    issued = run(webhooks.add, account, receiver.url, EVENTS)
    webhook, secrets = issued.webhook.webhook_id, [issued.secret]
    for ahead in (-3600.0, *[0.0] * 9):
        sender.ahead = ahead
        secrets.append(run(webhooks.rotate, account, webhook).secret)
    with pytest.raises(TooManyRotations) as refused:
        run(webhooks.rotate, account, webhook)
    assert 22 * 3600 < refused.value.retry_after <= 23 * 3600
    async with sender.running():
        run(deliveries.add_test, account, webhook)
        await sender.until(lambda: len(receiver.requests) == 1)
    for secret in secrets:
        assert verified(receiver.requests[0], secret)
    sender.ahead = refused.value.retry_after
    secrets.append(run(webhooks.rotate, account, webhook).secret)
    assert {*run(webhooks.signing_secrets, [webhook])[webhook]} == {*secrets[1:]}


async def test_without_a_secret_a_message_is_unsigned(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    async with sender.running():
        sender.add(account, receiver.url)
        await sender.until(lambda: bool(receiver.requests))
    headers = receiver.requests[0].headers
    assert {"webhook-id", "webhook-timestamp"} <= headers.keys()
    assert "webhook-signature" not in headers


@pytest.mark.parametrize("status", [200, 299])
async def test_a_2xx_ends_a_delivery(sender: WebhookSender, receiver: Receiver, account: str, status: int) -> None:
    receiver.respond = reply(status)
    async with sender.running():
        sender.add(account, receiver.url)
        await sender.until(lambda: bool(receiver.requests))
    assert sender.database.run_blocking(receivers.oldest_due) is None
    sender.ahead = 86_400
    assert sender.database.run_blocking(receivers.claim, OWNER, 10, 10, {}) == ()


@pytest.mark.parametrize("status", [307, 500])
async def test_other_responses_are_followed_by_additional_attempts(
    sender: WebhookSender, receiver: Receiver, account: str, status: int
) -> None:
    """Redirects are not followed."""
    receiver.respond = reply(status, location="/elsewhere")
    hook = sender.database.run_blocking(webhooks.add, account, receiver.url, EVENTS)
    async with sender.running():
        sender.database.run_blocking(deliveries.add, account, "job.failed", dict)
        sender.deliveries.wake()
        await sender.until(lambda: len(receiver.requests) == 1)
        await asyncio.sleep(0.1)
        sender.ahead += 6
        receiver.respond = reply(204)
        await sender.until(lambda: len(receiver.requests) == 2)
    first, second = receiver.requests
    assert (first.path, second.path) == ("/", "/")
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body
    assert int(second.headers["webhook-timestamp"]) >= int(first.headers["webhook-timestamp"]) + 5
    rows = sender.database.run_blocking(deliveries.list_attempts, hook.webhook.webhook_id, limit=10, cursor=None).values
    assert [(attempt.attempt, attempt.status) for attempt in rows] == [(2, 204), (1, status)]


async def test_a_silent_receiver_is_left_in_time(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    receiver.respond = receiver.hang
    sender.deliveries.timeout = 0.1
    run = sender.database.run_blocking
    created = [run(webhooks.add, account, url, EVENTS).webhook.webhook_id for url in (receiver.url, "http://10.0.0.1/")]
    async with sender.running():
        sender.add(account, "http://name.invalid/")
        await sender.until_idle()
    listed = [run(deliveries.list_attempts, webhook_id, limit=10, cursor=None).values for webhook_id in created]
    outcomes = [[(one.status, one.error) for one in attempts] for attempts in listed]
    assert outcomes == [[(None, "timeout")], [(None, "forbidden_address")]]
    assert 100 <= listed[0][0].milliseconds < 10_000
    assert receiver.connections == 1


async def test_410_disables_a_webhook_and_tells_its_owner(
    sender: WebhookSender, receiver: Receiver, account: str, tmp_path: Path
) -> None:
    receiver.respond = reply(410)
    sender.database.run_blocking(webhooks.add, account, receiver.url, EVENTS)
    async with sender.running():
        for _ in range(3):
            sender.database.run_blocking(deliveries.add, account, "job.failed", dict)
        sender.deliveries.wake()
        await sender.until(lambda: len(list((tmp_path / "outbox").glob("*.eml"))) == 1)
    (webhook,) = sender.database.run_blocking(webhooks.list_all, account)
    assert webhook.disabled_reason == "gone"
    await sender.email_queue.close()
    (path,) = (tmp_path / "outbox").glob("*.eml")
    text = message_from_bytes(path.read_bytes(), policy=policy.default).get_content()
    assert f"\n127.0.0.1:{receiver.port}\n" in text
    assert "410" in text
    assert "\nhttp://localhost/dashboard/webhooks\n" in text


async def test_five_days_of_failures_disable_a_webhook(
    sender: WebhookSender, receiver: Receiver, account: str, tmp_path: Path
) -> None:
    receiver.respond = reply(500)
    sender.database.run_blocking(webhooks.add, account, receiver.url, EVENTS)
    async with sender.running():
        for days in (0, 1):
            sender.ahead = days * MAX_FAILING
            sender.database.run_blocking(deliveries.add, account, "job.failed", dict)
            sender.deliveries.wake()
            await sender.until_idle()
        await sender.until(lambda: len(list((tmp_path / "outbox").glob("*.eml"))) == 1)
    (webhook,) = sender.database.run_blocking(webhooks.list_all, account)
    assert webhook.disabled_reason == "failing"


class Counting:
    """A receiver that responds when told, and counts requests in progress."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.release = threading.Event()
        self._lock = threading.Lock()

    def respond(self, request: Received, send: Send) -> None:
        with self._lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.release.wait(20)
        with self._lock:
            self.running -= 1
        reply()(request, send)


async def test_four_at_once_for_an_account_and_host(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    counting, other = Counting(), open_account(sender.database).id
    receiver.respond = counting.respond
    second = sender.another()
    async with sender.running(second):
        sender.add(account, receiver.url, count=12)
        second.wake()
        await sender.until(lambda: counting.running == CONCURRENCY)
        await asyncio.sleep(0.3)
        assert counting.most == CONCURRENCY
        with Receiver() as elsewhere:
            sender.add(account, elsewhere.url)
            sender.add(other, receiver.url)
            await sender.until(lambda: bool(elsewhere.requests) and counting.running == CONCURRENCY + 1)
        counting.release.set()
        await sender.until(lambda: len(receiver.requests) == 13)
    assert max(Counter(request.headers["webhook-id"] for request in receiver.requests).values()) == 1


async def test_hanging_receivers_delay_nobody_else(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    """The account has as many of them as it wants, with names of their own."""
    sender.deliveries.timeout = 1000
    with Receiver(address="0.0.0.0") as hanging:
        hanging.respond = hanging.hang
        for number in range(1, 100):
            sender.add(account, f"http://127.0.1.{number}:{hanging.port}/", count=4)
        with Receiver(hanging.hang, "127.0.0.7") as same:
            sender.add(account, same.url, count=50)
            async with sender.running():
                await sender.until(lambda: hanging.connections + same.connections >= CAPACITY // 4 * CONCURRENCY)
                for number in range(10):
                    sender.add(open_account(sender.database).id, f"{receiver.url}/{number}")
                await sender.until(lambda: len(receiver.requests) == 10)
                assert not any(one.stopped.is_set() for one in (hanging, same))
                hanging.stopped.set()
                same.stopped.set()


async def test_a_failing_receiver_is_asked_again_one_message_at_a_time(
    sender: WebhookSender, receiver: Receiver, account: str
) -> None:
    receiver.respond = reply(500)
    async with sender.running():
        sender.add(account, receiver.url, count=40)
        await sender.until_idle()
        failed = len(receiver.requests)
        assert MAX_FAILURES <= failed < MAX_FAILURES + CONCURRENCY
        sender.ahead += PAUSE + 1
        await sender.until(lambda: len(receiver.requests) == failed + 1)
        await sender.until_idle()
        receiver.respond = reply(204)
        sender.ahead += PAUSE + 1
        await sender.until(lambda: len({request.headers["webhook-id"] for request in receiver.requests}) == 40)


async def test_claims_of_killed_servers_are_taken_over(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    sender.add(account, receiver.url)
    assert len(sender.database.run_blocking(receivers.claim, OWNER, 10, 10, {})) == 1
    async with sender.running():
        await asyncio.sleep(0.1)
        assert receiver.requests == []
        lose(sender.database)
        await sender.until(lambda: len(receiver.requests) == 1)


async def test_closing_ends_work_and_keeps_the_rest(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    counting = Counting()
    receiver.respond = counting.respond
    async with sender.running():
        sender.add(account, receiver.url, count=10)
        await sender.until(lambda: counting.running == CONCURRENCY)
        sender.deliveries.close()
        counting.release.set()
    assert len(receiver.requests) == CONCURRENCY
    ((claimed),) = sender.database.run_blocking(receivers.claim, OWNER, 10, 10, {})
    assert len(claimed.messages) == 10 - CONCURRENCY


async def test_messages_of_other_servers_are_found(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    async with sender.running():
        await asyncio.sleep(0.1)
        sender.database.run_blocking(deliveries.add, account, "job.failed", dict, receiver.url)
        await sender.until(lambda: bool(receiver.requests), seconds=5)


async def test_attempts_and_ended_webhooks_are_counted(sender: WebhookSender, receiver: Receiver, account: str) -> None:
    receiver.respond = lambda request, send: reply(int(request.path[1:]))(request, send)
    async with sender.running():
        for path in ("200", "204", "500"):
            sender.add(account, f"{receiver.url}/{path}")
        sender.add(account, "http://10.0.0.1/")
        await sender.until_idle()
    found = {
        label: sender.registry.get_sample_value("convertd_webhook_attempts_total", {"result": label})
        for label in ("delivered", "refused", "no_response")
    }
    assert found == {"delivered": 2, "refused": 1, "no_response": 1}


def submit(server: Running, key: str, content: bytes = image(), **fields: str) -> Any:
    form: dict[str, Any] = {"files": {"file": ("photo.jpg", content)}, "data": PNG | fields}
    response = server.request("POST", "/convert", key, headers={"Prefer": "respond-async"}, **form)
    assert response.status_code == 202, response.text
    return response.json()["data"]


def in_order(receiver: Receiver, count: int) -> list[Received]:
    assert eventually(lambda: len(receiver.requests) == count, 30)
    return receiver.requests


def messages(receiver: Receiver, count: int) -> dict[str, Received]:
    """The messages that have arrived, by the path of the receiver."""
    return {request.path: request for request in in_order(receiver, count)}


def test_a_completed_job_is_told_to_all_who_want_it(server: Running, receiver: Receiver) -> None:
    key = server.account()
    secrets = {}
    for path, events in (("/all", None), ("/completed", ["job.completed"]), ("/failed", ["job.failed"])):
        fields = {"url": f"{receiver.url}{path}"} | ({} if events is None else {"events": events})
        secrets[path] = server.request("POST", "/webhooks", key, json=fields).json()["data"]["secret"]
    secrets["/own"] = server.request("POST", "/webhooks/secret", key).json()["data"]["secret"]

    job = submit(server, key, webhook_url=f"{receiver.url}/own", tag="größe")

    received = messages(receiver, 3)
    assert received.keys() == {"/all", "/completed", "/own"}
    found = server.request("GET", f"/jobs/{job['job_id']}", key).json()["data"]
    assert (found["status"], found["tag"]) == ("completed", "größe")
    for path, request in received.items():
        body = Webhook(secrets[path]).verify(request.body, dict(request.headers))
        assert body["type"] == "job.completed"
        assert body["data"] == found
    assert len({request.headers["webhook-id"] for request in received.values()}) == 3


def test_the_end_of_a_job_is_told_at_once(server: Running, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting until the sender looks for messages by itself."""
    key = server.account()
    server.request("POST", "/webhooks", key, json={"url": receiver.url})
    batch = server.request("POST", "/batch", key, json=PNG).json()["data"]["batch_id"]
    file = server.upload(image(), path=f"/batch/{batch}/files", key=key)["file_id"]
    monkeypatch.setattr("web.services.webhooks.deliveries.POLL_INTERVAL", 1e9)
    for number, content in enumerate((image(), image(), image("PNG")[:60])):
        submit(server, key, content)
        in_order(receiver, number + 1)
    body = {**PNG, "file_ids": [file]}
    server.request("POST", f"/batch/{batch}/convert", key, json=body, headers={"Prefer": "respond-async"})
    types = [json.loads(request.body)["type"] for request in in_order(receiver, 4)]
    assert types == [*["job.completed"] * 2, "job.failed", "job.completed"]


def test_a_failed_job_is_told_with_its_error(server: Running, receiver: Receiver) -> None:
    key = server.account()
    server.request("POST", "/webhooks", key, json={"url": receiver.url, "events": ["job.failed", "job.cancelled"]})
    submit(server, key)
    submit(server, key, image("PNG")[:60])
    body = json.loads(messages(receiver, 1)["/"].body)
    assert (body["type"], body["data"]["status"]) == ("job.failed", "failed")
    assert body["data"]["error"]["reason"] == "corrupt_input"


def test_a_cancelled_job_is_told(server: Running, receiver: Receiver) -> None:
    key = server.account()
    server.request("POST", "/webhooks", key, json={"url": receiver.url, "events": ["job.cancelled"]})
    jobs = [submit(server, key, image(size=(2000, 2000))) for _ in range(4)]
    cancelled = server.request("DELETE", f"/jobs/{jobs[-1]['job_id']}", key).json()["data"]
    assert cancelled["status"] == "cancelled"
    body = json.loads(messages(receiver, 1)["/"].body)
    assert (body["type"], body["data"]["job_id"]) == ("job.cancelled", jobs[-1]["job_id"])


@pytest.mark.parametrize(
    ("path", "url", "reason"),
    [
        ("/convert", "http://10.0.0.1/", "forbidden_address"),
        ("/pdf/merge", "http://user:password@example.org/", "invalid_url"),
        ("/batch/{batch}/convert", "http://[::ffff:169.254.169.254]/", "forbidden_address"),
        ("/files/{file}/convert", "ftp://example.org/", "invalid_url"),
    ],
)
def test_a_url_that_cannot_be_sent_to_is_refused(server: Running, path: str, url: str, reason: str) -> None:
    key = server.account()
    batch = server.request("POST", "/batch", key, json=PNG).json()["data"]["batch_id"]
    file = server.upload(image(), path=f"/batch/{batch}/files", key=key)["file_id"]
    form: dict[str, Any]
    if path == "/convert":
        form = {"files": {"file": image()}, "data": {**PNG, "webhook_url": url}}
    elif path == "/pdf/merge":
        form = {"files": [("files[]", image("PDF"))] * 2, "data": {"webhook_url": url}}
    else:
        own = {"file_ids": [file]} if "batch" in path else {}
        form = {"json": {**PNG, **own, "webhook_url": url}}
    response = server.request("POST", path.format(batch=batch, file=file), key, **form)
    problem(response, 400, "invalid_parameter", param="webhook_url", reason=reason)
    assert server.request("GET", "/jobs", key).json()["data"]["jobs"] == []
