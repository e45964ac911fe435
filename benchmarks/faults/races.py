"""Concurrent requests for the last credit of an account."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from benchmarks import server_process
from benchmarks.report import Row, equals, info
from storage.database import Transaction
from storage.tables import accounts, ledger, ledger_audit
from tests.support.servers.postgres import find_binaries, running_server

_REQUESTS, _ROUNDS = 50, 100


def last_credit(folder: Path, divisor: int) -> list[Row]:
    """F13: concurrent requests on a balance of one credit, on SQLite and on PostgreSQL."""
    rounds = _ROUNDS // divisor
    rows = _race_rounds(folder / "sqlite", server_process.sqlite_url(folder / "sqlite"), rounds, "SQLite")
    if (binaries := find_binaries()) is None:
        return [*rows, info("PostgreSQL", "not installed")]
    with running_server(binaries) as url:
        return [*rows, *_race_rounds(folder / "postgresql", url, rounds, "PostgreSQL")]


def _race_rounds(folder: Path, database_url: str, rounds: int, name: str) -> list[Row]:
    folder.mkdir()
    (key,) = server_process.create_accounts(database_url, 1, credits=1)
    with (
        server_process.serving(folder, {"CONVERTD_DATABASE_URL": database_url}) as (_, url),
        server_process.open_database(database_url) as database,
    ):
        correct = 0
        for number in range(rounds):
            statuses = asyncio.run(_race(url, key))
            correct += (statuses.count(200), statuses.count(402)) == (1, _REQUESTS - 1)
            database.run_blocking(_add_credit, number)
        problems = database.read_blocking(ledger_audit.check)
    held, used = server_process.held_and_used(database_url, 1)
    return [
        equals(f"{name}: rounds with one status 200, all others 402", correct, rounds),
        equals(f"{name}: credits charged", used, rounds),
        equals(f"{name}: credits held", held, 0),
        equals(f"{name}: inconsistencies in the ledger", len(problems), 0),
    ]


async def _race(url: str, key: str) -> list[int]:
    content = server_process.picture((64, 48))
    async with httpx.AsyncClient(timeout=60) as client:
        requests = (server_process.convert(client, url, key, content) for _ in range(_REQUESTS))
        return [response.status for response in await asyncio.gather(*requests)]


def _add_credit(transaction: Transaction, number: int) -> None:
    account = accounts.find(transaction, server_process.email(0))
    assert account is not None
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}:{number}")
