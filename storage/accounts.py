"""Accounts: creation, lookup by id or email address, and grants of credits."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from storage import ledger, models
from storage.errors import EmailTaken, NotFound
from storage.ids import new_id
from storage.transaction import Transaction


@dataclass(frozen=True)
class Account:
    """An account. Amounts are credits, times are Unix time in whole seconds."""

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
    """Creates an account and grants its free credits. Raises EmailTaken."""
    account = new_id("acct")
    row = {
        "id": account,
        "email": email.strip(),
        "email_key": email_key(email),
        "name": name,
        "verified_at": transaction.now if verified else None,
        "created_at": transaction.now,
    }
    if not transaction.insert_ignore(models.Account.insert(row)):
        raise EmailTaken
    if free_credits:
        ledger.credit(transaction, account, "grant", free_credits, ref=f"welcome:{account}")
    return get(transaction, account)


def get(transaction: Transaction, account: str) -> Account:
    """Returns the account with this id. Raises NotFound."""
    row = transaction.first(models.Account.select().where(models.Account.id == account))
    if row is None:
        raise NotFound("account")
    return _from_row(row)


def find(transaction: Transaction, email: str) -> Account | None:
    """Returns the account with this email address, or None."""
    row = transaction.first(models.Account.select().where(models.Account.email_key == email_key(email)))
    return _from_row(row) if row else None


def any_exists(transaction: Transaction) -> bool:
    """Whether at least one account exists."""
    return transaction.first(models.Account.select()) is not None


def mark_verified(transaction: Transaction, account: str) -> None:
    """Records that the email address is verified. Keeps the time of the first verification."""
    table = models.Account
    unverified = (table.id == account) & table.verified_at.is_null()
    transaction.execute(table.update({table.verified_at: transaction.now}).where(unverified))


def grant(transaction: Transaction, email: str, amount: int, ref: str | None = None) -> int:
    """Grants credits. Idempotent per `ref`, if given. Returns the balance in credits. Raises NotFound."""
    account = find(transaction, email)
    if account is None:
        raise NotFound("account")
    return ledger.credit(transaction, account.id, "grant", amount, ref or new_id("grant")).balance


def email_key(email: str) -> str:
    """Returns the normalized address by which accounts are unique: trimmed, NFC, lower case."""
    return unicodedata.normalize("NFC", email.strip()).lower()


def _from_row(row: models.Account) -> Account:
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
