"""Accounts: who has one, and what stands in it."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from storage import ledger, models
from storage.errors import EmailTaken, NotFound
from storage.ids import new_id
from storage.transaction import Transaction


@dataclass(frozen=True)
class Account:
    """An account as it stands now. Amounts are credits, times Unix time in whole seconds."""

    id: str
    email: str
    name: str
    verified_at: int | None
    balance: int
    held: int
    purchased: int
    used: int
    created_at: int
    last_used_at: int | None


def create(transaction: Transaction, email: str, name: str, *, free_credits: int, verified: bool = True) -> Account:
    """A new account with its free credits. Raises EmailTaken."""
    account = new_id("acct")
    row = {
        "id": account,
        "email": email.strip(),
        "email_key": email_key(email),
        "name": name,
        "verified_at": transaction.now if verified else None,
        "created_at": transaction.now,
    }
    if not transaction.add_if_new(models.Account.insert(row)):
        raise EmailTaken
    if free_credits:
        ledger.credit(transaction, account, "grant", free_credits, ref=f"welcome:{account}")
    return get(transaction, account)


def get(transaction: Transaction, account: str) -> Account:
    """The account of that id. Raises Missing."""
    found = transaction.first(models.Account.select().where(models.Account.id == account))
    if found is None:
        raise NotFound("account")
    return value(found)


def find(transaction: Transaction, email: str) -> Account | None:
    """The account of an e-mail address, if it has one."""
    found = transaction.first(models.Account.select().where(models.Account.email_key == email_key(email)))
    return value(found) if found else None


def exist(transaction: Transaction) -> bool:
    """Whether there is any account."""
    return transaction.first(models.Account.select()) is not None


def verify(transaction: Transaction, account: str) -> None:
    """Notes that the address is the owner's. The first time counts."""
    table = models.Account
    unverified = (table.id == account) & table.verified_at.is_null()
    transaction.change(table.update({table.verified_at: transaction.now}).where(unverified))


def grant(transaction: Transaction, email: str, amount: int, ref: str | None = None) -> int:
    """Gives an account credits, once for every `ref` where there is one; gives the balance. Raises Missing."""
    account = find(transaction, email)
    if account is None:
        raise NotFound("account")
    return ledger.credit(transaction, account.id, "grant", amount, ref or new_id("grant")).balance


def email_key(email: str) -> str:
    """What is the same for all spellings of an address that differ in case only."""
    return unicodedata.normalize("NFC", email.strip()).lower()


def value(row: models.Account) -> Account:
    """The row as a value, for other modules of this folder."""
    return Account(
        id=row.id,
        email=row.email,
        name=row.name,
        verified_at=row.verified_at,
        balance=row.balance,
        held=row.held,
        purchased=row.purchased,
        used=row.used,
        created_at=row.created_at,
        last_used_at=row.last_used_at,
    )
