"""Deliveries: sends messages to webhooks, signed as the Standard Webhooks specification requires."""

import asyncio
import json
import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from standardwebhooks import Webhook

from storage.database import Database
from storage.errors import StorageError
from storage.tables import accounts, receivers
from storage.tables.ledger import ServerInstance
from storage.tables.receivers import MAX_FAILURES, AttemptResult, ClaimedReceiver, Message
from storage.tables.webhooks import DisabledReason
from web.api.values import API, below
from web.locale.languages import ENGLISH, LANGUAGES
from web.metrics.service import WebhookMetrics
from web.services.accounts.email import EmailQueue, disabled_webhook_email
from web.services.webhooks.outgoing import Outgoing, OutgoingError

log = logging.getLogger("convertd.webhooks")

POLL_INTERVAL = 1.0  # seconds; other servers add messages, too, and attempts become due
CONCURRENCY = 4  # attempts at once to a receiver
CAPACITY = 48  # receivers at once
_SHARE = 4  # an account gets this part of the free capacity, so that some is always left for others
_ROUND = 15.0  # seconds in which attempts of a claim begin


class Deliveries:
    """Sends all messages that are due. `timeout` is for an attempt, in seconds.

    Servers of one database share the work, because each, the `owner`, claims receivers for some seconds. A message is
    sent at least once: again if a server is killed before it has recorded the attempt. Emails have a link to the
    dashboard, which is beside the API at `base_url`. `clock` returns Unix time in seconds.
    """

    def __init__(
        self,
        database: Database,
        owner: ServerInstance,
        outgoing: Outgoing,
        email_queue: EmailQueue,
        metrics: WebhookMetrics,
        base_url: str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.timeout = 10.0
        self._database = database
        self._owner = owner
        self._outgoing = outgoing
        self._email_queue = email_queue
        self._metrics = metrics
        self._base_path = urlsplit(base_url).path.removesuffix(API)
        self._page = f"{base_url.removesuffix(API)}/dashboard/webhooks"
        self._clock = clock
        self._woken = asyncio.Event()
        self._closing = False
        self._running: Counter[str] = Counter()  # receivers by account
        self._rounds: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """Sends messages at once that a transaction of this process has added."""
        self._woken.set()

    def close(self) -> None:
        """Begins no further attempts. `run` ends after those in progress."""
        self._closing = True
        self._woken.set()

    async def run(self) -> None:
        """Sends until closed."""
        try:
            while not self._closing:
                self._woken.clear()
                try:
                    await self._begin_rounds()
                except StorageError as error:  # the store has logged the cause
                    log.warning("no messages to webhooks are sent: %s", error, extra={"outage": True})
                except Exception:
                    log.exception("no messages to webhooks are sent")
                await self._wait()
            while self._rounds:
                await asyncio.wait(self._rounds)
        finally:
            for sending in self._rounds:
                sending.cancel()
            await asyncio.gather(*self._rounds, return_exceptions=True)

    async def _wait(self) -> None:
        """Waits until woken, or until the next full second, because attempts become due at full seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_INTERVAL * 1.01 - self._clock() % POLL_INTERVAL):
                await self._woken.wait()

    async def _begin_rounds(self) -> None:
        oldest = await self._database.run(receivers.oldest_due)
        self._metrics.overdue.set(0 if oldest is None else max(0.0, self._clock() - oldest))
        free = CAPACITY - len(self._rounds)
        if oldest is None or not free or self._closing:
            return
        share = max(1, free // _SHARE)
        for receiver in await self._database.run(receivers.claim, self._owner, free, share, dict(self._running)):
            self._running[receiver.account] += 1
            sending = asyncio.create_task(self._send_to(receiver))
            self._rounds.add(sending)
            sending.add_done_callback(self._rounds.discard)

    async def _send_to(self, receiver: ClaimedReceiver) -> None:
        """Sends messages to a receiver for some seconds, or until it fails too often. Releases it then."""
        waiting = deque(receiver.messages)
        failures = receiver.failures
        ends = time.monotonic() + _ROUND

        async def send_in_turn() -> None:
            nonlocal failures
            while waiting and time.monotonic() < ends and not self._closing:
                message = waiting.popleft()
                result = await self._attempt(message)
                failures = 0 if result.delivered else failures + 1
                if failures >= MAX_FAILURES:
                    waiting.clear()
                await self._record(receiver.account, message, result)

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(CONCURRENCY, len(waiting))):
                    group.create_task(send_in_turn())
        finally:
            self._running[receiver.account] -= 1
            await self._release(receiver, failures)
            self.wake()

    async def _release(self, receiver: ClaimedReceiver, failures: int) -> None:
        """Releases a receiver, as soon as the database responds. If that is closing time, another server does it."""
        while True:
            try:
                return await self._database.run(receivers.release, receiver, failures)
            except StorageError as error:
                log.warning("a receiver of webhooks is not released: %s", error)
            if self._closing:
                return None
            await asyncio.sleep(POLL_INTERVAL)

    async def _attempt(self, message: Message) -> AttemptResult:
        started = time.monotonic()
        status = None
        reason = None
        if self._base_path:
            message = replace(message, body=json.dumps(below(self._base_path, json.loads(message.body))))
        headers = {"Content-Type": "application/json", **_signature(message, self._clock())}
        sending = self._outgoing.request(
            "POST", message.url, seconds=self.timeout, headers=headers, content=message.body.encode()
        )
        try:
            async with sending as response:
                status = response.status
        except OutgoingError as error:
            reason = error.reason
        return AttemptResult(status, reason, round(1000 * (time.monotonic() - started)), self._clock())

    async def _record(self, account: str, message: Message, result: AttemptResult) -> None:
        self._metrics.record_attempt(result)
        try:
            ended = await self._database.run(receivers.record, message, result)
            if ended is not None:
                await self._notify_owner(account, message, ended)
        except StorageError as error:
            log.warning("an attempt was not recorded, and will be repeated: %s", error)

    async def _notify_owner(self, account: str, message: Message, reason: DisabledReason) -> None:
        """Sends an email about a webhook that has ended."""
        self._metrics.disabled.labels(reason).inc()
        log.info("webhook disabled", extra={"fields": {"webhook_id": message.webhook, "reason": reason}})
        host = httpx.URL(message.url).netloc.decode()
        owner = await self._database.run(accounts.get, account)
        language = LANGUAGES.get(owner.language or "", ENGLISH)
        self._email_queue.enqueue(disabled_webhook_email(owner.email, host, reason, self._page, language))


def _signature(message: Message, now: float) -> dict[str, str]:
    """The headers of an attempt: signed by each secret, or unsigned if there is none."""
    headers = {"webhook-id": message.delivery_id, "webhook-timestamp": str(int(now))}
    at = datetime.fromtimestamp(int(now), UTC)
    signatures = [Webhook(secret).sign(message.delivery_id, at, message.body) for secret in message.secrets]
    return {**headers, "webhook-signature": " ".join(signatures)} if signatures else headers
