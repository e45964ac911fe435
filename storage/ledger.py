"""The ledger: credits come in once, are held while an operation runs, and go out when it succeeds.

What the journal sums up to is always the balance plus what is held. Holds are changed before accounts, and
accounts in the order of their ids, so that transactions do not wait for each other in circles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from storage import models, usage
from storage.charge_queries import ADD_ENTRY, ADD_HOLD, CHARGE, RESOLVE, SET_ASIDE
from storage.errors import HoldLost, NoCredits, NotFound
from storage.ids import new_id
from storage.transaction import Transaction
from storage.usage import UsageRecord

Income = Literal["grant", "purchase", "reversal"]


@dataclass(frozen=True)
class ServerInstance:
    """Who runs an operation: a server, by a name that it keeps, and which of its runs since it was set up."""

    server: str
    boot: str


@dataclass(frozen=True)
class Hold:
    """Credits set aside. `balance` is what was left then."""

    id: str
    account: str
    amount: int
    balance: int


@dataclass(frozen=True)
class CreditResult:
    """The balance after credits were to come in; `fresh` is False where they had come in before."""

    balance: int
    fresh: bool


def credit(transaction: Transaction, account: str, kind: Income, amount: int, ref: str) -> CreditResult:
    """Credits come in, once for every `ref`, however often this is called. Raises Missing for an unknown account."""
    if amount <= 0:
        raise ValueError("Credits that come in are more than 0.")
    balance(transaction, account)
    if not transaction.add_if_new(models.Entry.insert(_entry(transaction, account, kind, amount, ref))):
        return CreditResult(balance(transaction, account), fresh=False)
    changes: dict[Any, Any] = {models.Account.balance: models.Account.balance + amount}
    if kind == "purchase":
        changes[models.Account.purchased] = models.Account.purchased + amount
    return CreditResult(_change(transaction, account, changes), fresh=True)


def claw_back(transaction: Transaction, account: str, most: int, ref: str) -> int:
    """Credits go out for which the money went back, but never more than there are; says how many. Raises Missing."""
    row = transaction.locked(models.Account.select().where(models.Account.id == account))
    if row is None:
        raise NotFound("account")
    amount = min(most, row.balance)
    if amount > 0:
        transaction.ask(ADD_ENTRY, **_entry(transaction, account, "reversal", -amount, ref))
        _change(transaction, account, {models.Account.balance: models.Account.balance - amount})
    return amount


def balance(transaction: Transaction, account: str) -> int:
    """What the account may spend. Raises Missing."""
    found = transaction.tuples(models.Account.select(models.Account.balance).where(models.Account.id == account))
    if not found:
        raise NotFound("account")
    return int(found[0][0])


def reserve(
    transaction: Transaction,
    account: str,
    amount: int,
    owner: ServerInstance,
    lifetime: int,
    hold_id: str | None = None,
) -> Hold:
    """Sets credits aside for `lifetime` seconds at most. Raises NoCredits.

    A caller that chooses the id beforehand can release the hold even when it was cancelled while it waited.
    """
    if amount <= 0:
        raise ValueError("Credits to hold are more than 0.")
    found = transaction.ask(SET_ASIDE, account=account, amount=amount)
    if not found:
        raise NoCredits(balance(transaction, account), amount)
    hold = Hold(hold_id or new_id("hold"), account, amount, found[0][0])
    row = {
        "id": hold.id,
        "account": account,
        "amount": amount,
        "state": "held",
        "server": owner.server,
        "boot": owner.boot,
        "created_at": transaction.now,
        "expires_at": transaction.now + lifetime,
    }
    transaction.ask(ADD_HOLD, **row)
    return hold


def settle(
    transaction: Transaction, hold: Hold, use: UsageRecord, also: Callable[[Transaction], object] | None = None
) -> int:
    """Charges what is held, for an operation that succeeded; gives the balance.

    `also` writes what has to be kept together with the charge. Raises HoldLost where the hold is no longer held;
    then nothing is charged and nothing kept, and the result must not be given out.
    """
    amount = _end_hold(transaction, hold.account, hold.id, "settled")
    if not amount:
        raise HoldLost
    ((left,),) = transaction.ask(CHARGE, account=hold.account, amount=amount)
    transaction.ask(ADD_ENTRY, **_entry(transaction, hold.account, "charge", -amount, hold.id))
    usage.record(transaction, hold.account, use, success=True, credits=amount)
    if also:
        also(transaction)
    return int(left)


def is_settled(transaction: Transaction, hold: Hold) -> bool:
    """Whether the hold has been charged: the question to ask after an OutcomeUnknown."""
    settled = (models.Hold.id == hold.id) & (models.Hold.state == "settled")
    return transaction.first(models.Hold.select().where(settled)) is not None


def release(transaction: Transaction, account: str, hold_id: str, failed: UsageRecord | None = None) -> int:
    """Gives back what is held, if it still is; gives the balance. `failed` is for operations that ran and failed."""
    amount = _end_hold(transaction, account, hold_id, "released")
    if not amount:
        return balance(transaction, account)
    if failed:
        usage.record(transaction, account, failed, success=False, credits=0)
    return _return_credits(transaction, account, amount)


def recover(transaction: Transaction, owner: ServerInstance) -> int:
    """Gives back what earlier runs of this server held when they ended; says how many holds that were."""
    return _release_all(transaction, (models.Hold.server == owner.server) & (models.Hold.boot != owner.boot))


def sweep(transaction: Transaction) -> int:
    """Gives back what has been held for longer than it was to be; says how many holds that were."""
    return _release_all(transaction, models.Hold.expires_at <= transaction.now)


def _release_all(transaction: Transaction, which: Any) -> int:
    table = models.Hold
    released = table.update({table.state: "released"}).where((table.state == "held") & which)
    holds = transaction.change_returning(released, table.account, table.amount)
    totals: Counter[str] = Counter()
    for account, amount in holds:
        totals[account] += amount
    for account in sorted(totals):
        _return_credits(transaction, account, totals[account])
    return len(holds)


def _end_hold(transaction: Transaction, account: str, hold_id: str, state: Literal["settled", "released"]) -> int:
    """Ends a hold; gives its amount, or 0 where it is none of this account's or has ended before."""
    found = transaction.ask(RESOLVE, hold=hold_id, account=account, state=state)
    return int(found[0][0]) if found else 0


def _return_credits(transaction: Transaction, account: str, amount: int) -> int:
    table = models.Account
    changes = {table.balance: table.balance + amount, table.held: table.held - amount}
    return _change(transaction, account, changes)


def _change(transaction: Transaction, account: str, changes: dict[Any, Any]) -> int:
    """Changes an account; gives its balance."""
    table = models.Account
    found = transaction.change_returning(table.update(changes).where(table.id == account), table.balance)
    return int(found[0][0])


def _entry(transaction: Transaction, account: str, kind: str, amount: int, ref: str) -> dict[str, Any]:
    return {"ref": ref, "account": account, "kind": kind, "amount": amount, "at": transaction.now}
