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
from storage.tables import audit as audit_log
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
from web.services.accounts.plans import plan_of

if TYPE_CHECKING:
    from web.api.field_types import Model

R = TypeVar("R")

_MAX_CREDITS = accounts.MAX_GRANT

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
        audit_log.record(transaction, audit_log.OPERATOR, "create", account.id)
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
    from web.services.accounts import changes  # noqa: PLC0415, as above
    from web.workers.executor_setup import open_blobs  # noqa: PLC0415

    settings = load_settings_or_exit()
    account = _run_transaction(settings, lambda transaction: _find(transaction, email))
    question = (
        f"Delete the account {account.email} with {account.credits_remaining} credits, its API keys and its files?"
    )
    if not yes and not typer.confirm(question, err=True):
        exit_with("nothing was deleted.", FAILED)
    with exit_on_storage_errors():
        blob_store = open_blobs(settings)

    blobs = _run_transaction(settings, lambda transaction: changes.delete(transaction, audit_log.OPERATOR, account))
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
    from web.services.accounts import changes  # noqa: PLC0415

    address = _validate(EmailFields, email=email).email
    text = " ".join(reason.split()) or None
    if credits == 0 or (credits < 0 and text is None):
        exit_with("N must not be 0, and a negative N needs a --reason", WRONG_USAGE)

    def add(transaction: Transaction) -> int:
        try:
            return changes.grant(transaction, audit_log.OPERATOR, _find(transaction, address), credits, text)
        except NoCredits as error:
            exit_with(f"the account has only {error.balance} credits.", FAILED)

    print(_run_transaction(load_settings_or_exit(), add))


@cli.command("set")
def set_account(
    email: Email,
    plan: Annotated[str | None, typer.Option(help="The name of a plan of the settings.")] = None,
    max_file_size: Annotated[str | None, typer.Option(help="Bytes, or a size such as 500MB.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(help="Requests per minute.")] = None,
    max_concurrent: Annotated[int | None, typer.Option(help="Conversions at the same time.")] = None,
    max_stored_bytes: Annotated[
        str | None, typer.Option("--max-stored-bytes", "--storage", help="Bytes, or a size such as 50GB.")
    ] = None,
    file_retention_seconds: Annotated[
        int | None, typer.Option("--file-retention-seconds", "--retention", help="Seconds that files are kept.")
    ] = None,
    job_seconds: Annotated[
        int | None, typer.Option(help="Seconds that a conversion in the background may run.")
    ] = None,
    unmetered: Annotated[
        bool | None, typer.Option("--unmetered/--metered", help="Whether conversions cost nothing.")
    ] = None,
    role: Annotated[str | None, typer.Option(help="admin or member.")] = None,
    reset: Annotated[bool, typer.Option("--reset", help="First remove the plan and limits that were set.")] = False,
    as_json: Json = False,
) -> None:
    """Set the plan of an account, limits that differ from it, and its role."""
    from web.services.accounts.changes import account_change, apply_change  # noqa: PLC0415, as above

    settings = load_settings_or_exit()
    limits = {
        "max_file_size": max_file_size,
        "requests_per_minute": requests_per_minute,
        "max_concurrent": max_concurrent,
        "max_stored_bytes": max_stored_bytes,
        "file_retention_seconds": file_retention_seconds,
        "job_seconds": job_seconds,
        "unmetered": unmetered,
    }
    try:
        checked = account_change(settings, {"plan": plan, "role": role, **limits}, reset=reset)
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)

    def change(transaction: Transaction) -> StoredAccount:
        return apply_change(transaction, audit_log.OPERATOR, _find(transaction, email), checked)

    effective = plan_of(_run_transaction(settings, change), settings)
    if as_json:
        return print(json.dumps(vars(effective)))
    return print_table(("limit", "value"), vars(effective).items(), fold=False)


@cli.command()
def key(
    email: Email, name: Annotated[str, typer.Option(help="The name of the key.")] = "", as_json: Json = False
) -> None:
    """Make another API key of an account and print it. No email is sent; its address counts as verified."""

    def issue(transaction: Transaction) -> IssuedKey:
        account = _find(transaction, email)
        accounts.mark_verified(transaction, account.id)
        issued = api_keys.add(transaction, account.id, name.strip() or account.name)
        audit_log.record(transaction, audit_log.OPERATOR, "key", account.id, key_id=issued.key.key_id)
        return issued

    issued = _run_transaction(load_settings_or_exit(), issue)
    if as_json:
        return print(json.dumps({"api_key": issued.text, "key_id": issued.key.key_id, "email": email}))
    print(issued.text)
    return print_message("the key is not shown again; the other keys of the account stay valid.")


@cli.command()
def invite(
    email: Email,
    name: Annotated[str, typer.Option(help="The name of a new account; by default that of the address.")] = "",
    plan: Annotated[str | None, typer.Option(help="The name of a plan of the settings.")] = None,
    role: Annotated[str | None, typer.Option(help="admin or member.")] = None,
    as_json: Json = False,
) -> None:
    """Make an account for an address, and print a link to sign in to it, which is also sent if SMTP is set up."""
    from web.api.errors import InvalidParameter  # noqa: PLC0415, as above
    from web.services.accounts.changes import account_change, invitation, registration_fields  # noqa: PLC0415
    from web.services.accounts.email import SmtpTransport, invitation_email  # noqa: PLC0415

    settings = load_settings_or_exit()
    try:
        fields = registration_fields(email, name)
        checked = account_change(settings, {"plan": plan, "role": role})
    except (InvalidParameter, ValueError) as error:
        exit_with(str(error), WRONG_USAGE)
    link = _run_transaction(
        settings,
        lambda transaction: invitation(transaction, audit_log.OPERATOR, settings, fields.email, fields.name, checked),
    )
    if settings.smtp_url is not None:
        transport = SmtpTransport(settings.smtp_url.get_secret_value(), settings.mail_from, settings.operator.signature)
        try:
            asyncio.run(transport.send(invitation_email(fields.email, link)))
        except Exception as error:  # its text may contain the password
            print_message(f"the email was not sent: {type(error).__name__}; give the link to its owner yourself.")
    print(json.dumps({"email": fields.email, "link": link}) if as_json else link)


@cli.command()
def log(as_json: Json = False) -> None:
    """Show the latest 100 actions of administrators and operators, newest first."""
    found = _run_transaction(load_settings_or_exit(), lambda transaction: audit_log.list_page(transaction, limit=100))
    rows = [{**vars(one), "at": format_timestamp(one.at), "details": json.loads(one.details)} for one in found.values]
    if as_json:
        return print(json.dumps(rows, indent=2))
    columns = ("at", "actor", "action", "subject", "details")
    return print_table(
        columns, ([json.dumps(v) if isinstance(v := row[c], dict) else v for c in columns] for row in rows)
    )


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
        "plan": account.plan,
        "own_limits": account.plan_changes,
        "role": account.role,
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
