"""Identities: subjects of OpenID Connect issuers, and the accounts that sign in with them."""

from storage.database.transaction import Transaction
from storage.tables import accounts, audit, models, sessions
from storage.tables.accounts import Role, StoredAccount


class NotAllowed(Exception):
    """The identity has no account, and gets none. `str(error)` has the reason."""


def sign_in(
    transaction: Transaction,
    issuer: str,
    subject: str,
    email: str | None,
    name: str,
    *,
    may_create: bool,
    free_credits: int,
    role: Role | None,
) -> str:
    """Starts a session of the account of an identity, and returns its token. Sets its role, if one is given.

    `email` is an address that the issuer has verified. By it, an identity without an account gets an existing one, or
    if it `may_create`, a new one. Raises NotAllowed.
    """
    table = models.Identity
    row = transaction.first(table.select().where((table.issuer == issuer) & (table.subject == subject)))
    if row is None:
        account = _adopt(transaction, email, name, free_credits if may_create else None)
        identity = {"issuer": issuer, "subject": subject, "account": account.id, "created_at": transaction.now}
        transaction.insert_ignore(table.insert(identity))
        audit.record(transaction, account.id, "link", account.id, issuer=issuer)
    else:
        account = accounts.get(transaction, row.account)
    if role is not None and role != account.role:
        accounts.change(transaction, account.id, role=role)
        audit.record(transaction, issuer, "set", account.id, role=role)
    return sessions.begin_without_key(transaction, account.id)


def _adopt(transaction: Transaction, email: str | None, name: str, free_credits: int | None) -> StoredAccount:
    if email is None:
        raise NotAllowed("The sign-in service has not verified your email address.")
    account = accounts.find(transaction, email)
    if account is None and free_credits is None:
        raise NotAllowed("You have no account here: ask the operator of this service for an invitation.")
    if account is None:
        return accounts.create(transaction, email, name, free_credits=free_credits or 0)
    accounts.mark_verified(transaction, account.id)
    return account
