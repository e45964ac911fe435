"""Accounts: creation, lookup by id or email address, grants of credits, and deletion.

A deleted account is a row without email address and name, to which the rows of the ledger refer.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from storage.database import Transaction
from storage.errors import EmailTaken, NotFound
from storage.ids import new_id
from storage.tables import files, ledger, models


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


def list_all(transaction: Transaction) -> tuple[Account, ...]:
    """Returns all accounts, oldest first, without deleted ones."""
    table = models.Account
    query = table.select().where(table.email != "").order_by(table.created_at, table.id)
    return tuple(map(_from_row, transaction.all(query)))


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


def delete(transaction: Transaction, email: str) -> tuple[str, ...]:
    """Deletes an account with its keys, sessions, files, batches and logged requests. Raises NotFound.

    The rows of the ledger, of purchases and of usage stay. Returns the blobs that no file refers to any more.
    """
    by_address = models.Account.select().where(models.Account.email_key == email_key(email))
    account = transaction.select_for_update(by_address)
    if account is None:
        raise NotFound("account")
    blobs = files.delete_all(transaction, account.id)
    keys = models.Key.select(models.Key.id).where(models.Key.account == account.id)
    transaction.execute(models.Session.delete().where(models.Session.api_key.in_(keys)))
    for table in (models.Key, models.Batch, models.Idempotency, models.Request):
        transaction.execute(table.delete().where(table.account == account.id))
    _delete_verifications(transaction, account)
    # The id is unique, and no address: the address can have another account.
    anonymous = {"email": "", "email_key": account.id, "name": ""}
    transaction.execute(models.Account.update(anonymous).where(models.Account.id == account.id))
    return blobs


def _delete_verifications(transaction: Transaction, account: models.Account) -> None:
    """Deletes the tokens of the account, also those that were sent before it existed."""
    table = models.Verification
    addresses = {row.email for row in transaction.all(table.select(table.email).distinct())}
    own = [address for address in addresses if email_key(address) == account.email_key]
    transaction.execute(table.delete().where((table.account == account.id) | table.email.in_(own)))


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
