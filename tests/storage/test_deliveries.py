"""The outbox: what is added, listed, delivered again and deleted."""

import json

import pytest

from storage.database import Database, Transaction
from storage.errors import NotFound, WebhookDisabled
from storage.tables import deliveries, receivers, webhook_models, webhooks
from storage.tables.deliveries import RETENTION
from storage.tables.receivers import AttemptResult, ClaimedReceiver, Message
from storage.tables.webhooks import EVENTS
from tests.support.samples.storage import Clock, open_account

pytestmark = pytest.mark.both_databases

URL = "https://Example.org:8443/hook"


def claim_all(database: Database) -> list[ClaimedReceiver]:
    return list(database.run_blocking(receivers.claim, 100, 100, {}))


def messages(database: Database) -> list[Message]:
    return [message for receiver in claim_all(database) for message in receiver.messages]


def attempt(database: Database, clock: Clock, message: Message, status: int = 200) -> None:
    database.run_blocking(receivers.record, message, AttemptResult(status, None, 8, clock.now))


def test_a_message_for_each_webhook_that_gets_the_event(database: Database, clock: Clock) -> None:
    clock.now = 1_700_000_000.9
    account = open_account(database).id
    wanted = database.run_blocking(webhooks.add, account, URL, ["job.failed"])
    database.run_blocking(webhooks.add, account, URL, ["job.completed"])
    database.run_blocking(webhooks.add, open_account(database).id, URL, EVENTS)
    secret = database.run_blocking(webhooks.replace_secret, account)

    data = {"job_id": "job_1", "tag": "größe\ud800"}
    assert database.run_blocking(deliveries.add, account, "job.failed", lambda: data, "http://other.example/x") == 2
    assert database.run_blocking(deliveries.add, account, "credits.low", lambda: data) == 0

    claimed = {receiver.host: receiver for receiver in claim_all(database)}
    assert claimed.keys() == {"example.org:8443", "other.example"}
    (first,), (own,) = claimed["example.org:8443"].messages, claimed["other.example"].messages
    assert (first.webhook, first.url, first.secrets) == (wanted.webhook.webhook_id, URL, (wanted.secret,))
    assert (own.webhook, own.url, own.secrets) == (None, "http://other.example/x", (secret,))
    assert first.body == own.body
    assert json.loads(first.body) == {"type": "job.failed", "timestamp": "2023-11-14T22:13:20Z", "data": data}
    assert first.delivery_id != own.delivery_id


def test_nothing_is_added_if_the_transaction_fails(database: Database) -> None:
    account = open_account(database).id

    def add_and_fail(transaction: Transaction) -> None:
        deliveries.add(transaction, account, "job.completed", dict, URL)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        database.run_blocking(add_and_fail)
    assert claim_all(database) == []


def test_a_test_goes_to_one_webhook_whatever_its_events(database: Database) -> None:
    account = open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, URL, ["credits.low"]).webhook.webhook_id
    database.run_blocking(webhooks.add, account, URL, EVENTS)
    delivery_id = database.run_blocking(deliveries.add_test, account, webhook)
    (message,) = messages(database)
    assert (message.delivery_id, message.webhook, message.event) == (delivery_id, webhook, "test")
    database.run_blocking(webhooks.disable, webhook, "gone")
    with pytest.raises(WebhookDisabled):
        database.run_blocking(deliveries.add_test, account, webhook)
    with pytest.raises(NotFound):
        database.run_blocking(deliveries.add_test, open_account(database).id, webhook)


def test_a_message_is_delivered_again_under_its_id(database: Database, clock: Clock) -> None:
    account, other = open_account(database).id, open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, URL, EVENTS).webhook.webhook_id
    database.run_blocking(deliveries.add, account, "job.completed", dict)
    (receiver,) = claim_all(database)
    (message,) = receiver.messages
    attempt(database, clock, message)
    database.run_blocking(receivers.release, receiver, 0)
    assert claim_all(database) == []

    for owner, delivery_id in ((other, message.delivery_id), (account, "delivery_1")):
        with pytest.raises(NotFound):
            database.run_blocking(deliveries.redeliver, owner, delivery_id)
    database.run_blocking(deliveries.redeliver, account, message.delivery_id)
    (again,) = messages(database)
    assert (again.delivery_id, again.body, again.attempts) == (message.delivery_id, message.body, 1)
    attempt(database, clock, again, 500)
    database.run_blocking(webhooks.disable, webhook, "gone")
    with pytest.raises(WebhookDisabled):
        database.run_blocking(deliveries.redeliver, account, message.delivery_id)


def test_attempts_are_listed_newest_first(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, URL, EVENTS).webhook.webhook_id
    for _ in range(3):
        database.run_blocking(deliveries.add, account, "job.completed", dict, "https://example.org/own")
    for message in messages(database):
        attempt(database, clock, message, 500)
    clock.now += 100
    for message in messages(database):
        attempt(database, clock, message)
    listed = database.run_blocking(deliveries.list_attempts, webhook, limit=50, cursor=None).values
    assert [one.attempt for one in listed] == [2, 2, 2, 1, 1, 1]
    assert [one.status for one in listed] == [200, 200, 200, 500, 500, 500]
    assert {(one.event, one.error, one.milliseconds, one.next_attempt_at) for one in listed} == {
        ("job.completed", None, 8, None)
    }
    assert len({one.delivery_id for one in listed}) == 3

    first = database.run_blocking(deliveries.list_attempts, webhook, limit=4, cursor=None)
    second = database.run_blocking(deliveries.list_attempts, webhook, limit=4, cursor=first.next_cursor)
    assert (*first.values, *second.values) == listed
    assert second.next_cursor is None


def test_the_latest_attempt_tells_when_the_next_one_is(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, URL, EVENTS).webhook.webhook_id
    database.run_blocking(deliveries.add, account, "job.completed", dict)
    (message,) = messages(database)
    database.run_blocking(receivers.record, message, AttemptResult(None, "timeout", 10_000, clock.now))
    (listed,) = database.run_blocking(deliveries.list_attempts, webhook, limit=50, cursor=None).values
    assert (listed.status, listed.error, listed.next_attempt_at) == (None, "timeout", round(clock.now + 5))


def test_what_has_ended_is_deleted_after_seven_days(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    for url in ("https://one.example/", "https://two.example/"):
        database.run_blocking(deliveries.add, account, "job.completed", dict, url)
    attempt(database, clock, messages(database)[0])
    assert database.run_blocking(deliveries.delete_expired, 10) == 0
    clock.now += RETENTION
    assert database.run_blocking(deliveries.delete_expired, 10) == 1
    assert len(database.run_blocking(Transaction.all, webhook_models.Delivery.select())) == 1
    assert database.run_blocking(Transaction.all, webhook_models.DeliveryAttempt.select()) == []


def test_a_deleted_webhook_leaves_no_deliveries(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, URL, EVENTS).webhook.webhook_id
    for _ in range(2):
        database.run_blocking(deliveries.add, account, "job.completed", dict)
    (receiver,) = claim_all(database)
    attempt(database, clock, receiver.messages[0])
    database.run_blocking(webhooks.delete, account, webhook)
    attempt(database, clock, receiver.messages[1])  # it was sent meanwhile
    database.run_blocking(receivers.release, receiver, 0)
    for table in ("Delivery", "DeliveryAttempt", "Receiver"):
        assert database.run_blocking(Transaction.all, getattr(webhook_models, table).select()) == []
