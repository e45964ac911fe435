"""Clients of one account that race for its last credit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from benchmarks import server_process
from benchmarks.report import Row, exactly
from storage import accounts, ledger, ledger_audit
from storage.transaction import Transaction
from tests.support.postgres import find_binaries, running_server

_RACERS, _ROUNDS = 50, 100


def last_credit(folder: Path, share: int) -> list[Row]:
    """F13: requests at once on a balance of one credit, with each kind of database."""
    rounds = _ROUNDS // share
    rows = _raced(folder / "sqlite", server_process.sqlite(folder / "sqlite"), rounds, "SQLite")
    if (binaries := find_binaries()) is None:
        return [*rows, ("PostgreSQL", "not installed", "", "")]
    with running_server(binaries) as url:
        return [*rows, *_raced(folder / "postgresql", url, rounds, "PostgreSQL")]


def _raced(folder: Path, url: str, rounds: int, kind: str) -> list[Row]:
    folder.mkdir()
    (key,) = server_process.make_accounts(url, 1, credits=1)
    with (
        server_process.serving(folder, {"CONVERTD_DATABASE_URL": url}) as (_, at),
        server_process.opened(url) as database,
    ):
        sound = 0
        for turn in range(rounds):
            statuses = asyncio.run(_race(at, key))
            sound += (statuses.count(200), statuses.count(402)) == (1, _RACERS - 1)
            database.run_blocking(_top_up, turn)
        problems = database.run_blocking(ledger_audit.check)
    held, used = server_process.held_and_used(url, 1)
    return [
        exactly(f"{kind}: rounds with one 200 and the others 402", sound, rounds),
        exactly(f"{kind}: credits charged", used, rounds),
        exactly(f"{kind}: credits held", held, 0),
        exactly(f"{kind}: problems in the ledger", len(problems), 0),
    ]


async def _race(url: str, key: str) -> list[int]:
    content = server_process.picture((64, 48))
    async with httpx.AsyncClient(timeout=60) as client:
        answers = await asyncio.gather(*(server_process.ask(client, url, key, content) for _ in range(_RACERS)))
    return [answer.status for answer in answers]


def _top_up(transaction: Transaction, turn: int) -> None:
    account = accounts.find(transaction, server_process.email(0))
    assert account is not None
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}:{turn}")
