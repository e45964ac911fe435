"""Clients that convert until they succeed while something fails, and what must hold afterwards."""

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
from PIL import Image, ImageChops

from benchmarks.processes import ConvertdServer, process_status, process_tree
from storage.database import Database, Transaction
from storage.ids import new_id
from storage.tables import accounts, api_keys, ledger, ledger_audit
from tests.support.samples.generated import saved
from tests.support.samples.storage import read_totals
from tests.support.servers.in_process import eventually, open_work_files

Color = tuple[int, int, int]

CREDITS = 10**6
"""Credits of a new account."""

_NOISE = 6.0  # standard deviation, in 8-bit levels
_COLOR_TOLERANCE = 12  # 8-bit levels
_TIMEOUT = 120  # seconds, longer than the deadline of a job
_RETRY_DELAY = 0.3  # seconds
_SUCCESS_TIMEOUT = 300  # seconds, longer than any outage


@dataclass
class Clients:
    """Clients of an account that convert an image of one color again and again, each until it succeeds.

    Repeats have the same idempotency key; after an error that is not retryable, another.
    """

    api: str
    key: str
    size: tuple[int, int] = (600, 400)
    color: Color = (128, 128, 128)
    trust: ssl.SSLContext | bool = False
    succeeded: int = 0
    wrong_results: int = 0
    statuses: Counter[int] = field(default_factory=Counter)  # 0 for a failed connection
    most_attempts: int = 0
    longest: float = 0.0  # seconds until a conversion has succeeded

    async def convert_while(self, work: asyncio.Future[Any], concurrency: int = 8) -> None:
        """Starts conversions until the work is done, and completes them. Raises what the work raises.

        Raises TimeoutError if a conversion does not succeed.
        """
        content, numbers = image(self.size, self.color), count()
        async with httpx.AsyncClient(timeout=_TIMEOUT, verify=self.trust) as client:

            async def convert() -> None:
                while not work.done():
                    async with asyncio.timeout(_SUCCESS_TIMEOUT):
                        await self._convert(client, content, next(numbers))

            await asyncio.gather(*(convert() for _ in range(concurrency)))
        await work

    async def _convert(self, client: httpx.AsyncClient, content: bytes, number: int) -> None:
        failures, started = 0, monotonic()
        for attempt in count(1):
            status, retryable, result = await self._attempt(client, content, f"{number}-{failures}")
            self.statuses[status] += 1
            if status == httpx.codes.OK:
                self.succeeded += 1
                self.most_attempts = max(self.most_attempts, attempt)
                self.longest = max(self.longest, monotonic() - started)
                self.wrong_results += not await asyncio.to_thread(is_image, result, self.size, self.color)
                return
            failures += not retryable
            await asyncio.sleep(_RETRY_DELAY)

    async def _attempt(self, client: httpx.AsyncClient, content: bytes, key: str) -> tuple[int, bool, bytes]:
        """Returns the status, whether the request may be repeated with the same key, and the result."""
        headers = {"Authorization": f"Bearer {self.key}", "Idempotency-Key": key, "Accept": "*/*"}
        form: dict[str, Any] = {"files": {"file": ("a.png", content)}, "data": {"output_format": "webp"}}
        try:
            response = await client.post(f"{self.api}/convert", headers=headers, **form)
        except httpx.TransportError:
            return 0, True, b""
        if response.is_success:
            return response.status_code, True, response.content
        with suppress(ValueError, KeyError):  # nginx responds with a page
            return response.status_code, bool(response.json()["error"]["retryable"]), b""
        return response.status_code, True, b""


async def repeat(count: int, interval: float, action: Callable[[], object]) -> None:
    """Runs a blocking action `count` times, with a pause of `interval` seconds before each."""
    for _ in range(count):
        await asyncio.sleep(interval)
        await asyncio.to_thread(action)


def image(size: tuple[int, int], color: Color = (128, 128, 128)) -> bytes:
    """Returns a PNG of one color with noise, which takes codecs longer than flat areas."""
    noise = Image.effect_noise(size, _NOISE)
    noisy = ImageChops.add(Image.new("RGB", size, color), Image.merge("RGB", (noise,) * 3), offset=-128)
    return saved(noisy, "PNG", compress_level=1)


def is_image(content: bytes, size: tuple[int, int], color: Color = (128, 128, 128)) -> bool:
    """Whether the content is a WebP of this size and about this color."""
    with Image.open(BytesIO(content)) as image:
        mean = image.convert("RGB").resize((1, 1), Image.Resampling.BOX).getpixel((0, 0))
        assert isinstance(mean, tuple)
        near = (abs(actual - wanted) <= _COLOR_TOLERANCE for actual, wanted in zip(mean, color, strict=True))
        return image.format == "WEBP" and image.size == size and all(near)


def sqlite_url(folder: Path) -> str:
    """Returns the URL of the database of a server with this data folder."""
    return f"sqlite:///{folder / 'convertd.db'}"


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


def create_accounts(url: str, number: int, *, paid: bool = True, address: str | None = None) -> list[str]:
    """Creates accounts in this database, registered from the address. Returns their API keys."""
    with _opened(url) as database:
        return [database.run_blocking(_create_account, paid, address) for _ in range(number)]


def _create_account(transaction: Transaction, paid: bool, address: str | None) -> str:
    email = f"{new_id('load')}@example.com"
    account = accounts.create(transaction, email, "Long", free_credits=CREDITS - paid, address=address)
    if paid:
        ledger.credit(transaction, account.id, "purchase", 1, ref=account.id)
    return api_keys.issue(transaction, account.id, "Long").text


def charged(url: str, timeout: float = 10) -> int:
    """Returns the credits that all accounts have spent. Asserts that none are held, and that the ledger is consistent.

    Held credits are released within `timeout` seconds.
    """
    with _opened(url) as database:
        assert eventually(lambda: read_totals(database).held == 0, timeout)
        assert database.run_blocking(ledger_audit.check) == ()
        found = read_totals(database)
        return (found.free_accounts + found.paid_accounts) * CREDITS - found.balance


def assert_no_work_files(server: ConvertdServer) -> None:
    """Asserts that the server closes all uploads and results, and that none has a name in the data folder."""
    assert eventually(lambda: not open_work_files(server.folder, server.pid))
    assert list((server.folder / "jobs").iterdir()) == []


def kill_with_its_processes(server: ConvertdServer) -> None:
    """Kills the server. Asserts that all processes below it end."""
    processes = process_tree(server.pid)
    server.kill()
    # Orphans remain zombies in containers whose first process does not wait for them.
    assert eventually(lambda: all(process_status(pid)[:1] in ([], ["Z"]) for pid in processes))


def running_jobs(server: ConvertdServer) -> list[int]:
    """Returns the process IDs of the server's jobs: of its descendants that have uploads or results open."""
    jobs = []
    for pid in process_tree(server.pid)[1:]:
        with suppress(OSError):  # the process has ended
            jobs += [pid] if open_work_files(server.folder, pid) else []
    return jobs
