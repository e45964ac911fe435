"""What sends the messages of a database to webhooks, without a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

from prometheus_client import CollectorRegistry

from storage.database import Database, Transaction
from storage.tables import deliveries, webhook_models
from storage.tables.webhooks import Event
from tests.support.samples.storage import OWNER
from web.metrics.service import WebhookMetrics
from web.services.accounts.email import EmailQueue, OutboxTransport
from web.services.webhooks.deliveries import Deliveries
from web.services.webhooks.outgoing import Outgoing
from web.services.webhooks.public_addresses import AddressRules

LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1"))


class WebhookSender:
    """What sends the messages of a database, and how far its clock is ahead, in seconds."""

    def __init__(self, url: str, outbox: Path) -> None:
        self.ahead = 0.0
        self.database = Database(url, clock=self.clock)
        self.registry = CollectorRegistry()
        self.email_queue = EmailQueue(OutboxTransport(outbox, "convertd <no-reply@localhost>"))
        self.outgoing = Outgoing(AddressRules(LOOPBACK))
        self.deliveries = self.another(self.registry)

    def close(self) -> None:
        self.outgoing.close()
        self.database.close()

    def clock(self) -> float:
        return time.time() + self.ahead

    def another(self, registry: CollectorRegistry | None = None) -> Deliveries:
        """An additional sender, as of another server."""
        metrics, base_url = WebhookMetrics(registry or CollectorRegistry()), "http://localhost/api/v1"
        return Deliveries(self.database, OWNER, self.outgoing, self.email_queue, metrics, base_url, self.clock)

    def add(self, account: str, url: str, event: Event = "job.completed", count: int = 1) -> None:
        """Adds messages for a URL, and wakes the sender."""
        for _ in range(count):
            self.database.run_blocking(deliveries.add, account, event, lambda: {"job_id": "job_1"}, url)
        self.deliveries.wake()

    @asynccontextmanager
    async def running(self, *others: Deliveries) -> AsyncIterator[None]:
        """Sends during the block, and ends with what is in progress."""
        senders = (self.deliveries, *others)
        sending = [asyncio.create_task(sender.run()) for sender in senders]
        try:
            yield
        finally:
            for sender in senders:
                sender.close()
            await asyncio.wait(sending, timeout=5)
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)

    async def until(self, condition: Callable[[], bool], seconds: float = 20) -> None:
        """Waits for the condition. Fails if it is not met in time."""
        async with asyncio.timeout(seconds):
            while not condition():  # noqa: ASYNC110, other threads and servers make it true
                await asyncio.sleep(0.01)

    async def until_idle(self) -> None:
        """Waits until nothing is sent, and nothing is due."""
        await self.until(lambda: self.database.run_blocking(_is_idle))


def _is_idle(transaction: Transaction) -> bool:
    rows = transaction.all(webhook_models.Receiver.select())
    return all(row.claim is None and max(row.due_at, row.free_at) > transaction.now for row in rows)
