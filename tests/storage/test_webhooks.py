"""Webhooks and the secrets that sign their messages."""

import base64

import pytest

from storage.database import Database, Transaction
from storage.errors import NotFound, TooManyWebhooks
from storage.tables import accounts, deliveries, webhook_models, webhooks
from storage.tables.webhooks import EVENTS, MAX_WEBHOOKS, OVERLAP, IssuedWebhook
from tests.support.samples.storage import Clock, open_account

pytestmark = pytest.mark.both_databases

URL = "https://example.org/hook"


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
