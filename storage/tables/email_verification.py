"""Email verification: single-use tokens sent to the address of an account, to register it or to sign in."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from storage.database import Transaction
from storage.errors import EmailTaken, NotFound
from storage.tables import accounts, api_keys, models, sessions
from storage.tables.accounts import StoredAccount
from storage.tables.api_keys import IssuedKey, digest

Purpose = Literal["register", "replace", "sign_in"]

VALIDITY = 86_400  # seconds
SIGN_IN_VALIDITY = 900  # seconds
INVITATION_VALIDITY = 604_800  # seconds: 7 days
_TOKEN_BYTES = 32


@dataclass(frozen=True)
class Registration:
    """The content of a verification email. `token` is its only copy; the repr omits it.

    `email`, `name` and `language` are the account's own if the address has one. The API responds alike to new and known
    addresses.
    """

    purpose: Purpose
    email: str
    name: str
    token: str = field(repr=False)
    expires_at: int
    language: str | None


@dataclass(frozen=True)
class Verified:
    """An account with a verified address, and a new key for it."""

    purpose: Purpose
    account: StoredAccount
    issued: IssuedKey


def register(transaction: Transaction, email: str, name: str) -> Registration:
    """Creates a token that registers an account, or replaces a lost key if the address has an account."""
    account = accounts.find(transaction, email)
    return _issue(transaction, "replace" if account else "register", account, email, name, VALIDITY)


def request_sign_in(transaction: Transaction, email: str) -> Registration | None:
    """Creates a token that signs in to the account of the address. Returns None if the address has no account.

    A row is also written then, so that the duration does not reveal whether the address has an account.
    """
    account = accounts.find(transaction, email)
    issued = _issue(transaction, "sign_in", account, email, "", SIGN_IN_VALIDITY)
    return issued if account else None


def invite(transaction: Transaction, email: str, name: str, free_credits: int) -> Registration:
    """Creates a token that signs in to the account of the address, which is created, unverified, if there is none."""
    account = accounts.find(transaction, email)
    if account is None:
        account = accounts.create(transaction, email, name, free_credits=free_credits, verified=False)
    return _issue(transaction, "sign_in", account, email, "", INVITATION_VALIDITY)


def _issue(
    transaction: Transaction, purpose: Purpose, account: StoredAccount | None, email: str, name: str, validity: int
) -> Registration:
    token = secrets.token_hex(_TOKEN_BYTES)
    shown: dict[str, Any] = {
        "purpose": purpose,
        "email": account.email if account else email.strip(),
        "name": account.name if account else name,
        "expires_at": transaction.now + validity,
    }
    hidden = {"sha256": digest(token), "account": account.id if account else None, "created_at": transaction.now}
    transaction.insert(models.Verification.insert(shown | hidden))
    return Registration(**shown, token=token, language=account.language if account else None)


def verify(
    transaction: Transaction,
    token: str,
    *,
    free_credits: int,
    once_per_mailbox: bool = False,
    address: str | None = None,
) -> Verified:
    """Consumes a token: creates the account if needed and issues a key. Other keys stay valid.

    A new account gets its `free_credits` and its `address` as `accounts.create` does. Raises NotFound if the token is
    unknown, used, or older than 24 hours.
    """
    email, name, _ = _consume(transaction, token, "register", "replace")
    create = partial(accounts.create, free_credits=free_credits, once_per_mailbox=once_per_mailbox, address=address)
    purpose, account = _account(transaction, email, name, create)
    accounts.mark_verified(transaction, account)
    issued = api_keys.issue(transaction, account, name)
    return Verified(purpose, accounts.get(transaction, account), issued)


def sign_in(transaction: Transaction, token: str) -> str:
    """Consumes a token of `request_sign_in`, and starts a session. Returns its token.

    The email address of the account counts as verified. Raises NotFound if the token is unknown, used, or too
    old.
    """
    _, _, account = _consume(transaction, token, "sign_in")
    if account is None:
        raise NotFound("sign-in token")
    accounts.mark_verified(transaction, account)
    return sessions.begin_without_key(transaction, account)


def _consume(transaction: Transaction, token: str, *purposes: Purpose) -> tuple[str, str, str | None]:
    """Returns the email address, the name and the account of an unused token, which is used from now on."""
    table = models.Verification
    unused = (table.sha256 == digest(token)) & table.used_at.is_null() & (table.expires_at > transaction.now)
    used = table.update({table.used_at: transaction.now}).where(unused & table.purpose.in_(purposes))
    rows = transaction.execute_returning(used, table.email, table.name, table.account)
    if not rows:
        raise NotFound("verification token")
    email, name, account = rows[0]
    return email, name, account


def delete_expired(transaction: Transaction) -> int:
    """Deletes expired tokens. Returns their number."""
    table = models.Verification
    return transaction.execute(table.delete().where(table.expires_at <= transaction.now))


def _account(
    transaction: Transaction, email: str, name: str, create: Callable[[Transaction, str, str], StoredAccount]
) -> tuple[Purpose, str]:
    """Returns the id of the address's account, which is created if needed, and what the token was used for."""
    try:
        return "register", create(transaction, email, name).id
    except EmailTaken:  # also if another token for the same address was used first
        account = accounts.find(transaction, email)
        if account is None:
            raise
        return "replace", account.id
