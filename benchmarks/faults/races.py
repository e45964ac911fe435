"""Clients of one account that race for its last credit."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx

from benchmarks import served
from benchmarks.faults.figures import Row, exactly
from storage import accounts, audit, ledger
from storage.transaction import Transaction
from tests.storage.postgres import find_binaries, running_server

_RACERS, _ROUNDS = 50, 100


def last_credit(folder: Path, share: int) -> list[Row]:
    """F13: requests at once on a balance of one credit, with each kind of database."""
    rounds = _ROUNDS // share
    rows = _raced(folder / "sqlite", served.sqlite(folder / "sqlite"), rounds, "SQLite")
    if (binaries := find_binaries()) is None:
        return [*rows, ("PostgreSQL", "not installed", "", "")]
    with running_server(binaries) as url:
        return [*rows, *_raced(folder / "postgresql", url, rounds, "PostgreSQL")]


def _raced(folder: Path, url: str, rounds: int, kind: str) -> list[Row]:
    folder.mkdir()
    (key,) = served.make_accounts(url, 1, credits=1)
    with served.serving(folder, {"CONVERTD_DATABASE_URL": url}) as (_, at), served.opened(url) as database:
        sound = 0
        for turn in range(rounds):
            statuses = asyncio.run(_race(at, key))
            sound += (statuses.count(200), statuses.count(402)) == (1, _RACERS - 1)
            database.run_blocking(_top_up, turn)
        problems = database.run_blocking(audit.check)
    held, used = served.held_and_used(url, 1)
    return [
        exactly(f"{kind}: rounds with one 200 and the others 402", sound, rounds),
        exactly(f"{kind}: credits charged", used, rounds),
        exactly(f"{kind}: credits held", held, 0),
        exactly(f"{kind}: problems in the ledger", len(problems), 0),
    ]


async def _race(url: str, key: str) -> list[int]:
    content = served.picture((64, 48))
    async with httpx.AsyncClient(timeout=60) as client:
        answers = await asyncio.gather(*(served.ask(client, url, key, content) for _ in range(_RACERS)))
    return [answer.status for answer in answers]


def _top_up(transaction: Transaction, turn: int) -> None:
    account = accounts.find(transaction, served.email(0))
    assert account is not None
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}:{turn}")
