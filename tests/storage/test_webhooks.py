"""Webhooks, the secrets that sign their messages, their receivers, and the outbox."""

import asyncio
import base64
import json
import threading
from collections import Counter

import pytest

from storage.database import Database, Transaction
from storage.errors import NotFound, TooManyWebhooks, WebhookDisabled
from storage.tables import accounts, deliveries, receivers, webhook_models, webhooks
from storage.tables.deliveries import RETENTION
from storage.tables.receivers import MAX_FAILING, MAX_FAILURES, PAUSE, AttemptResult, ClaimedReceiver, Message
from storage.tables.webhooks import EVENTS, MAX_WEBHOOKS, OVERLAP, IssuedWebhook
from tests.support.samples.storage import DAY, OWNER, Clock, lose, open_account

pytestmark = pytest.mark.both_databases
URL = "https://example.org/hook"
RECEIVER_URL = "https://Example.org:8443/hook"


def create(database: Database, account: str, url: str = URL) -> IssuedWebhook:
    return database.run_blocking(webhooks.add, account, url, EVENTS)


def secrets_of(database: Database, owner: str) -> tuple[str, ...]:
    return database.run_blocking(webhooks.signing_secrets, [owner, "other"]).get(owner, ())


def test_a_webhook_is_created_listed_and_deleted(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    issued = database.run_blocking(webhooks.add, account, URL, ["job.failed", "job.completed"])
    webhook = issued.webhook
    assert (webhook.url, webhook.events, webhook.created_at) == (URL, ("job.completed", "job.failed"), int(clock.now))
    assert database.run_blocking(webhooks.list_all, account) == (webhook,)
    assert database.run_blocking(webhooks.get, account, webhook.webhook_id) == webhook

    assert database.run_blocking(webhooks.delete, account, webhook.webhook_id) == webhook
    assert database.run_blocking(webhooks.list_all, account) == ()
    assert secrets_of(database, webhook.webhook_id) == ()


def test_webhooks_of_others_are_not_found(database: Database) -> None:
    account, other = open_account(database).id, open_account(database).id
    webhook = create(database, account).webhook.webhook_id
    for function in (webhooks.get, webhooks.delete):
        for owner, webhook_id in ((other, webhook), (account, "webhook_0"), (account, "")):
            with pytest.raises(NotFound):
                database.run_blocking(function, owner, webhook_id)
    assert len(database.run_blocking(webhooks.list_all, account)) == 1


def test_an_account_has_at_most_five(database: Database) -> None:
    account = open_account(database).id
    for number in range(MAX_WEBHOOKS):
        create(database, account, f"{URL}/{number}")
    with pytest.raises(TooManyWebhooks):
        create(database, account)
    create(database, open_account(database).id)


def test_a_replaced_secret_signs_for_a_day(database: Database, clock: Clock) -> None:
    issued = create(database, open_account(database).id)
    owner, first = issued.webhook.webhook_id, issued.secret
    assert len(base64.b64decode(first.removeprefix("whsec_"), validate=True)) == 32
    second = database.run_blocking(webhooks.replace_secret, owner)
    assert secrets_of(database, owner) == (second, first)
    clock.now += OVERLAP - 1
    assert secrets_of(database, owner) == (second, first)
    assert database.run_blocking(webhooks.delete_expired_secrets) == 0
    clock.now += 1
    assert secrets_of(database, owner) == (second,)
    assert database.run_blocking(webhooks.delete_expired_secrets) == 1


def test_a_webhook_is_disabled_once(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    webhook = create(database, account).webhook.webhook_id
    kept = create(database, account, f"{URL}/kept").webhook.webhook_id
    assert database.run_blocking(deliveries.add, account, "job.completed", dict) == 2
    assert database.run_blocking(webhooks.disable, webhook, "gone")
    clock.now += 10
    assert not database.run_blocking(webhooks.disable, webhook, "failing")
    found = database.run_blocking(webhooks.get, account, webhook)
    assert (found.disabled_at, found.disabled_reason) == (int(clock.now) - 10, "gone")
    rows = database.run_blocking(Transaction.all, webhook_models.Delivery.select())
    assert {row.webhook: row.next_attempt_at is None for row in rows} == {webhook: True, kept: False}
    assert database.run_blocking(deliveries.add, account, "job.completed", dict) == 1


def test_a_deleted_account_leaves_nothing(database: Database) -> None:
    account, other = open_account(database), open_account(database)
    for owner in (account.id, other.id):
        create(database, owner)
        database.run_blocking(webhooks.replace_secret, owner)
        database.run_blocking(deliveries.add, owner, "job.completed", dict, "https://example.org/own")
    database.run_blocking(accounts.delete, account.email)
    for table, left in (("Webhook", 1), ("SigningSecret", 2), ("Delivery", 2), ("Receiver", 1)):
        query = getattr(webhook_models, table).select()
        assert len(database.run_blocking(Transaction.all, query)) == left, table


def add(database: Database, account: str, url: str = URL, count: int = 1) -> None:
    for _ in range(count):
        database.run_blocking(deliveries.add, account, "job.completed", dict, url)


def claim(database: Database, limit: int = 100, share: int = 100) -> list[ClaimedReceiver]:
    return list(database.run_blocking(receivers.claim, OWNER, limit, share, {}))


def fail(database: Database, clock: Clock, message: Message, status: int | None = 500) -> str | None:
    return database.run_blocking(receivers.record, message, AttemptResult(status, None, 8, clock.now))


def test_one_server_at_a_time_sends_to_a_receiver(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (first,) = claim(database)
    add(database, account)
    clock.now += DAY
    assert claim(database) == []
    lose(database)
    (second,) = claim(database)
    assert len(second.messages) == 2
    database.run_blocking(receivers.release, first, 0)  # it is lost
    assert claim(database) == []
    database.run_blocking(receivers.release, second, 0)
    (third,) = claim(database)
    assert third.messages == second.messages


async def test_servers_that_claim_at_once_share_the_receivers(url: str, clock: Clock) -> None:
    servers = [Database(url, clock=clock) for _ in range(3)]
    owners = [open_account(servers[0]).id for _ in range(30)]
    for owner in owners:
        add(servers[0], owner)
    claimed: list[str] = []
    while True:
        found = await asyncio.gather(*(server.run(receivers.claim, OWNER, 4, 4, {}) for server in servers))
        if not any(found):
            break
        claimed += [receiver.account for part in found for receiver in part]
    assert sorted(claimed) == sorted(owners)
    for server in servers:
        server.close()


def test_a_message_added_during_a_claim_is_sent_after_it(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (receiver,) = claim(database)
    database.run_blocking(receivers.record, receiver.messages[0], AttemptResult(204, None, 8, clock.now))
    add(database, account)
    database.run_blocking(receivers.release, receiver, 0)
    ((message,),) = [receiver.messages for receiver in claim(database)]
    assert message != receiver.messages[0]


async def test_a_message_added_while_a_claim_ends_is_sent(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (receiver,) = claim(database)
    database.run_blocking(receivers.record, receiver.messages[0], AttemptResult(204, None, 8, clock.now))
    added, released = threading.Event(), threading.Event()

    def add_and_wait(transaction: Transaction) -> None:
        deliveries.add(transaction, account, "job.completed", dict, URL)
        added.set()
        released.wait(0.3)  # the claim cannot end before the commit

    adding = asyncio.create_task(database.run(add_and_wait))
    await asyncio.to_thread(added.wait)
    await database.run(receivers.release, receiver, 0)
    released.set()
    await adding
    assert len(claim(database)) == 1


def test_a_receiver_without_messages_leaves_no_row(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (receiver,) = claim(database)
    database.run_blocking(receivers.record, receiver.messages[0], AttemptResult(204, None, 8, clock.now))
    database.run_blocking(receivers.release, receiver, 0)
    assert database.run_blocking(Transaction.all, webhook_models.Receiver.select()) == []


def test_an_account_has_a_share_of_what_is_claimed(database: Database, account: str) -> None:
    others = [open_account(database).id for _ in range(2)]
    for number in range(20):
        add(database, account, f"https://host{number}.example/")
    for other in others:
        add(database, other)
    numbers = Counter(receiver.account for receiver in claim(database, 8, 3))
    assert numbers == {account: 3, others[0]: 1, others[1]: 1}
    running = {account: 5}
    assert len(database.run_blocking(receivers.claim, OWNER, 4, 6, running)) == 1
    assert database.run_blocking(receivers.claim, OWNER, 4, 5, running) == ()
    assert len(database.run_blocking(receivers.claim, OWNER, 4, 100, {})) == 4


def test_attempts_follow_the_schedule(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    seconds = [5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600]
    for delay in seconds:
        (receiver,) = claim(database)
        fail(database, clock, receiver.messages[0])
        database.run_blocking(receivers.release, receiver, 0)
        failed_at = clock.now
        clock.now = int(failed_at + 0.9 * delay - 0.01)
        assert claim(database) == []
        clock.now = failed_at + 1.1 * delay
    (receiver,) = claim(database)
    assert receiver.messages[0].attempts == len(seconds)
    fail(database, clock, receiver.messages[0])
    database.run_blocking(receivers.release, receiver, 0)
    clock.now += 10 * 86_400
    assert claim(database) == []


def test_delays_vary(database: Database, clock: Clock, account: str) -> None:
    add(database, account, count=20)
    (receiver,) = claim(database)
    for message in receiver.messages:
        fail(database, clock, message)
    clock.now += 10
    database.run_blocking(receivers.release, receiver, 0)
    (receiver,) = claim(database)
    for message in receiver.messages:
        fail(database, clock, message)
    rows = database.run_blocking(Transaction.all, webhook_models.Delivery.select())
    delays = {(row.next_attempt_at or 0) - clock.now for row in rows}
    assert len(delays) > 5
    assert min(delays) >= 270
    assert max(delays) <= 330


def test_a_failing_receiver_pauses_and_gets_one_at_a_time(database: Database, clock: Clock, account: str) -> None:
    add(database, account, count=10)
    (receiver,) = claim(database)
    assert (receiver.failures, len(receiver.messages)) == (0, 10)
    database.run_blocking(receivers.release, receiver, MAX_FAILURES)
    add(database, account)
    clock.now += PAUSE - 1
    assert claim(database) == []
    clock.now += 1
    (receiver,) = claim(database)
    assert (receiver.failures, len(receiver.messages)) == (MAX_FAILURES, 1)
    database.run_blocking(receivers.release, receiver, MAX_FAILURES - 1)
    (receiver,) = claim(database)
    assert len(receiver.messages) == 11


def test_an_attempt_counts_once(database: Database, clock: Clock, account: str) -> None:
    """Two servers may have sent the message, one of them after its lease."""
    add(database, account)
    ((message,),) = [receiver.messages for receiver in claim(database)]
    database.run_blocking(receivers.record, message, AttemptResult(200, None, 8, clock.now))
    fail(database, clock, message)
    (row,) = database.run_blocking(Transaction.all, webhook_models.Delivery.select())
    (attempt,) = database.run_blocking(Transaction.all, webhook_models.DeliveryAttempt.select())
    assert (row.attempts, row.next_attempt_at, attempt.status) == (1, None, 200)


def disabled(database: Database, account: str) -> tuple[int | None, str | None]:
    (webhook,) = database.run_blocking(webhooks.list_all, account)
    return webhook.disabled_at, webhook.disabled_reason


def test_410_ends_a_webhook_and_its_messages(database: Database, clock: Clock, account: str) -> None:
    database.run_blocking(webhooks.add, account, URL, EVENTS)
    for _ in range(2):
        database.run_blocking(deliveries.add, account, "job.completed", dict)
    (receiver,) = claim(database)
    assert fail(database, clock, receiver.messages[0], 410) == "gone"
    assert fail(database, clock, receiver.messages[1], 410) is None  # it has ended already
    assert disabled(database, account) == (int(clock.now), "gone")
    database.run_blocking(receivers.release, receiver, 0)
    clock.now += 86_400
    assert claim(database) == []


def test_410_ends_the_message_of_a_request(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (receiver,) = claim(database)
    assert fail(database, clock, receiver.messages[0], 410) is None
    database.run_blocking(receivers.release, receiver, 1)
    clock.now += 86_400
    assert claim(database) == []


@pytest.mark.parametrize("status", [500, None])
def test_five_days_of_failure_end_a_webhook(database: Database, clock: Clock, account: str, status: int | None) -> None:
    database.run_blocking(webhooks.add, account, URL, EVENTS)
    for _ in range(5):
        database.run_blocking(deliveries.add, account, "job.completed", dict)
    ((first, second, third, fourth, fifth),) = [receiver.messages for receiver in claim(database)]
    assert fail(database, clock, first, status) is None
    clock.now += MAX_FAILING - 1
    database.run_blocking(receivers.record, second, AttemptResult(299, None, 8, clock.now))
    assert fail(database, clock, third, status) is None
    clock.now += MAX_FAILING - 1
    assert fail(database, clock, fourth, status) is None
    clock.now += 1
    assert fail(database, clock, fifth, status) == "failing"
    assert disabled(database, account) == (int(clock.now), "failing")


def claim_all(database: Database) -> list[ClaimedReceiver]:
    return list(database.run_blocking(receivers.claim, OWNER, 100, 100, {}))


def messages(database: Database) -> list[Message]:
    return [message for receiver in claim_all(database) for message in receiver.messages]


def attempt(database: Database, clock: Clock, message: Message, status: int = 200) -> None:
    database.run_blocking(receivers.record, message, AttemptResult(status, None, 8, clock.now))


def test_a_message_for_each_webhook_that_gets_the_event(database: Database, clock: Clock) -> None:
    clock.now = 1_700_000_000.9
    account = open_account(database).id
    wanted = database.run_blocking(webhooks.add, account, RECEIVER_URL, ["job.failed"])
    database.run_blocking(webhooks.add, account, RECEIVER_URL, ["job.completed"])
    database.run_blocking(webhooks.add, open_account(database).id, RECEIVER_URL, EVENTS)
    secret = database.run_blocking(webhooks.replace_secret, account)

    data = {"job_id": "job_1", "tag": "größe\ud800"}
    assert database.run_blocking(deliveries.add, account, "job.failed", lambda: data, "http://other.example/x") == 2
    assert database.run_blocking(deliveries.add, account, "credits.low", lambda: data) == 0

    claimed = {receiver.host: receiver for receiver in claim_all(database)}
    assert claimed.keys() == {"example.org:8443", "other.example"}
    (first,), (own,) = claimed["example.org:8443"].messages, claimed["other.example"].messages
    assert (first.webhook, first.url, first.secrets) == (wanted.webhook.webhook_id, RECEIVER_URL, (wanted.secret,))
    assert (own.webhook, own.url, own.secrets) == (None, "http://other.example/x", (secret,))
    assert first.body == own.body
    assert json.loads(first.body) == {"type": "job.failed", "timestamp": "2023-11-14T22:13:20Z", "data": data}
    assert first.delivery_id != own.delivery_id


def test_nothing_is_added_if_the_transaction_fails(database: Database) -> None:
    account = open_account(database).id

    def add_and_fail(transaction: Transaction) -> None:
        deliveries.add(transaction, account, "job.completed", dict, RECEIVER_URL)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        database.run_blocking(add_and_fail)
    assert claim_all(database) == []


def test_a_test_goes_to_one_webhook_whatever_its_events(database: Database) -> None:
    account = open_account(database).id
    webhook = database.run_blocking(webhooks.add, account, RECEIVER_URL, ["credits.low"]).webhook.webhook_id
    database.run_blocking(webhooks.add, account, RECEIVER_URL, EVENTS)
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
    webhook = database.run_blocking(webhooks.add, account, RECEIVER_URL, EVENTS).webhook.webhook_id
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
    webhook = database.run_blocking(webhooks.add, account, RECEIVER_URL, EVENTS).webhook.webhook_id
    for _ in range(3):
        database.run_blocking(deliveries.add, account, "job.completed", dict, "https://example.org/own")
    for message in messages(database):
        attempt(database, clock, message, 500)
    clock.now += 100
    lose(database)
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
    webhook = database.run_blocking(webhooks.add, account, RECEIVER_URL, EVENTS).webhook.webhook_id
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
    webhook = database.run_blocking(webhooks.add, account, RECEIVER_URL, EVENTS).webhook.webhook_id
    for _ in range(2):
        database.run_blocking(deliveries.add, account, "job.completed", dict)
    (receiver,) = claim_all(database)
    attempt(database, clock, receiver.messages[0])
    database.run_blocking(webhooks.delete, account, webhook)
    attempt(database, clock, receiver.messages[1])  # it was sent meanwhile
    database.run_blocking(receivers.release, receiver, 0)
    for table in ("Delivery", "DeliveryAttempt", "Receiver"):
        assert database.run_blocking(Transaction.all, getattr(webhook_models, table).select()) == []
