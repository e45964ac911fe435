"""Ledger: credits are added, held while an operation runs, and charged if the operation succeeds.

Invariant: the sum of an account's entries is its balance plus its held credits. To avoid deadlocks, transactions
lock accounts first, in the order of their ids, then holds, then sums of usage.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from storage.database import Transaction
from storage.database.transaction import LOCKED_ROW, Statement, Statements, insert, lookup, reading
from storage.errors import HoldLost, NoCredits, NotFound
from storage.ids import new_id
from storage.tables import deliveries, models, usage
from storage.tables.usage import UsageRecord

LOW_PART = 10
"""A balance is low if it is less than this part of the last purchase."""

FOREVER: Final = 1 << 40
"""The time until which a server owns something, unless it stops."""

Income = Literal["grant", "purchase", "reversal"]

# Returns the new balance; no row if the balance is below the amount, or if there is a key and it is not valid.
HOLD_CREDITS = Statement(
    "UPDATE account SET balance = balance - :amount, held = held + :amount"
    " WHERE id = :account AND balance >= :amount AND (CAST(:key AS TEXT) IS NULL OR EXISTS (SELECT 1 FROM api_key"
    " WHERE id = :key AND account = :account AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > :now)))"
    " RETURNING balance"
)
CHARGE_HELD_CREDITS = Statement(
    "UPDATE account SET held = held - :charged, used = used + :charged WHERE TRUE AND id = :account"
    " RETURNING balance, low_credits"
)
INSERT_HOLD = insert("hold", "id, account, amount, state, server, boot, created_at, expires_at")
# Returns a row once for a purchase.
END_LOW_CREDITS = Statement(
    "UPDATE account SET low_credits = NULL WHERE id = :account AND low_credits IS NOT NULL RETURNING id"
)
_LOCKED_ACCOUNT = f"(SELECT id FROM account WHERE id = :account{LOCKED_ROW})"
# Returns the amount; no row if the hold has ended.
END_HOLD = Statement(
    f"DELETE FROM hold WHERE id = :hold AND account = {_LOCKED_ACCOUNT} AND state = 'held' RETURNING amount"
)
# The partial index hold_open is used only if the condition of its rows is part of the text.
_EXPIRED = "FROM hold WHERE state = 'held' AND expires_at <= :now"
FIND_EXPIRED_HOLDS = Statement(f"SELECT account {_EXPIRED}")
END_EXPIRED_HOLDS = Statement(f"DELETE {_EXPIRED} AND account = {_LOCKED_ACCOUNT} RETURNING amount")
INSERT_ENTRY = insert("entry", "ref, account, kind, amount, at")
RESERVE = Statements(HOLD_CREDITS, INSERT_HOLD)
SETTLE = Statements(END_HOLD, CHARGE_HELD_CREDITS, INSERT_ENTRY, usage.INSERT_USAGE)


@dataclass(frozen=True)
class ServerInstance:
    """One run of a server: the server's permanent name and an id that is new with each start."""

    server: str
    boot: str


@dataclass(frozen=True)
class Hold:
    """Credits reserved for an operation. `balance` is the account's balance after the reservation."""

    id: str
    account: str
    amount: int
    balance: int


@dataclass(frozen=True)
class CreditResult:
    """The balance in credits; `added` is False if the `ref` had been credited before."""

    balance: int
    added: bool


@dataclass(frozen=True)
class Grant:
    """Credits that were granted, or removed if the amount is negative, with the reason that the operator gave."""

    at: int
    amount: int
    reason: str | None


def credit(
    transaction: Transaction, account: str, kind: Income, amount: int, ref: str, reason: str | None = None
) -> CreditResult:
    """Adds credits. Idempotent per `ref`. Raises NotFound for an unknown account."""
    if amount <= 0:
        raise ValueError("amount must be positive.")
    balance(transaction, account)
    if not transaction.insert_ignore(models.Entry.insert(_entry(transaction, account, kind, amount, ref, reason))):
        return CreditResult(balance(transaction, account), added=False)
    if kind != "purchase":
        return CreditResult(_add(transaction, account, credits_remaining=amount), added=True)
    remaining = _add(transaction, account, credits_remaining=amount, credits_total_purchased=amount)
    own = models.Account.id == account
    transaction.execute(models.Account.update({models.Account.low_credits: -(-amount // LOW_PART)}).where(own))
    return CreditResult(remaining, added=True)


def claw_back(transaction: Transaction, account: str, credits: int, ref: str) -> int:
    """Removes credits whose payment was reversed, at most the balance. Returns the number removed. Raises NotFound."""
    row = transaction.select_for_update(models.Account.select().where(models.Account.id == account))
    if row is None:
        raise NotFound("account")
    amount = min(credits, row.credits_remaining)
    if amount > 0:
        transaction.execute_statement(INSERT_ENTRY, **_entry(transaction, account, "reversal", -amount, ref))
        _add(transaction, account, credits_remaining=-amount)
    return amount


def withdraw(transaction: Transaction, account: str, credits: int, ref: str, reason: str) -> int:
    """Removes granted credits and returns the balance. Raises NoCredits if it is less than that, and NotFound."""
    row = transaction.select_for_update(models.Account.select().where(models.Account.id == account))
    if row is None:
        raise NotFound("account")
    if row.credits_remaining < credits:
        raise NoCredits(row.credits_remaining, credits)
    transaction.insert_ignore(models.Entry.insert(_entry(transaction, account, "grant", -credits, ref, reason)))
    return _add(transaction, account, credits_remaining=-credits)


def list_grants(transaction: Transaction, account: str) -> tuple[Grant, ...]:
    """Returns the credits granted to an account and removed from it, oldest first."""
    table = models.Entry
    query = table.select(table.at, table.amount, table.reason).order_by(table.at, table.ref)
    own = (table.account == account) & (table.kind == "grant")
    return tuple(Grant(*row) for row in transaction.rows(query.where(own)))


@lookup
def balance(transaction: Transaction, account: str) -> int:
    """Returns the balance in credits, without held credits. Raises NotFound."""
    table = models.Account
    rows = transaction.rows(table.select(table.credits_remaining).where(table.id == account))
    if not rows:
        raise NotFound("account")
    return int(rows[0][0])


def reserve(
    transaction: Transaction,
    account: str,
    amount: int,
    owner: ServerInstance,
    hold_id: str | None = None,
    key: str | None = None,
) -> Hold:
    """Holds credits, or none for an operation that costs nothing, until the operation ends or its server stops.

    Raises NoCredits, also if `key` is no valid key of the account.
    A caller that passes `hold_id` can release the hold even if the call is cancelled before it returns.
    """
    if amount < 0:
        raise ValueError("amount must not be negative.")
    hold_id = hold_id or new_id("hold")
    hold = {"id": hold_id, "account": account, "amount": amount, "state": "held", **vars(owner)}
    times = {"now": transaction.now, "created_at": transaction.now, "expires_at": FOREVER}
    row = transaction.execute_all(RESERVE, **hold, **times, key=key)
    if row is None:
        raise NoCredits(balance(transaction, account), amount)
    return Hold(hold_id, account, amount, row[0])


def settle(transaction: Transaction, hold: Hold, record: UsageRecord, *additional: UsageRecord) -> int:
    """Charges a hold for an operation that succeeded. Returns the balance in credits.

    `further` are its results after the first one, which cost as much each. Raises HoldLost if the hold has ended;
    nothing is charged then, and the caller must discard the result.
    """
    entry = _entry(transaction, hold.account, "charge", -hold.amount, hold.id)
    part = hold.amount // (1 + len(additional))
    operation = {**vars(record), "success": True, "credits": hold.amount - len(additional) * part}
    row = transaction.execute_all(SETTLE, **entry, **operation, hold=hold.id, charged=hold.amount)
    if row is None:
        raise HoldLost
    for one in additional:
        usage.record(transaction, hold.account, one, success=True, credits=part)
    remaining = int(row[1])
    low_credits = row[2]
    if low_credits is not None and remaining < low_credits:
        _notify_low_credits(transaction, hold.account, remaining, low_credits)
    return remaining


def is_settled(transaction: Transaction, hold: Hold) -> bool:
    """Whether the hold has been charged. After CommitUnknown, this decides whether `settle` was committed."""
    return transaction.first(models.Entry.select().where(models.Entry.ref == hold.id)) is not None


def release(transaction: Transaction, account: str, hold_id: str, failed: UsageRecord | None = None) -> int:
    """Releases a hold and returns the balance in credits. Does nothing if the hold has ended.

    `failed` records a failed operation in the usage table.
    """
    rows = transaction.execute_statement(END_HOLD, hold=hold_id, account=account)
    if not rows:
        return balance(transaction, account)
    amount = int(rows[0][0])
    remaining = _add(transaction, account, credits_remaining=amount, credits_held=-amount)
    if failed:
        usage.record(transaction, account, failed, success=False, credits=0)
    return remaining


@reading
def find_open(transaction: Transaction, hold_ids: Sequence[str]) -> list[str]:
    """Returns which of the holds have not ended, in order."""
    table = models.Hold
    query = table.select(table.id).where(table.id.in_(hold_ids) & (table.state == "held"))
    return sorted(str(hold) for (hold,) in transaction.rows(query))


def release_all(transaction: Transaction, account: str, hold_ids: Sequence[str]) -> int:
    """Releases the holds of the account that have not ended. Returns their number."""
    table = models.Hold
    lock_account(transaction, account)
    own = (table.account == account) & table.id.in_(hold_ids) & (table.state == "held")
    return _return_credits(transaction, account, transaction.execute_returning(table.delete().where(own), table.amount))


def release_expired(transaction: Transaction) -> int:
    """Releases expired holds, such as those of servers that have stopped. Returns their number."""
    released = 0
    now = transaction.now
    for account in sorted({account for (account,) in transaction.execute_statement(FIND_EXPIRED_HOLDS, now=now)}):
        holds = transaction.execute_statement(END_EXPIRED_HOLDS, account=account, now=now)
        released += _return_credits(transaction, account, holds)
    return released


def lock_account(transaction: Transaction, account: str) -> None:
    """Makes other transactions that lock the account wait until this one ends."""
    transaction.select_for_update(models.Account.select(models.Account.id).where(models.Account.id == account))


def _notify_low_credits(transaction: Transaction, account: str, remaining: int, low_credits: int) -> None:
    """Adds messages about a low balance, once for a purchase."""
    if transaction.execute_statement(END_LOW_CREDITS, account=account):
        data = {"credits_remaining": remaining, "threshold": low_credits}
        deliveries.add(transaction, account, "credits.low", lambda: data)


def _return_credits(transaction: Transaction, account: str, amounts: Sequence[tuple[Any, ...]]) -> int:
    """Adds the amounts of ended holds to the balance of their account. Returns the number of holds."""
    total = sum(amount for (amount,) in amounts)
    if total:
        _add(transaction, account, credits_remaining=total, credits_held=-total)
    return len(amounts)


def _add(transaction: Transaction, account: str, **amounts: int) -> int:
    """Adds amounts to columns of an account. Returns its balance in credits."""
    table = models.Account
    changes = {name: getattr(table, name) + amount for name, amount in amounts.items()}
    rows = transaction.execute_returning(table.update(changes).where(table.id == account), table.credits_remaining)
    return int(rows[0][0])


def _entry(
    transaction: Transaction, account: str, kind: str, amount: int, ref: str, reason: str | None = None
) -> dict[str, Any]:
    entry = {"ref": ref, "account": account, "kind": kind, "amount": amount, "at": transaction.now}
    return entry if reason is None else {**entry, "reason": reason}
