"""Accounts: creation, lookup by id or email address, grants of credits, and deletion.

A deleted account is a row without email address and name, to which the rows of the ledger refer.
"""

import hashlib
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

from pydantic import Field

from storage.database.pages import Page, read_page
from storage.database.transaction import Statement, Transaction, columns, reading
from storage.errors import EmailTaken, NotFound
from storage.field_types import Credits, Email, Name, Timestamp
from storage.ids import new_id
from storage.tables import files, jobs, ledger, models, webhooks

TRIAL_EMAIL = "trials@convertd.invalid"
"""The address of the account that pays for trials. Its domain cannot exist, and registration refuses it."""

MAX_GRANT = 1_000_000_000
"""Credits that are granted or removed at once."""

Role = Literal["admin", "member"]

_DAY = 86_400  # seconds
_GMAIL = ("gmail.com", "googlemail.com")  # two names of the same mailboxes


@dataclass(frozen=True)
class StoredAccount:
    """An account. `credits_remaining` excludes `credits_held`.

    Without a `plan`, the server's settings and the purchases of the account decide. `plan_changes` is a JSON object.
    """

    id: Annotated[str, Field(exclude=True)]
    email: Email
    name: Name
    verified_at: Annotated[Timestamp | None, Field(exclude=True)]
    credits_remaining: Credits
    credits_held: Annotated[int, Field(exclude=True)]
    credits_total_purchased: Annotated[int, Field(ge=0, examples=[0])]
    credits_used_total: Annotated[int, Field(ge=0, examples=[1])]
    created_at: Timestamp
    last_used_at: Timestamp | None
    address: Annotated[str | None, Field(exclude=True)]
    plan: Annotated[str | None, Field(exclude=True)] = None
    plan_changes: Annotated[str | None, Field(exclude=True)] = None
    role: Annotated[Role, Field(exclude=True)] = "member"
    language: Annotated[str | None, Field(exclude=True)] = None


_COLUMNS = ", ".join(getattr(models.Account, one.name).column_name for one in fields(StoredAccount))
SELECT_ACCOUNT = Statement(f"SELECT {_COLUMNS} FROM account WHERE id = :account")


def create(
    transaction: Transaction,
    email: str,
    name: str,
    *,
    free_credits: int,
    verified: bool = True,
    address: str | None = None,
    once_per_mailbox: bool = False,
) -> StoredAccount:
    """Creates an account and grants its free credits. Raises EmailTaken.

    With `once_per_mailbox`, no credits are granted if an account of the same mailbox has got them on the same day.
    `address` is the network address of the client.
    """
    account = new_id("acct")
    row = {
        "id": account,
        "email": email.strip(),
        "email_key": email_key(email),
        "name": name,
        "verified_at": transaction.now if verified else None,
        "created_at": transaction.now,
        "address": address,
    }
    if not transaction.insert_ignore(models.Account.insert(row)):
        raise EmailTaken
    if free_credits:
        granted_to = _mailbox_and_day(email, transaction.now) if once_per_mailbox else account
        ledger.credit(transaction, account, "grant", free_credits, ref=f"welcome:{granted_to}")
    return get(transaction, account)


@reading
def get(transaction: Transaction, account: str) -> StoredAccount:
    """Returns the account with this id. Raises NotFound."""
    rows = transaction.execute_statement(SELECT_ACCOUNT, account=account)
    if not rows:
        raise NotFound("account")
    return StoredAccount(*rows[0])


def find(transaction: Transaction, email: str) -> StoredAccount | None:
    """Returns the account with this email address, or None."""
    return next(iter(_select(transaction, models.Account.email_key == email_key(email))), None)


@reading
def list_all(transaction: Transaction) -> tuple[StoredAccount, ...]:
    """Returns the accounts of all clients, oldest first, without deleted ones."""
    return _select(transaction, models.Account.email.not_in(["", TRIAL_EMAIL]))


@reading
def search(transaction: Transaction, text: str, *, limit: int, cursor: str | None = None) -> Page[StoredAccount]:
    """Returns accounts of clients whose address contains the text, newest first. Raises ValueError."""
    table = models.Account
    query = table.select(*columns(table, StoredAccount)).where(table.email.not_in(["", TRIAL_EMAIL]))
    if text.strip():
        query = query.where(table.email_key.contains(email_key(text)))
    return read_page(transaction, StoredAccount, query, table.created_at, table.id, limit=limit, cursor=cursor)


@reading
def emails(transaction: Transaction, ids: Collection[str]) -> dict[str, str]:
    """Returns the addresses of accounts by their ids, without deleted accounts."""
    table = models.Account
    query = table.select(table.id, table.email).where(table.id.in_(list(ids)) & (table.email != ""))
    return {str(account): str(email) for account, email in transaction.rows(query)}


@reading
def any_exists(transaction: Transaction) -> bool:
    """Whether at least one client has, or has had, an account."""
    return transaction.first(models.Account.select().where(models.Account.email != TRIAL_EMAIL)) is not None


def mark_verified(transaction: Transaction, account: str) -> None:
    """Records that the email address is verified. Keeps the time of the first verification."""
    table = models.Account
    unverified = (table.id == account) & table.verified_at.is_null()
    transaction.execute(table.update({table.verified_at: transaction.now}).where(unverified))


def grant(transaction: Transaction, email: str, amount: int, ref: str | None = None, reason: str | None = None) -> int:
    """Grants credits, or removes them if the amount is negative, for a reason. Returns the balance in credits.

    A positive amount is idempotent per `ref`, if given. Raises NotFound, and NoCredits if there are fewer to remove.
    """
    account = find(transaction, email)
    if account is None:
        raise NotFound("account")
    ref = ref or new_id("grant")
    if amount < 0:
        return ledger.withdraw(transaction, account.id, -amount, ref, reason or "")
    return ledger.credit(transaction, account.id, "grant", amount, ref, reason).balance


def change(transaction: Transaction, account: str, /, **values: str | None) -> None:
    """Sets columns of the account: `plan`, `plan_changes`, `role` and `language`."""
    table = models.Account
    changes = {getattr(table, name): value for name, value in values.items()}
    transaction.execute(table.update(changes).where(table.id == account))


@reading
def unknown_plans(transaction: Transaction, known: Collection[str]) -> tuple[str, ...]:
    """Returns the plans of accounts that are not among the known ones."""
    plan = models.Account.plan
    query = models.Account.select(plan).where(plan.is_null(False) & plan.not_in(list(known))).distinct()
    return tuple(sorted(name for (name,) in transaction.rows(query)))


def delete(transaction: Transaction, email: str) -> tuple[str, ...]:
    """Deletes an account with its keys, sessions, files, batches, jobs, webhooks, presets and logged requests.

    The rows of the ledger, of purchases and of usage stay. Returns the blobs that nothing refers to any more. Raises
    NotFound.
    """
    by_address = models.Account.select().where(models.Account.email_key == email_key(email))
    account = transaction.select_for_update(by_address)
    if account is None:
        raise NotFound("account")
    blobs = (*files.delete_all(transaction, account.id), *jobs.delete_all(transaction, account.id))
    keys = models.Key.select(models.Key.key_id).where(models.Key.account == account.id)
    transaction.execute(models.Session.delete().where(models.Session.api_key.in_(keys)))
    owned = (models.Key, models.Batch, models.Idempotency, models.Request, models.Preset)
    for table in (models.DashboardSession, *owned):
        transaction.execute(table.delete().where(table.account == account.id))
    webhooks.delete_all(transaction, account.id)
    transaction.execute(models.Identity.delete().where(models.Identity.account == account.id))
    _delete_verifications(transaction, account)
    # The id is unique, and no address: the address can have another account.
    anonymous = {"email": "", "email_key": account.id, "name": "", "address": None, "role": "member"}
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


def mailbox(email: str) -> str:
    """Returns the normalized address of the mailbox: without a tag after +, and for Gmail without dots."""
    local, _, domain = email_key(email).rpartition("@")
    local = local.partition("+")[0] or local
    if domain in _GMAIL:
        local = local.replace(".", "")
        domain = _GMAIL[0]
    return f"{local}@{domain}"


def _mailbox_and_day(email: str, now: int) -> str:
    """Identifies a mailbox on a day. Rows of the ledger stay when an account is deleted, so it names no address."""
    return hashlib.sha256(f"{mailbox(email)} {now // _DAY}".encode()).hexdigest()


def _select(transaction: Transaction, condition: Any) -> tuple[StoredAccount, ...]:
    """Returns accounts, oldest first."""
    table = models.Account
    query = table.select(*columns(table, StoredAccount)).where(condition).order_by(table.created_at, table.id)
    return transaction.values(StoredAccount, query)
