"""Messages about jobs: what receivers of an account, and of a request, get."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from standardwebhooks import Webhook

from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Received, Receiver
from tests.support.servers.webhook_sender import LOOPBACK

PNG = {"output_format": "png"}


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with servers.running(tmp_path_factory.mktemp("data"), url_allow=LOOPBACK, rate_limit_free=1000) as running:
        yield running


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


def submit(server: Running, key: str, content: bytes = image(), **fields: str) -> Any:
    response = server.request(
        "POST",
        "/convert",
        key,
        files={"file": ("photo.jpg", content)},
        data=PNG | fields,
        headers={"Prefer": "respond-async"},
    )
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
    assert [json.loads(request.body)["type"] for request in in_order(receiver, 4)] == [
        *["job.completed"] * 2,
        "job.failed",
        "job.completed",
    ]


def test_a_failed_job_is_told_with_its_error(server: Running, receiver: Receiver) -> None:
    key = server.account()
    server.request("POST", "/webhooks", key, json={"url": receiver.url, "events": ["job.failed", "job.cancelled"]})
    submit(server, key)
    submit(server, key, image("PNG")[:60])
    body = json.loads(messages(receiver, 1)["/"].body)
    assert (body["type"], body["data"]["status"], body["data"]["error"]["reason"]) == (
        "job.failed",
        "failed",
        "corrupt_input",
    )


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
