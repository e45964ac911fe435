"""Registration: an address is shown to be somebody's by a token that is mailed to it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Literal

from storage import accounts, api_keys, models
from storage.accounts import Account
from storage.api_keys import IssuedKey, digest
from storage.errors import EmailTaken, NotFound
from storage.transaction import Transaction

Purpose = Literal["register", "replace"]

VALIDITY = 86_400  # seconds
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Registration:
    """What is to be mailed, and where to. Of an address that has an account these are the account's own.

    The same is done for a new address and for a known one, and the client must be told the same. `token` is the
    only copy; it is kept out of the repr.
    """

    purpose: Purpose
    email: str
    name: str
    token: str = field(repr=False)
    expires_at: int


@dataclass(frozen=True)
class Verified:
    """An account whose address is verified, and a new key to it."""

    purpose: Purpose
    account: Account
    issued: IssuedKey


def register(transaction: Transaction, email: str, name: str) -> Registration:
    """Begins an account, or the replacement of a lost key where the address has one."""
    known = accounts.find(transaction, email)
    registration = Registration(
        purpose="replace" if known else "register",
        email=known.email if known else email.strip(),
        name=known.name if known else name,
        token=secrets.token_hex(_TOKEN_BYTES),
        expires_at=transaction.now + VALIDITY,
    )
    row = {
        "sha256": digest(registration.token),
        "purpose": registration.purpose,
        "account": known.id if known else None,
        "email": registration.email,
        "name": registration.name,
        "created_at": transaction.now,
        "expires_at": registration.expires_at,
    }
    transaction.add(models.Verification.insert(row))
    return registration


def verify(transaction: Transaction, token: str, *, free_credits: int) -> Verified:
    """Uses a token up: makes the account if there is none yet, and a key. Other keys go on working.

    Raises Missing for a token that is unknown, used, or older than 24 hours.
    """
    table = models.Verification
    unused = (table.sha256 == digest(token)) & table.used_at.is_null() & (table.expires_at > transaction.now)
    used = table.update({table.used_at: transaction.now}).where(unused)
    found = transaction.change_returning(used, table.email, table.name)
    if not found:
        raise NotFound("verification token")
    email, name = found[0]
    purpose, account = _account(transaction, email, name, free_credits)
    accounts.verify(transaction, account)
    issued = api_keys.issue(transaction, account, name)
    return Verified(purpose, accounts.get(transaction, account), issued)


def _account(transaction: Transaction, email: str, name: str, free_credits: int) -> tuple[Purpose, str]:
    """The id of the account of that address. Of two registrations, the second finds the account of the first."""
    try:
        return "register", accounts.create(transaction, email, name, free_credits=free_credits, verified=True).id
    except EmailTaken:
        known = accounts.find(transaction, email)
        if known is None:
            raise
        return "replace", known.id


def sweep(transaction: Transaction) -> int:
    """Forgets tokens that can no longer be used; says how many."""
    table = models.Verification
    return transaction.change(table.delete().where(table.expires_at <= transaction.now))
