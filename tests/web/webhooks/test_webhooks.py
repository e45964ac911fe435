"""The API of webhooks, their page of the dashboard, and receivers of messages."""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from benchmarks.processes import free_port
from convertd_client import InvalidWebhook, verify_webhook
from storage.tables import deliveries
from storage.tables.webhooks import EVENTS
from tests.support.requests import http
from tests.support.requests.account_requests import signed_in
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, eventually
from tests.support.servers.receiver import Receiver, reply
from web.docs.code_samples import WEBHOOK_SAMPLES

URL = "https://app.example/hook"
PAGE = "/dashboard/webhooks"
SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
OTHER = f"whsec_{base64.b64encode(bytes(32)).decode()}"
BODY = '{"type":"job.completed","timestamp":"2026-11-23T12:00:00Z","data":{"job_id":"job_1","tag":"größe"}}'


@pytest.fixture
def key(server: Running) -> str:
    return server.account()


def data(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["data"]


def create(server: Running, key: str, url: str = URL, **fields: Any) -> Any:
    return data(server.request("POST", "/webhooks", key, json={"url": url, **fields}))


def listed(server: Running, key: str, webhook: str, **query: Any) -> Any:
    return data(server.request("GET", f"/webhooks/{webhook}/deliveries", key, params=query))


def test_create_list_and_delete(server: Running, key: str) -> None:
    made = create(server, key, events=["job.failed", "job.completed", "job.failed"])
    assert (made["url"], made["events"]) == (URL, ["job.completed", "job.failed"])
    assert made["webhook_id"].startswith("webhook_")
    assert made["secret"].startswith("whsec_")
    assert (made["disabled_at"], made["disabled_reason"]) == (None, None)
    other = create(server, key)
    assert other["events"] == list(EVENTS)

    found = data(server.request("GET", "/webhooks", key))
    shown = [{name: value for name, value in one.items() if name not in ("secret", "message")} for one in (other, made)]
    assert sorted(found["webhooks"], key=str) == sorted(shown, key=str)
    assert found["next_cursor"] is None
    first = data(server.request("GET", "/webhooks", key, params={"limit": 1}))
    second = data(server.request("GET", "/webhooks", key, params={"limit": 1, "cursor": first["next_cursor"]}))
    assert first["webhooks"] + second["webhooks"] == found["webhooks"]

    path = f"/webhooks/{made['webhook_id']}"
    assert data(server.request("DELETE", path, key)) == {"webhook_id": made["webhook_id"], "deleted": True}
    problem(server.request("DELETE", path, key), 404, "not_found")
    assert len(data(server.request("GET", "/webhooks", key))["webhooks"]) == 1


@pytest.mark.parametrize(
    ("fields", "param", "reason"),
    [
        ({}, "url", "missing"),
        ({"url": 1}, "url", "malformed"),
        ({"url": "nonsense"}, "url", "invalid_url"),
        ({"url": "file:///etc/passwd"}, "url", "invalid_url"),
        ({"url": "https://user:password@example.org/"}, "url", "invalid_url"),
        ({"url": "http://10.0.0.1/"}, "url", "forbidden_address"),
        ({"url": "http://[::ffff:10.0.0.1]/"}, "url", "forbidden_address"),
        ({"url": "http://0xA000001/"}, "url", "forbidden_address"),
        ({"url": URL, "events": []}, "events", "malformed"),
        ({"url": URL, "events": "job.failed"}, "events", "malformed"),
        ({"url": URL, "events": ["test"]}, "events", "unknown"),
        ({"url": URL, "events": [{}]}, "events", "unknown"),
        ({"url": URL, "secret": "whsec_x"}, "secret", "unknown_parameter"),
    ],
)
def test_invalid_webhooks(server: Running, key: str, fields: dict[str, Any], param: str, reason: str) -> None:
    response = server.request("POST", "/webhooks", key, json=fields)
    problem(response, 400, "invalid_parameter", param=param, reason=reason)


def test_at_most_five(server: Running, key: str) -> None:
    for _ in range(5):
        create(server, key)
    response = server.request("POST", "/webhooks", key, json={"url": URL})
    problem(response, 400, "invalid_parameter", reason="too_many", details={"max_webhooks": 5})


def test_a_test_is_delivered_and_delivered_again(server: Running, key: str) -> None:
    with Receiver() as receiver:
        made = create(server, key, receiver.url, events=["credits.low"])
        queued = data(server.request("POST", f"/webhooks/{made['webhook_id']}/test", key))
        assert eventually(lambda: len(listed(server, key, made["webhook_id"])["deliveries"]) == 1)
        (request,) = receiver.requests
        body = Webhook(made["secret"]).verify(request.body, dict(request.headers))
        assert (body["type"], body["data"]) == ("test", {"webhook_id": made["webhook_id"]})
        assert request.headers["webhook-id"] == queued["delivery_id"]

        receiver.respond = reply(500)
        again = server.request("POST", f"/webhooks/deliveries/{queued['delivery_id']}/redeliver", key)
        assert data(again) == queued
        assert eventually(lambda: len(listed(server, key, made["webhook_id"])["deliveries"]) == 2)
        second, first = listed(server, key, made["webhook_id"])["deliveries"]
        assert {one["delivery_id"] for one in (first, second)} == {queued["delivery_id"]}
        attempts = [(one["attempt"], one["status"], one["event"]) for one in (first, second)]
        assert attempts == [(1, 204, "test"), (2, 500, "test")]
        assert first["next_attempt_at"] is None
        assert second["next_attempt_at"] > second["created_at"]
        assert receiver.requests[1].headers["webhook-id"] == queued["delivery_id"]
        page = listed(server, key, made["webhook_id"], limit=1)
        assert page["deliveries"] == [second]
        assert listed(server, key, made["webhook_id"], cursor=page["next_cursor"])["deliveries"] == [first]


def test_both_secrets_sign_after_a_rotation(server: Running, key: str) -> None:
    with Receiver() as receiver:
        made = create(server, key, receiver.url)
        rotated = data(server.request("POST", f"/webhooks/{made['webhook_id']}/rotate", key))
        assert rotated["webhook_id"] == made["webhook_id"]
        assert rotated["secret"] != made["secret"]
        server.request("POST", f"/webhooks/{made['webhook_id']}/test", key)
        assert eventually(lambda: bool(receiver.requests))
        for secret in (made["secret"], rotated["secret"]):
            Webhook(secret).verify(receiver.requests[0].body, dict(receiver.requests[0].headers))
        for _ in range(9):
            data(server.request("POST", f"/webhooks/{made['webhook_id']}/rotate", key))
        refused = server.request("POST", f"/webhooks/{made['webhook_id']}/rotate", key)
        problem(refused, 429, "rate_limit_exceeded", reason="rotations", retryable=True)
        assert 86_000 < int(refused.headers["Retry-After"]) <= 86_400


def test_the_secret_of_the_account(server: Running, key: str) -> None:
    account = server.database.run_blocking(
        lambda transaction: transaction.connection.execute_sql("SELECT id FROM account ORDER BY rowid DESC").fetchone()
    )[0]
    secrets = [data(server.request("POST", "/webhooks/secret", key))["secret"] for _ in range(2)]
    with Receiver() as receiver:
        server.database.run_blocking(deliveries.add, account, "job.failed", lambda: {"job_id": "job_1"}, receiver.url)
        assert eventually(lambda: bool(receiver.requests))
        for secret in secrets:
            Webhook(secret).verify(receiver.requests[0].body, dict(receiver.requests[0].headers))


def test_a_disabled_webhook_is_shown_and_gets_nothing(server: Running, key: str) -> None:
    with Receiver(reply(410)) as receiver:
        made = create(server, key, receiver.url)
        queued = data(server.request("POST", f"/webhooks/{made['webhook_id']}/test", key))
        assert eventually(
            lambda: data(server.request("GET", "/webhooks", key))["webhooks"][0]["disabled_reason"] == "gone"
        )
    (shown,) = data(server.request("GET", "/webhooks", key))["webhooks"]
    assert shown["disabled_at"] >= shown["created_at"]
    for path in (f"{made['webhook_id']}/test", f"deliveries/{queued['delivery_id']}/redeliver"):
        response = server.request("POST", f"/webhooks/{path}", key)
        problem(response, 400, "invalid_parameter", reason="webhook_disabled")


def test_low_credits_are_told(server: Running) -> None:
    with Receiver() as receiver:
        key = server.account(0, purchased=1)
        made = create(server, key, receiver.url)
        assert server.convert(image(), headers={"Authorization": f"Bearer {key}"}).status_code == 200
        assert eventually(lambda: bool(receiver.requests))
        body = Webhook(made["secret"]).verify(receiver.requests[0].body, dict(receiver.requests[0].headers))
        assert (body["type"], body["data"]) == ("credits.low", {"credits_remaining": 0, "threshold": 1})


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"cursor": "x"}])
def test_invalid_pages(server: Running, key: str, query: dict[str, Any]) -> None:
    webhook = create(server, key)["webhook_id"]
    for path in ("/webhooks", f"/webhooks/{webhook}/deliveries"):
        problem(server.request("GET", path, key, params=query), 400, "invalid_parameter", param=next(iter(query)))


def test_create_test_repeat_rotate_and_delete(server: Running) -> None:
    with Receiver(reply(500)) as receiver, signed_in(server, server.account()) as client:
        assert PAGE in client.get("/dashboard").text
        created = client.post(f"{PAGE}/new", data={"url": f"{receiver.url}/<hook>"})
        assert (created.status_code, created.headers["Location"]) == (303, PAGE)
        assert "path=/dashboard" in created.headers["Set-Cookie"].lower()
        page = client.get(PAGE).text
        (secret,) = re.findall(r"whsec_[A-Za-z0-9+/]{43}=", page.replace("&#x3D;", "="))
        assert f"{receiver.url}/&lt;hook&gt;" in page
        assert secret not in client.get(PAGE).text  # it is shown once

        (webhook,) = set(re.findall(r"webhook_\w{22}", page))
        assert client.post(f"{PAGE}/{webhook}/test").headers["Location"] == PAGE
        assert eventually(lambda: '<td data-label="response" class="bad-text">500</td>' in client.get(PAGE).text)
        (delivery,) = set(re.findall(r"delivery_\w{22}", client.get(PAGE).text))
        receiver.respond = reply(204)
        assert client.post(f"{PAGE}/deliveries/{delivery}/redeliver").status_code == 303
        assert eventually(lambda: '<td data-label="response">204</td>' in client.get(PAGE).text)
        assert {request.headers["webhook-id"] for request in receiver.requests} == {delivery}

        assert client.post(f"{PAGE}/{webhook}/rotate").status_code == 303
        (rotated,) = re.findall(r"whsec_[A-Za-z0-9+/]{43}=", client.get(PAGE).text.replace("&#x3D;", "="))
        assert rotated != secret
        assert client.post(f"{PAGE}/{webhook}/delete").status_code == 303
        assert webhook not in client.get(PAGE).text


def test_the_own_secret(server: Running) -> None:
    with signed_in(server, server.account()) as client:
        assert client.post(f"{PAGE}/secret").headers["Location"] == PAGE
        assert "whsec_" in client.get(PAGE).text
        assert "whsec_" not in client.get(PAGE).text


def test_a_secret_that_somebody_planted_is_not_shown(server: Running) -> None:
    planted = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
    with signed_in(server, server.account()) as client:
        client.cookies.set("convertd_new_secret", planted)
        assert planted not in client.get(PAGE).text


def test_errors_are_shown(server: Running) -> None:
    with signed_in(server, server.account()) as client:
        for path, data, status, text in (
            ("new", {"url": "http://10.0.0.1/"}, 400, "public address"),
            ("new", {}, 400, "must begin with"),
            ("webhook_0/test", {}, 404, "No such webhook"),
            ("webhook_0/delete", {}, 404, "No such webhook"),
            ("deliveries/delivery_0/redeliver", {}, 404, "No such delivery"),
        ):
            response = client.post(f"{PAGE}/{path}", data=data)
            assert response.status_code == status
            assert text in response.text
        for number in range(5):
            assert client.post(f"{PAGE}/new", data={"url": f"https://app.example/{number}"}).status_code == 303
        assert "Delete one of them" in client.post(f"{PAGE}/new", data={"url": "https://app.example/"}).text


def test_without_a_session(server: Running) -> None:
    assert 'name="key"' in http.get(f"{server.url}{PAGE}").text
    for path in ("new", "secret", "webhook_0/test", "deliveries/delivery_0/redeliver"):
        response = http.post(f"{server.url}{PAGE}/{path}", data={}, headers={"Origin": server.url})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")


def headers(*secrets: str, body: str = BODY, age: float = 0) -> dict[str, str]:
    """The headers of a message that is `age` seconds old."""
    at = datetime.now(UTC) - timedelta(seconds=age)
    signatures = [Webhook(secret).sign("delivery_1", at, body) for secret in secrets]
    named = {"Id": "delivery_1", "Timestamp": str(int(at.timestamp())), "Signature": " ".join(signatures)}
    return {f"Webhook-{name}": value for name, value in named.items()}


@pytest.mark.parametrize("secrets", [(SECRET,), (OTHER, SECRET), (SECRET, OTHER)])
@pytest.mark.parametrize("body", [BODY, BODY.encode()])
def test_messages_are_verified(secrets: tuple[str, ...], body: str | bytes) -> None:
    message = verify_webhook(body, headers(*secrets, age=290), SECRET)
    assert (message.id, message.type, message.timestamp) == ("delivery_1", "job.completed", "2026-11-23T12:00:00Z")
    assert message.data == {"job_id": "job_1", "tag": "größe"}


@pytest.mark.parametrize(
    ("secret", "body", "age", "changes"),
    [
        (OTHER, BODY, 0, {}),
        (SECRET, BODY.replace("job_1", "job_2"), 0, {}),
        (SECRET, BODY, 0, {"Webhook-Id": "delivery_2"}),
        (SECRET, BODY, 310, {}),
        (SECRET, BODY, -310, {}),
        (SECRET, BODY, 0, {"Webhook-Timestamp": "now"}),
        (SECRET, BODY, 0, {"Webhook-Signature": "v2,x"}),
        (SECRET, BODY, 0, {"Webhook-Signature": "größe"}),
        (SECRET, BODY, 0, {"Webhook-Signature": None}),
        ("whsec_?", BODY, 0, {}),
    ],
)
def test_what_is_forged_or_old_is_refused(secret: str, body: str, age: float, changes: dict[str, str | None]) -> None:
    sent = {name: value for name, value in (headers(SECRET, age=age) | changes).items() if value is not None}
    with pytest.raises(InvalidWebhook):
        verify_webhook(body, sent, secret)


COMMANDS = {
    "Python": (sys.executable, "receiver.py"),
    "JavaScript": ("node", "receiver.mjs"),
    "PHP": ("sh", "-c", "exec php -S 127.0.0.1:$PORT receiver.php"),
    "Go": ("go", "run", "receiver.go"),
    "Java": ("java", "receiver.java"),
}
PROGRAMS = {"JavaScript": "node", "PHP": "php", "Go": "go", "Java": "java"}
OTHERS = [language for language, program in PROGRAMS.items() if shutil.which(program)]


@contextmanager
def running(language: str, folder: Path, port: int) -> Iterator[Path]:
    """Runs the server of the docs. Yields the file with its output."""
    command = COMMANDS[language]
    (folder / command[-1].split()[-1]).write_text(WEBHOOK_SAMPLES[language])
    output = folder / "output"
    environment = os.environ | {"WEBHOOK_SECRET": SECRET, "PORT": str(port)}
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=file, stderr=file, start_new_session=True
        )
        try:
            yield output
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # `go run` starts the program as a process of its own
            process.wait(10)


def post(port: int, sent: dict[str, str]) -> httpx.Response | None:
    try:
        return http.post(f"http://127.0.0.1:{port}/", content=BODY.encode(), headers=sent, timeout=20)
    except httpx.ConnectError:
        return None


def test_there_is_a_server_for_each_language() -> None:
    assert WEBHOOK_SAMPLES.keys() == COMMANDS.keys()


@pytest.mark.parametrize("language", ["Python", *(pytest.param(one, marks=pytest.mark.long) for one in OTHERS)])
def test_the_servers_of_the_docs(language: str, tmp_path: Path) -> None:
    port = free_port()
    with running(language, tmp_path, port) as output:
        assert eventually(lambda: post(port, {}) is not None, 30)
        answers = [post(port, sent) for sent in (headers(SECRET), headers(OTHER), headers(SECRET, age=310), {})]
        assert [answer and answer.status_code for answer in answers] == [204, 400, 400, 400]
        assert post(port, headers(OTHER, SECRET)) is not None
        assert eventually(lambda: output.read_text().count("delivery_1 job.completed") == 2)
        assert "job_1" in output.read_text()
