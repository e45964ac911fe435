"""Purchases and reversals, reported repeatedly and in any order, and the event `credits.low`."""

import asyncio
import json
import logging
from itertools import permutations

import pytest

from storage.database import Database, Transaction
from storage.tables import accounts, ledger, ledger_audit, purchases, refunds, webhook_models, webhooks
from storage.tables.accounts import StoredAccount
from storage.tables.purchases import CheckoutReport, Outcome, Purchase
from storage.tables.refunds import Kind, RefundResult, Reversal
from tests.support.samples.storage import OWNER, USE, Clock, open_account

pytestmark = pytest.mark.both_databases
PRICE, CREDITS = 1500, 2000
URL = "https://example.org/hook"


def buy(database: Database, credits: int = 0) -> tuple[StoredAccount, str]:
    """Creates an account with an unpaid purchase."""
    account = open_account(database, credits)
    return account, database.run_blocking(purchases.begin, account.id, "pro", CREDITS, PRICE, "eur").purchase_id


def report(purchase: str, event: str = "evt_paid", amount: int = PRICE, currency: str = "eur") -> CheckoutReport:
    return CheckoutReport(f"cs_{purchase}", purchase, f"{event}_{purchase}", f"pi_{purchase}", amount, currency)


def pay(database: Database, purchase: str, **reported: object) -> Outcome:
    return database.run_blocking(purchases.pay, report(purchase, **reported))  # type: ignore[arg-type]


def reverse(
    database: Database,
    purchase: str,
    amount: int,
    at: int,
    *,
    id: str = "re",
    kind: Kind = "refund",
    final: bool = False,
) -> RefundResult | None:
    reversal = Reversal(f"{id}_{purchase}", f"pi_{purchase}", kind, amount, at, final)
    return database.run_blocking(refunds.record, reversal, f"evt_{id}_{at}_{amount}_{purchase}")


def now(database: Database, account: StoredAccount) -> tuple[int, int]:
    """Returns balance and purchased credits. Fails if the audit finds a violation."""
    assert database.run_blocking(ledger_audit.check) == ()
    found = database.run_blocking(accounts.get, account.id)
    return (found.credits_remaining, found.credits_total_purchased)


def spend(database: Database, account: StoredAccount, amount: int) -> None:
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account.id, amount, OWNER), USE)


def found(database: Database, purchase: str) -> Purchase:
    known = database.run_blocking(purchases.find, f"cs_{purchase}")
    assert known is not None
    return known


def test_a_purchase_is_credited_once(database: Database) -> None:
    account, purchase = buy(database, 50)
    database.run_blocking(purchases.set_session, purchase, f"cs_{purchase}", 2_000_000_000)
    assert (found(database, purchase).state, found(database, purchase).expires_at) == ("open", 2_000_000_000)
    assert now(database, account) == (50, 0)
    assert [pay(database, purchase, event=event) for event in ("a", "a", "b")] == ["credited", "unchanged", "unchanged"]
    assert found(database, purchase).state == "paid"
    assert now(database, account) == (2050, 2000)


def test_a_payment_reported_before_its_session_is_recorded(database: Database) -> None:
    account, purchase = buy(database)
    assert pay(database, purchase) == "credited"
    database.run_blocking(purchases.set_session, purchase, f"cs_{purchase}", 2_000_000_000)
    database.run_blocking(purchases.abandon, purchase)
    assert found(database, purchase).state == "paid"
    assert now(database, account) == (2000, 2000)


def test_a_wrong_price_is_not_credited(database: Database) -> None:
    for amount, currency in ((1, "eur"), (PRICE, "usd"), (PRICE + 1, "eur")):
        account, purchase = buy(database)
        assert pay(database, purchase, amount=amount, currency=currency) == "mismatch"
        assert now(database, account) == (0, 0)


def test_payments_of_an_account(database: Database, clock: Clock) -> None:
    """Newest first, with the credits of refunds, without purchases that have no checkout."""
    account, first = buy(database)
    other, foreign = buy(database)
    made = [first]
    for _ in range(3):
        clock.now += 60
        made.append(database.run_blocking(purchases.begin, account.id, "pro", CREDITS, PRICE, "eur").purchase_id)
    pay(database, first)
    paid_at = int(clock.now)
    reverse(database, first, 750, at=1)
    pay(database, foreign)
    database.run_blocking(purchases.set_state, report(made[1]), "failed")
    database.run_blocking(purchases.set_state, report(made[2]), "expired")
    database.run_blocking(purchases.set_state, report(made[3]), "processing")
    listed = database.run_blocking(purchases.list_payments, account.id)
    assert [(one.purchase_id, one.state, one.paid_at, one.refunded) for one in listed] == [
        (made[3], "processing", None, 0),
        (made[1], "failed", None, 0),
        (first, "paid", paid_at, CREDITS // 2),
    ]
    assert database.run_blocking(purchases.find_of_account, account.id, first) == listed[2]
    assert database.run_blocking(purchases.find_of_account, other.id, first) is None


def test_foreign_sessions(database: Database) -> None:
    account, purchase = buy(database)
    database.run_blocking(purchases.set_session, purchase, "cs_the_real_one", 2_000_000_000)
    assert pay(database, purchase) == "unknown_purchase"  # our purchase, in a session that was not opened for it
    assert pay(database, "pur_of_nobody") == "unknown_purchase"
    assert database.run_blocking(purchases.set_state, report("pur_of_nobody"), "failed") == "unknown_purchase"
    assert now(database, account) == (0, 0)


def test_the_order_of_reports_does_not_matter(database: Database) -> None:
    for order in permutations(["processing", "failed", "paid"]):
        account, purchase = buy(database)
        for reported in order:
            if reported == "paid":
                pay(database, purchase)
            else:
                database.run_blocking(purchases.set_state, report(purchase), reported)  # type: ignore[arg-type]
        assert found(database, purchase).state == "paid", order
        assert now(database, account) == (2000, 2000), order


def test_abandoned_purchases_are_deleted(database: Database, clock: Clock) -> None:
    _, crashed = buy(database)
    _, refused = buy(database)
    _, opened = buy(database)
    database.run_blocking(purchases.abandon, refused)
    database.run_blocking(purchases.set_session, opened, f"cs_{opened}", 2_000_000_000)
    clock.now += 86_399
    assert database.run_blocking(purchases.delete_abandoned) == 0
    clock.now += 1
    assert database.run_blocking(purchases.delete_abandoned) == 1
    assert pay(database, crashed) == pay(database, refused) == "unknown_purchase"
    assert pay(database, opened) == "credited"


def test_a_partial_refund(database: Database) -> None:
    account, purchase = buy(database, 50)
    pay(database, purchase)
    assert reverse(database, purchase, 500, at=1) == RefundResult(account.id, -666)
    assert now(database, account) == (50 + 2000 - 666, 2000)
    reverse(database, purchase, 1000, at=2, id="re_2")
    assert now(database, account) == (50, 2000)
    reverse(database, purchase, 1000, at=3, id="re_3")  # more than was paid
    assert now(database, account) == (50, 2000)


def test_spent_credits_are_not_removed(database: Database) -> None:
    account, purchase = buy(database)
    pay(database, purchase)
    spend(database, account, 1900)
    assert reverse(database, purchase, PRICE, at=1) == RefundResult(account.id, -100)
    assert now(database, account) == (0, 2000)
    reverse(database, purchase, 0, at=2, final=True)  # the reversal failed: the removed credits are returned
    assert now(database, account) == (100, 2000)
    assert reverse(database, purchase, PRICE, at=1) is None  # the reversal is final
    assert now(database, account) == (100, 2000)


def test_a_shortfall_is_not_taken_from_later_credits(database: Database) -> None:
    account, purchase = buy(database)
    pay(database, purchase)
    spend(database, account, 2000)
    reverse(database, purchase, PRICE, at=1)
    database.run_blocking(ledger.credit, account.id, "grant", 5, f"later {purchase}")
    reverse(database, purchase, PRICE, at=2)
    assert now(database, account) == (5, 2000)


def test_a_refund_is_not_counted_twice(database: Database) -> None:
    account, purchase = buy(database)
    pay(database, purchase)
    reverse(database, purchase, 750, at=1, id="ch", kind="charge")
    reverse(database, purchase, 750, at=1)
    assert now(database, account) == (1000, 2000)


STEPS = ("paid", "part", "dispute", "won", "rest")


def test_the_order_of_reversals_does_not_matter(database: Database) -> None:
    for order in list(permutations(STEPS))[::7]:
        account, purchase = buy(database, 7)
        for step in order:
            for _ in range(2):
                if step == "paid":
                    pay(database, purchase)
                elif step in ("part", "rest"):
                    reverse(database, purchase, 600, at=5, id=step)
                else:
                    won = step == "won"
                    reverse(database, purchase, 0 if won else 300, at=8 + won, id="dp", kind="dispute", final=won)
                assert database.run_blocking(ledger_audit.check, account.id) == (), (order, step)
        assert now(database, account) == (7 + 2000 - 1600, 2000), order


async def test_concurrent_reports_and_refunds(database: Database) -> None:
    for _ in range(10):
        account, purchase = await asyncio.to_thread(buy, database)
        reversal = Reversal(f"re_{purchase}", f"pi_{purchase}", "refund", 750, 1, False)
        reported = [database.run(purchases.pay, report(purchase, f"evt_{number}")) for number in range(20)]
        back = [database.run(refunds.record, reversal, f"evt_re_{number}_{purchase}") for number in range(5)]
        outcomes = await asyncio.gather(*reported[:10], *back, *reported[10:])
        assert outcomes.count("credited") == 1
        assert await database.run(ledger.balance, account.id) == 1000
    assert await database.run(ledger_audit.check) == ()


def test_a_crash_rolls_back_a_payment(database: Database) -> None:
    account, purchase = buy(database)

    def crashes(transaction: Transaction) -> None:
        purchases.pay(transaction, report(purchase))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        database.run_blocking(crashes)
    assert now(database, account) == (0, 0)
    assert pay(database, purchase) == "credited"


class Undone(Exception):
    """Rolls a transaction back. The arguments are the violations found by the audit."""


@pytest.mark.parametrize("change", ["purchase SET credits = credits + 1", "payment SET reversed = reversed + 1"])
def test_the_audit_finds_wrong_purchases(database: Database, change: str) -> None:
    account, purchase = buy(database)
    pay(database, purchase)
    reverse(database, purchase, 500, at=1)
    assert now(database, account) == (1334, 2000)

    def tamper(transaction: Transaction) -> None:
        transaction.connection.execute_sql(f"UPDATE {change}")
        raise Undone(*ledger_audit.check(transaction, account.id))

    with pytest.raises(Undone) as undone:
        database.run_blocking(tamper)
    assert len(undone.value.args) == 1


def charge(database: Database, account: str, credits: int = 1) -> None:
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, credits, OWNER), USE)


def told(database: Database) -> list[dict[str, int]]:
    rows = database.run_blocking(Transaction.all, webhook_models.Delivery.select())
    assert {row.event for row in rows} <= {"credits.low"}
    return [json.loads(row.body)["data"] for row in rows]


def buy_credits(database: Database, account: str, credits: int, ref: str) -> None:
    database.run_blocking(ledger.credit, account, "purchase", credits, ref)


def test_once_for_a_purchase(database: Database) -> None:
    account = open_account(database, 0).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    buy_credits(database, account, 21, "first")
    charge(database, account, 18)
    assert told(database) == []  # 3 of 21 are left: a tenth is 2.1
    charge(database, account)
    assert told(database) == [{"credits_remaining": 2, "threshold": 3}]
    charge(database, account)
    buy_credits(database, account, 10, "second")
    buy_credits(database, account, 21, "first")  # reported twice, credited once
    charge(database, account, 10)
    assert len(told(database)) == 1  # 1 of 10 is left
    charge(database, account)
    assert told(database)[1:] == [{"credits_remaining": 0, "threshold": 1}]


def test_grants_are_no_packs(database: Database) -> None:
    account = open_account(database, 50).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    charge(database, account, 50)
    assert told(database) == []


def test_nothing_is_told_if_the_charge_is_rolled_back(database: Database) -> None:
    account = open_account(database, 0).id
    database.run_blocking(webhooks.add, account, URL, ["credits.low"])
    buy_credits(database, account, 10, "first")
    hold = database.run_blocking(ledger.reserve, account, 10, OWNER)

    def settle_and_fail(transaction: Transaction) -> None:
        ledger.settle(transaction, hold, USE)
        raise KeyError

    with pytest.raises(KeyError):
        database.run_blocking(settle_and_fail)
    assert told(database) == []
    database.run_blocking(ledger.settle, hold, USE)
    assert len(told(database)) == 1


def test_a_charge_needs_no_additional_statement(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """Neither before the balance is low, nor after it was told."""
    account, other = open_account(database, 0).id, open_account(database, 10).id
    buy_credits(database, account, 100, "first")

    def statements(owner: str, credits: int) -> int:
        hold = database.run_blocking(ledger.reserve, owner, credits, OWNER)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "peewee"):
            database.run_blocking(ledger.settle, hold, USE)
        return len([record for record in caplog.records if record.name == "peewee"])

    usual = statements(other, 1)
    assert statements(account, 90) == usual
    assert statements(account, 1) > usual
    assert statements(account, 1) == usual
