"""Registrations: an address asks for a key, is written to, and shows that it got the letter."""

from __future__ import annotations

from config.pricing import DAY, FREE_CREDITS, HOUR, REGISTRATIONS_PER_ADDRESS, REGISTRATIONS_PER_EMAIL
from storage import email_verification
from storage.accounts import email_key
from storage.database import Database
from storage.email_verification import Verified
from storage.rate_limits import RateLimiter, RateLimitStatus
from web.api.errors import RateLimited
from web.metrics.service import CreditMetrics
from web.services.email import EmailQueue, replacement_email, verification_email


class Registrations:
    """Who has an account already is told to nobody but the owner of the address."""

    def __init__(
        self, database: Database, email_queue: EmailQueue, limiter: RateLimiter, base_url: str, metrics: CreditMetrics
    ) -> None:
        self._database = database
        self._email_queue = email_queue
        self._limiter = limiter
        self._base_url = base_url
        self._metrics = metrics

    async def register(self, email: str, name: str, address: str) -> None:
        """Writes to an e-mail address, for a client at that network address. Raises RateLimited."""
        await self._count(email, address)
        begun = await self._database.run(email_verification.register, email, name)
        link = f"{self._base_url}/verify?token={begun.token}"
        write = verification_email if begun.purpose == "register" else replacement_email
        self._email_queue.enqueue(write(begun.email, link))

    async def verify(self, token: str) -> Verified:
        """Uses the token of a letter up. Raises Missing."""
        verified = await self._database.run(email_verification.verify, token.lower(), free_credits=FREE_CREDITS)
        if verified.purpose == "register":
            self._metrics.granted("registration", FREE_CREDITS)
        return verified

    async def _count(self, email: str, address: str) -> None:
        """Counts a registration for both, or for neither where one of them has had its share."""
        counters = (
            (f"registrations:email:{email_key(email)}", REGISTRATIONS_PER_EMAIL, HOUR),
            (f"registrations:address:{address}", REGISTRATIONS_PER_ADDRESS, DAY),
        )
        for count in (self._limiter.peek, self._limiter.hit):
            for counter in counters:
                _let_pass(await count(*counter))


def _let_pass(verdict: RateLimitStatus) -> None:
    if not verdict.allowed:
        message = "Too many registrations; try again later."
        raise RateLimited(message, retry_after=verdict.retry_after, reason="registrations")
