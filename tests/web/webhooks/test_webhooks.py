"""The API of webhooks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook

from storage.tables import deliveries
from storage.tables.webhooks import EVENTS
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Receiver, reply
from tests.support.servers.webhook_sender import LOOPBACK

URL = "https://app.example/hook"


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with servers.running(tmp_path_factory.mktemp("data"), url_allow=LOOPBACK, rate_limit_free=1000) as running:
        yield running


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
        assert [(one["attempt"], one["status"], one["event"]) for one in (first, second)] == [
            (1, 204, "test"),
            (2, 500, "test"),
        ]
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
        converted = server.convert(image(), headers={"Authorization": f"Bearer {key}"})
        assert converted.status_code == 200
        assert eventually(lambda: bool(receiver.requests))
        body = Webhook(made["secret"]).verify(receiver.requests[0].body, dict(receiver.requests[0].headers))
        assert (body["type"], body["data"]) == ("credits.low", {"credits_remaining": 0, "threshold": 1})


@pytest.mark.parametrize("query", [{"limit": 0}, {"limit": 101}, {"cursor": "x"}, {"status": "sent"}])
def test_invalid_pages(server: Running, key: str, query: dict[str, Any]) -> None:
    webhook = create(server, key)["webhook_id"]
    for path in ("/webhooks", f"/webhooks/{webhook}/deliveries"):
        problem(server.request("GET", path, key, params=query), 400, "invalid_parameter", param=next(iter(query)))
