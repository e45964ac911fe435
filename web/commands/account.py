"""The account commands: an operator makes accounts, and gives credits."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import typer

from storage import accounts, api_keys, ledger_audit
from storage.api_keys import IssuedKey
from storage.database import UnsupportedUrl
from storage.errors import StorageError
from storage.transaction import Transaction
from web.api import fields
from web.api.errors import InvalidParameter
from web.app import open_database
from web.cli_output import FAILED, WRONG_USAGE, fail, say, settings_or_exit

R = TypeVar("R")


def create(email: str, name: str, credits: int, *, verified: bool, as_json: bool) -> None:
    """Makes an account, and prints its key."""
    checked = _checked(fields.RegistrationFields, email=email, name=name)
    address, called = checked.email, checked.name
    issued = _within(lambda transaction: _made(transaction, address, called, credits, verified=verified))
    if as_json:
        return print(json.dumps({"api_key": issued.text, "key_id": issued.key.id, "email": address}))
    print(issued.text)
    return say(f"{address} has an account with {credits} credits; its key is not shown again.")


def grant(email: str, credits: int) -> None:
    """Gives an account credits, and prints its balance."""
    address = _checked(fields.EmailField, email=email).email
    print(_within(lambda transaction: accounts.grant(transaction, address, credits)))


def audit() -> None:
    """Prints what does not add up."""
    problems = _within(ledger_audit.check)
    for problem in problems:
        print(problem)
    if problems:
        raise typer.Exit(FAILED)
    say("the ledger adds up.")


def _made(transaction: Transaction, email: str, name: str, credits: int, *, verified: bool) -> IssuedKey:
    account = accounts.create(transaction, email, name, free_credits=credits, verified=verified)
    return api_keys.issue(transaction, account.id, name)


def _within(work: Callable[[Transaction], R]) -> R:
    """Does the work in the database of the settings."""
    try:
        database = open_database(settings_or_exit())
    except UnsupportedUrl as error:
        fail(str(error), WRONG_USAGE)
    except OSError as error:
        fail(f"the database cannot be opened: {error.strerror or error}", FAILED)
    try:
        return database.run_blocking(work)
    except StorageError as error:
        fail(str(error), FAILED)
    finally:
        database.close()


def _checked(model: type[fields.Model], **values: str) -> fields.Model:
    try:
        return fields.validate(model, values)
    except InvalidParameter as error:
        fail(str(error), WRONG_USAGE)
