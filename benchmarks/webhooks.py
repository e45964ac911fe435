"""Webhooks: how many messages per second a server delivers. Run as a program, this module is the receiver.

The receiver accepts each message at once, so that the server is the limit.
"""

import asyncio
import re
import sys
from collections.abc import Sequence
from time import monotonic, sleep

from peewee import fn

from benchmarks.processes import ServerProcess
from storage.database import Database, Transaction, reading
from storage.tables import deliveries, models, webhooks
from storage.tables.webhook_models import Delivery

ACCOUNTS, MESSAGES = 8, 2_000
"""Accounts with a webhook, and the messages for all of them together."""

_POLL_INTERVAL = 0.05  # seconds
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_ACCEPTED = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
_JOB = {"job_id": "job_0", "status": "completed", "result": {"filename": "photo.webp", "processed_size": 20_104}}


class Receiver(ServerProcess):
    """The receiver, as a process of its own."""

    @property
    def command(self) -> Sequence[str]:
        return sys.executable, "-m", __name__, str(self.port)


def messages_per_second(database: Database, receiver: Receiver) -> float:
    """Adds messages to the database of a running server, and waits until they are delivered."""
    accounts = database.run_blocking(_add_webhooks, f"http://127.0.0.1:{receiver.port}/")
    database.run_blocking(_add_messages, accounts)
    while (waiting := database.run_blocking(_count_waiting)) == MESSAGES:
        sleep(_POLL_INTERVAL)
    begun = monotonic()
    while database.run_blocking(_count_waiting):
        sleep(_POLL_INTERVAL)
    ended = monotonic()
    for account in accounts:
        database.run_blocking(webhooks.delete_all, account)
    return waiting / (ended - begun)


def _add_webhooks(transaction: Transaction, url: str) -> list[str]:
    """Adds a webhook to some accounts. Returns their ids."""
    accounts = [row.id for row in transaction.all(models.Account.select().limit(ACCOUNTS))]
    for account in accounts:
        webhooks.add(transaction, account, url, webhooks.EVENTS)
    return accounts


def _add_messages(transaction: Transaction, accounts: Sequence[str]) -> None:
    for number in range(MESSAGES):
        deliveries.add(transaction, accounts[number % len(accounts)], "job.completed", lambda: _JOB)


@reading
def _count_waiting(transaction: Transaction) -> int:
    waiting = Delivery.select(fn.COUNT(Delivery.delivery_id)).where(Delivery.next_attempt_at.is_null(False))
    return int(transaction.rows(waiting)[0][0])


async def _accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Reads a message and accepts it."""
    found = _LENGTH.search(await reader.readuntil(b"\r\n\r\n"))
    await reader.readexactly(int(found[1]) if found else 0)
    writer.write(_ACCEPTED)
    await writer.drain()
    writer.close()


async def _serve(port: int) -> None:
    server = await asyncio.start_server(_accept, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
