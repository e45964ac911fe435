"""A `convertd serve` process, its accounts, and requests to it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic, sleep
from types import MappingProxyType
from typing import BinaryIO

import httpx
from PIL import Image

from benchmarks.load_generator import TimedResponse
from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger

WORKERS = 2
_COMMAND = (str(Path(sys.executable).with_name("convertd")), "serve", "--port")
_START_TIMEOUT = 60  # seconds
_LOG_HEAD = 64 << 10  # bytes
_UNLIMITED = str(10**9)
_COLOURS = ((220, 30, 40), (30, 180, 60), (40, 60, 210), (128, 128, 128))
_SETTINGS = {
    "CONVERTD_WORKERS": str(WORKERS),
    "CONVERTD_RATE_LIMIT_PAID": _UNLIMITED,
    "CONVERTD_RATE_LIMIT_FREE": _UNLIMITED,
    "CONVERTD_RATE_LIMIT_ANONYMOUS": _UNLIMITED,
}


@contextmanager
def serving(
    folder: Path, settings: Mapping[str, str] = MappingProxyType({}), port: int = 0
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Runs a server with these environment variables. Yields the process and the URL of POST /convert."""
    environment = {**_SETTINGS, **settings, "CONVERTD_DATA_DIR": str(folder)}
    with started((*_COMMAND, str(port)), environment, rb"listening on (http://\S+?);") as (server, url):
        yield server, f"{url}/api/v1/convert"


@contextmanager
def started(
    command: Sequence[str],
    environment: Mapping[str, str],
    ready: bytes,
    on_start: Callable[[int], None] = lambda _pid: None,
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Runs a program with these additional environment variables. Yields the process and a part of its log.

    The part is the first group of the expression `ready`. Calls `on_start` with the process ID before it appears.
    Raises RuntimeError with the log if it does not appear.
    """
    # The log goes to a file: reading a pipe meanwhile would compete for CPU.
    with TemporaryFile() as log, subprocess.Popen(command, stderr=log, env={**os.environ, **environment}) as process:
        try:
            on_start(process.pid)
            yield process, _wait_for(ready, process, log)
        finally:
            process.kill()


def _wait_for(ready: bytes, process: subprocess.Popen[bytes], log: BinaryIO) -> str:
    deadline = monotonic() + _START_TIMEOUT
    while process.poll() is None and monotonic() < deadline:
        if found := re.search(ready, os.pread(log.fileno(), _LOG_HEAD, 0)):
            return found[1].decode()
        sleep(0.02)
    raise RuntimeError(os.pread(log.fileno(), _LOG_HEAD, 0).decode())


def sqlite_url(folder: Path) -> str:
    """Returns the database URL of a server with that data folder."""
    return f"sqlite:///{folder / 'convertd.db'}"


@contextmanager
def open_database(url: str) -> Iterator[Database]:
    """Opens the database, next to the server or without it."""
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def email(number: int) -> str:
    """Returns the email address of an account created by `create_accounts`."""
    return f"benchmark-{number}@example.com"


def create_accounts(url: str, count: int, credits: int = 10**6) -> list[str]:
    """Creates paid accounts and returns their API keys."""
    with open_database(url) as database:
        return [database.run_blocking(_create_account, email(number), credits) for number in range(count)]


def _create_account(transaction: Transaction, email: str, credits: int) -> str:
    account = accounts.create(transaction, email, "Benchmark", free_credits=credits - 1)
    ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}")
    return api_keys.issue(transaction, account.id, "Benchmark").text


def held_and_used(url: str, count: int) -> tuple[int, int]:
    """Returns the sums of held and of used credits of the first `count` accounts."""
    with open_database(url) as database:
        return database.run_blocking(_held_and_used, count)


def _held_and_used(transaction: Transaction, count: int) -> tuple[int, int]:
    rows = [accounts.find(transaction, email(number)) for number in range(count)]
    held = sum(account.held for account in rows if account is not None)
    return held, sum(account.used for account in rows if account is not None)


def picture(size: tuple[int, int]) -> bytes:
    """Returns a PNG with noise, which takes codecs longer than flat areas."""
    file, quadrants = BytesIO(), Image.new("RGB", (2, 2))
    quadrants.putdata(_COLOURS)
    quadrants.resize(size, Image.Resampling.NEAREST).effect_spread(6).save(file, "PNG", compress_level=1)
    return file.getvalue()


async def convert(
    client: httpx.AsyncClient, url: str, key: str, content: bytes, idempotency_key: str = ""
) -> TimedResponse:
    """Converts a picture to WebP."""
    sent_at = monotonic()
    headers = {"Authorization": f"Bearer {key}", **({"Idempotency-Key": idempotency_key} if idempotency_key else {})}
    try:
        response = await client.post(
            url, files={"file": ("a.png", content)}, data={"output_format": "webp"}, headers=headers
        )
    except httpx.TransportError as failure:
        return TimedResponse(0, sent_at, monotonic(), type(failure).__name__, retryable=True)
    if response.is_success:
        return TimedResponse(response.status_code, sent_at, monotonic())
    error = response.json()["error"]
    reason = str(error.get("reason") or error["code"])
    return TimedResponse(response.status_code, sent_at, monotonic(), reason, retryable=error["retryable"])
