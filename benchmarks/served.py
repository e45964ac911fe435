"""A `convertd serve` process with accounts, and how it answers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from time import perf_counter

import httpx

from storage import accounts, keyring, ledger
from storage.database import Database
from storage.transaction import Transaction
from tests.samples import quadrants
from tests.web.servers import eventually

WORKERS = 2
_COMMAND = (str(Path(sys.executable).with_name("convertd")), "serve", "--port", "0")
_SETTINGS = {"CONVERTD_WORKERS": str(WORKERS), "CONVERTD_RATE_LIMIT_PAID": str(10**9)}
_PREFIX = "benchmark-"


@dataclass(frozen=True)
class Answer:
    """A status (0 where the connection failed), and when it was asked for and came, in seconds of one clock."""

    status: int
    asked: float
    came: float
    reason: str = ""

    @property
    def seconds(self) -> float:
        return self.came - self.asked


@contextmanager
def serving(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The server, and the URL at which it converts."""
    environment = {**os.environ, **_SETTINGS, "CONVERTD_DATA_DIR": str(folder)}
    with subprocess.Popen(_COMMAND, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        told = next(found for line in server.stderr if (found := re.search(r"listening on (http://\S+?);", line)))
        reading = threading.Thread(target=server.stderr.read, daemon=True)
        reading.start()
        try:
            yield server, f"{told[1]}/api/v1/convert"
        finally:
            server.kill()
            reading.join()


def make_accounts(folder: Path, count: int) -> list[str]:
    """The keys of new paid accounts, for a server that does not run yet."""
    database = Database(f"sqlite:///{folder / 'convertd.db'}")
    try:
        return [database.run_blocking(_account, f"{_PREFIX}{number}@example.com") for number in range(count)]
    finally:
        database.close()


def held_and_used(folder: Path, count: int) -> tuple[int, int]:
    """The credits of the accounts that are held, and those that were charged."""
    database = Database(f"sqlite:///{folder / 'convertd.db'}")
    try:
        return database.run_blocking(_sums, count)
    finally:
        database.close()


def picture(size: tuple[int, int]) -> bytes:
    """A PNG that codecs have something to do with."""
    file = BytesIO()
    quadrants(size).effect_spread(6).save(file, "PNG", compress_level=1)
    return file.getvalue()


async def ask(client: httpx.AsyncClient, url: str, key: str, content: bytes) -> Answer:
    """Converts a PNG to WebP."""
    asked = perf_counter()
    headers = {"Authorization": f"Bearer {key}"}
    try:
        answer = await client.post(
            url, files={"file": ("a.png", content)}, data={"output_format": "webp"}, headers=headers
        )
    except httpx.TransportError as error:
        return Answer(0, asked, perf_counter(), type(error).__name__)
    reason = "" if answer.is_success else str(answer.json()["error"].get("reason") or answer.json()["error"]["code"])
    return Answer(answer.status_code, asked, perf_counter(), reason)


async def wait_for_files(folder: Path, pattern: str, count: int) -> None:
    """Returns when so many match below the folder."""
    assert await asyncio.to_thread(eventually, lambda: len(list(folder.glob(pattern))) >= count, 30)


def _account(transaction: Transaction, email: str) -> str:
    account = accounts.create(transaction, email, "Benchmark", free_credits=10**6)
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}")
    return keyring.issue(transaction, account.id, "Benchmark").text


def _sums(transaction: Transaction, count: int) -> tuple[int, int]:
    found = [accounts.find(transaction, f"{_PREFIX}{number}@example.com") for number in range(count)]
    held = sum(account.held for account in found if account is not None)
    return held, sum(account.used for account in found if account is not None)
