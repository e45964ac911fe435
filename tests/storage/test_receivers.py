"""Receivers: who sends to them, when, how often, and how webhooks end."""

import asyncio
import threading
from collections import Counter

import pytest

from storage.database import Database, Transaction
from storage.tables import deliveries, receivers, webhook_models, webhooks
from storage.tables.receivers import LEASE, MAX_FAILING, MAX_FAILURES, PAUSE, AttemptResult, ClaimedReceiver, Message
from storage.tables.webhooks import EVENTS
from tests.support.samples.storage import Clock, open_account

pytestmark = pytest.mark.both_databases

URL = "https://example.org/hook"


@pytest.fixture
def account(database: Database) -> str:
    return open_account(database).id


def add(database: Database, account: str, url: str = URL, count: int = 1) -> None:
    for _ in range(count):
        database.run_blocking(deliveries.add, account, "job.completed", dict, url)


def claim(database: Database, limit: int = 100, share: int = 100) -> list[ClaimedReceiver]:
    return list(database.run_blocking(receivers.claim, limit, share, {}))


def fail(database: Database, clock: Clock, message: Message, status: int | None = 500) -> str | None:
    return database.run_blocking(receivers.record, message, AttemptResult(status, None, 8, clock.now))


def test_one_server_at_a_time_sends_to_a_receiver(database: Database, clock: Clock, account: str) -> None:
    add(database, account)
    (first,) = claim(database)
    add(database, account)
    clock.now += LEASE - 1
    assert claim(database) == []
    clock.now += 1
    (second,) = claim(database)
    assert len(second.messages) == 2
    database.run_blocking(receivers.release, first, 0)  # its lease has ended
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
        found = await asyncio.gather(*(server.run(receivers.claim, 4, 4, {}) for server in servers))
        if not any(found):
            break
        claimed += [receiver.account for part in found for receiver in part]
    assert sorted(claimed) == sorted(owners)
    for server in servers:
        server.close()


def test_a_message_that_is_added_during_a_claim_is_sent_after_it(
    database: Database, clock: Clock, account: str
) -> None:
    add(database, account)
    (receiver,) = claim(database)
    database.run_blocking(receivers.record, receiver.messages[0], AttemptResult(204, None, 8, clock.now))
    add(database, account)
    database.run_blocking(receivers.release, receiver, 0)
    ((message,),) = [receiver.messages for receiver in claim(database)]
    assert message != receiver.messages[0]


async def test_a_message_that_is_added_while_a_claim_ends_is_not_forgotten(
    database: Database, clock: Clock, account: str
) -> None:
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
    assert len(database.run_blocking(receivers.claim, 4, 6, running)) == 1
    assert database.run_blocking(receivers.claim, 4, 5, running) == ()
    assert len(database.run_blocking(receivers.claim, 4, 100, {})) == 4


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


def test_a_failing_receiver_pauses_and_gets_one_message_at_a_time(
    database: Database, clock: Clock, account: str
) -> None:
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
def test_five_days_of_failures_end_a_webhook(
    database: Database, clock: Clock, account: str, status: int | None
) -> None:
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
