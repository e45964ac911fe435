"""A `convertd serve` process with accounts, and how it answers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from time import perf_counter
from types import MappingProxyType
from typing import BinaryIO

import httpx

from storage import accounts, api_keys, ledger
from storage.database import Database
from storage.transaction import Transaction
from tests.support.samples import quadrants
from tests.support.servers import eventually

WORKERS = 2
_COMMAND = (str(Path(sys.executable).with_name("convertd")), "serve", "--port")
_START = 60  # seconds
_BEGINNING = 64 << 10  # bytes of the log
_UNLIMITED = str(10**9)
_SETTINGS = {
    "CONVERTD_WORKERS": str(WORKERS),
    "CONVERTD_RATE_LIMIT_PAID": _UNLIMITED,
    "CONVERTD_RATE_LIMIT_FREE": _UNLIMITED,
    "CONVERTD_RATE_LIMIT_ANONYMOUS": _UNLIMITED,
}


@dataclass(frozen=True)
class Answer:
    """A status (0 where the connection failed), and when it was asked for and came, in seconds of one clock."""

    status: int
    asked: float
    came: float
    reason: str = ""
    retryable: bool = False

    @property
    def seconds(self) -> float:
        return self.came - self.asked


@contextmanager
def serving(
    folder: Path, settings: Mapping[str, str] = MappingProxyType({}), port: int = 0
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The server with these settings in its environment, and the URL at which it converts."""
    environment = {**os.environ, **_SETTINGS, **settings, "CONVERTD_DATA_DIR": str(folder)}
    # The log goes to a file: somebody who reads it would take part in the race.
    with TemporaryFile() as log, subprocess.Popen((*_COMMAND, str(port)), stderr=log, env=environment) as server:
        try:
            assert eventually(lambda: bool(_told(log)) or server.poll() is not None, _START)
            yield server, f"{_told(log)[0]}/api/v1/convert"
        finally:
            server.kill()


def _told(log: BinaryIO) -> list[str]:
    """The URLs that the server has said it listens at."""
    return re.findall(r"listening on (http://\S+?);", os.pread(log.fileno(), _BEGINNING, 0).decode())


def sqlite(folder: Path) -> str:
    """The URL of the database of a server in that folder."""
    return f"sqlite:///{folder / 'convertd.db'}"


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """The database of that URL, beside the server or without it."""
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def email(number: int) -> str:
    """The address of an account that `make_accounts` made."""
    return f"benchmark-{number}@example.com"


def make_accounts(url: str, count: int, credits: int = 10**6) -> list[str]:
    """The keys of new paid accounts with so many credits."""
    with opened(url) as database:
        return [database.run_blocking(_account, email(number), credits) for number in range(count)]


def held_and_used(url: str, count: int) -> tuple[int, int]:
    """The credits of the accounts that are held, and those that were charged."""
    with opened(url) as database:
        return database.run_blocking(_sums, count)


def picture(size: tuple[int, int]) -> bytes:
    """A PNG that codecs have something to do with."""
    file = BytesIO()
    quadrants(size).effect_spread(6).save(file, "PNG", compress_level=1)
    return file.getvalue()


async def ask(client: httpx.AsyncClient, url: str, key: str, content: bytes, repeat: str = "") -> Answer:
    """Converts a picture to WebP; `repeat` is the request's idempotency key."""
    asked = perf_counter()
    headers = {"Authorization": f"Bearer {key}", **({"Idempotency-Key": repeat} if repeat else {})}
    try:
        answer = await client.post(
            url, files={"file": ("a.png", content)}, data={"output_format": "webp"}, headers=headers
        )
    except httpx.TransportError as failure:
        return Answer(0, asked, perf_counter(), type(failure).__name__, retryable=True)
    if answer.is_success:
        return Answer(answer.status_code, asked, perf_counter())
    error = answer.json()["error"]
    reason = str(error.get("reason") or error["code"])
    return Answer(answer.status_code, asked, perf_counter(), reason, retryable=error["retryable"])


async def wait_for_files(folder: Path, pattern: str, count: int) -> None:
    """Returns when so many match below the folder."""
    assert await asyncio.to_thread(eventually, lambda: len(list(folder.glob(pattern))) >= count, 30)


def _account(transaction: Transaction, email: str, credits: int) -> str:
    account = accounts.create(transaction, email, "Benchmark", free_credits=credits - 1)
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}")
    return api_keys.issue(transaction, account.id, "Benchmark").text


def _sums(transaction: Transaction, count: int) -> tuple[int, int]:
    found = [accounts.find(transaction, email(number)) for number in range(count)]
    held = sum(account.held for account in found if account is not None)
    return held, sum(account.used for account in found if account is not None)
