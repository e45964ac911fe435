"""The account command: an operator makes accounts, and gives credits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from config.tariff import FREE_CREDITS
from storage import accounts, keyring
from storage import audit as ledger_audit
from storage.database import UnsupportedUrl
from storage.errors import StorageError
from storage.keyring import IssuedKey
from storage.transaction import Transaction
from web import fields
from web.errors import InvalidParameter
from web.stores import open_database
from web.terminal import FAILED, WRONG_USAGE, end, settings, tell

R = TypeVar("R")

_MOST = 1_000_000_000  # credits at once

account_cli = typer.Typer(no_args_is_help=True, help="Make accounts, give them credits, and check the ledger.")


@account_cli.command()
def create(
    email: Annotated[str, typer.Option(help="The address of its owner.")],
    name: Annotated[str, typer.Option(help="The name of the application, 2 to 100 characters.")],
    credits: Annotated[int, typer.Option(min=0, max=_MOST, help="The credits to begin with.")] = FREE_CREDITS,
    unverified: Annotated[bool, typer.Option("--unverified", help="Leave the address to be verified.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make an account, and print its key, which cannot be had again."""
    address, called = _checked(fields.EMAIL.of, email), _checked(fields.NAME.of, name)
    issued = _within(lambda transaction: _made(transaction, address, called, credits, verified=not unverified))
    if as_json:
        return print(json.dumps({"api_key": issued.text, "key_id": issued.key.id, "email": address}))
    print(issued.text)
    return tell(f"{address} has an account with {credits} credits; its key is not shown again.")


@account_cli.command()
def grant(
    email: Annotated[str, typer.Argument(help="The address of the account.")],
    credits: Annotated[int, typer.Argument(metavar="N", min=1, max=_MOST, help="How many.")],
) -> None:
    """Give an account credits, and print its balance."""
    address = _checked(fields.EMAIL.of, email)
    print(_within(lambda transaction: accounts.grant(transaction, address, credits)))


@account_cli.command()
def audit() -> None:
    """Check that all credits are accounted for; best in a copy of the database, as it reads all there is."""
    problems = _within(ledger_audit.check)
    for problem in problems:
        print(problem)
    if problems:
        raise typer.Exit(FAILED)
    tell("the ledger adds up.")


def _made(transaction: Transaction, email: str, name: str, credits: int, *, verified: bool) -> IssuedKey:
    account = accounts.create(transaction, email, name, free_credits=credits, verified=verified)
    return keyring.issue(transaction, account.id, name)


def _within(work: Callable[[Transaction], R]) -> R:
    """Does the work in the database of the settings."""
    try:
        database = open_database(settings())
    except UnsupportedUrl as error:
        end(str(error), WRONG_USAGE)
    except OSError as error:
        end(f"the database cannot be opened: {error.strerror or error}", FAILED)
    try:
        return database.run_blocking(work)
    except StorageError as error:
        end(str(error), FAILED)
    finally:
        database.close()


def _checked(field: Callable[[object], str], text: str) -> str:
    try:
        return field(text)
    except InvalidParameter as error:
        end(str(error), WRONG_USAGE)
