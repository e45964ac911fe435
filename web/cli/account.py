"""The `account` commands, which operators run next to a server: they use its database and file store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from config.pricing import FREE_CREDITS
from config.settings import Settings
from storage.database import Database, Transaction, reading
from storage.errors import NoCredits, NotFound, StorageError
from storage.field_types import format_timestamp
from storage.tables import accounts, api_keys, files, ledger, ledger_audit
from storage.tables.accounts import StoredAccount
from storage.tables.api_keys import IssuedKey, Key
from storage.tables.ledger import Grant
from web.api.values import to_json
from web.cli.output import (
    FAILED,
    WRONG_USAGE,
    Json,
    exit_on_storage_errors,
    exit_with,
    load_settings_or_exit,
    print_message,
    print_table,
)

if TYPE_CHECKING:
    from web.api.field_types import Model

R = TypeVar("R")

_MAX_CREDITS = 1_000_000_000  # per call

cli = typer.Typer(add_completion=False, no_args_is_help=True)
Email = Annotated[str, typer.Argument(help="The email address of the account.")]


@cli.command()
def create(
    email: Annotated[str, typer.Option(help="The email address of the owner.")],
    name: Annotated[str, typer.Option(help="The name of the application, 2 to 100 characters.")],
    credits: Annotated[int, typer.Option(min=0, max=_MAX_CREDITS, help="The initial credits.")] = FREE_CREDITS,
    unverified: Annotated[
        bool, typer.Option("--unverified", help="Do not mark the email address as verified.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Create an account and print its API key, which is not shown again."""
    from web.api.fields import RegistrationFields  # noqa: PLC0415, which imports the engine

    checked = _validate(RegistrationFields, email=email, name=name)
    address = checked.email
    display_name = checked.name

    def create_account(transaction: Transaction) -> IssuedKey:
        account = accounts.create(transaction, address, display_name, free_credits=credits, verified=not unverified)
        return api_keys.issue(transaction, account.id, display_name)

    settings = load_settings_or_exit()
    issued = _run_transaction(settings, create_account)
    if as_json:
        return print(json.dumps({"api_key": issued.text, "key_id": issued.key.key_id, "email": address}))
    print(issued.text)
    print_message(f"created an account for {address} with {credits} credits; its API key is not shown again.")
    return print_message(f"the account is in the database {settings.masked_database_url()}")


@cli.command("list")
def list_accounts(as_json: Json = False) -> None:
    """List all accounts with their credits."""
    found = [_account_fields(one) for one in _run_transaction(load_settings_or_exit(), accounts.list_all)]
    if as_json:
        return print(json.dumps(found, indent=2))
    columns = ("email", "name", "credits_remaining", "credits_used_total", "created_at")
    headers = [column.replace("_", " ") for column in columns]
    return print_table(headers, ([fields[column] for column in columns] for fields in found), fold=False)


@cli.command()
def show(email: Email, as_json: Json = False) -> None:
    """Show an account, its credits, its stored files and its API keys."""

    @reading
    def read(transaction: Transaction) -> tuple[StoredAccount, int, tuple[Key, ...], tuple[Grant, ...]]:
        account = _find(transaction, email)
        stored_bytes = files.stored_bytes(transaction, account.id)
        keys = api_keys.list_keys(transaction, account.id)
        return account, stored_bytes, keys, ledger.list_grants(transaction, account.id)

    account, stored_bytes, keys, grants = _run_transaction(load_settings_or_exit(), read)
    fields = {**_account_fields(account), "stored_bytes": stored_bytes}
    if as_json:
        granted = [{**vars(one), "at": format_timestamp(one.at)} for one in grants]
        return print(json.dumps({**fields, "keys": [to_json(key) for key in keys], "grants": granted}, indent=2))
    rows = [(name.replace("_", " "), value) for name, value in fields.items()]
    rows += [("key", f"{key.key_prefix}… {key.name}") for key in keys]
    rows += [("grant", f"{one.amount:+} {format_timestamp(one.at)} {one.reason or ''}".strip()) for one in grants]
    return print_table(("field", "value"), rows, fold=False)


@cli.command()
def delete(
    email: Email, yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a question.")] = False
) -> None:
    """Delete an account, its API keys and its files. Its ledger is kept without its name and email address."""
    from web.workers.executor_setup import open_blobs  # noqa: PLC0415, as above

    settings = load_settings_or_exit()
    account = _run_transaction(settings, lambda transaction: _find(transaction, email))
    question = (
        f"Delete the account {account.email} with {account.credits_remaining} credits, its API keys and its files?"
    )
    if not yes and not typer.confirm(question, err=True):
        exit_with("nothing was deleted.", FAILED)
    with exit_on_storage_errors():
        blob_store = open_blobs(settings)
    blobs = _run_transaction(settings, lambda transaction: accounts.delete(transaction, account.email))
    try:
        asyncio.run(blob_store.delete(blobs))
    except (OSError, StorageError) as error:
        exit_with(f"the account is deleted, but not its files; the server will delete them: {error}", FAILED)
    print_message(f"deleted the account {account.email}; stored files erased: {len(blobs)}.")


@cli.command(context_settings={"ignore_unknown_options": True})  # a negative number looks like an option
def grant(
    email: Email,
    credits: Annotated[
        int,
        typer.Argument(
            metavar="N", min=-_MAX_CREDITS, max=_MAX_CREDITS, help="The number of credits; negative to remove them."
        ),
    ],
    reason: Annotated[
        str, typer.Option(help="Why, for the ledger; required to remove credits. Only operators see it.")
    ] = "",
) -> None:
    """Add credits to an account, or remove them, and print its balance."""
    from web.api.fields import EmailFields  # noqa: PLC0415, as above

    address = _validate(EmailFields, email=email).email
    text = " ".join(reason.split()) or None
    if credits == 0 or (credits < 0 and text is None):
        exit_with("N must not be 0, and a negative N needs a --reason", WRONG_USAGE)

    def add(transaction: Transaction) -> int:
        try:
            return accounts.grant(transaction, address, credits, reason=text)
        except NoCredits as error:
            exit_with(f"the account has only {error.balance} credits.", FAILED)

    print(_run_transaction(load_settings_or_exit(), add))


@cli.command()
def audit() -> None:
    """Check the ledger for inconsistencies. Reads the whole database, one account after the other."""
    consistent = True
    last = ""
    with _database(load_settings_or_exit()) as database:
        while account_ids := database.run_blocking(ledger_audit.next_accounts, last):
            for last in account_ids:
                for problem in database.run_blocking(ledger_audit.check, last):
                    consistent = False
                    print(problem)
    if not consistent:
        raise typer.Exit(FAILED)
    print_message("the ledger is consistent.")


def _find(transaction: Transaction, email: str) -> StoredAccount:
    """Returns the account with this address. Raises NotFound."""
    account = accounts.find(transaction, email)
    if account is None or not account.email:
        raise NotFound("account")
    return account


def _account_fields(account: StoredAccount) -> dict[str, Any]:
    """The fields of an account, named as in the API, and those that only operators see."""
    verified_at = None if account.verified_at is None else format_timestamp(account.verified_at)
    return {
        "id": account.id,
        **to_json(account),
        "verified_at": verified_at,
        "credits_held": account.credits_held,
    }


def _validate(model: type[Model], **values: str) -> Model:
    """Returns the validated fields. Exits if one is invalid by the rules of the API."""
    from web.api.errors import InvalidParameter  # noqa: PLC0415, as above
    from web.api.field_types import validate  # noqa: PLC0415

    try:
        return validate(model, values)
    except InvalidParameter as error:
        exit_with(str(error), WRONG_USAGE)


def _run_transaction(settings: Settings, work: Callable[[Transaction], R]) -> R:
    """Runs the work in one transaction of the configured database. Exits if that fails."""
    with _database(settings) as database:
        return database.run_blocking(work)


@contextmanager
def _database(settings: Settings) -> Iterator[Database]:
    """The configured database. Exits if it cannot be used, in the block too."""
    with exit_on_storage_errors():
        database = Database(settings.resolved_database_url())
        try:
            yield database
        finally:
            database.close()
