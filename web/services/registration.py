"""Registration: an email with a verification link, whose token is exchanged for an API key."""

from __future__ import annotations

from config.pricing import DAY, FREE_CREDITS, HOUR, REGISTRATIONS_PER_ADDRESS, REGISTRATIONS_PER_EMAIL
from storage.database import Database
from storage.rate_limits import RateLimiter
from storage.tables import email_verification
from storage.tables.accounts import email_key
from storage.tables.email_verification import Verified
from web.api.errors import EmailNotConfigured, RateLimited
from web.metrics.service import CreditMetrics
from web.services.email import EmailQueue, replacement_email, verification_email


class Registrations:
    """Registers clients. Only the owner of an email address learns whether it already has an account."""

    def __init__(
        self, database: Database, email_queue: EmailQueue, limiter: RateLimiter, base_url: str, metrics: CreditMetrics
    ) -> None:
        self._database = database
        self._email_queue = email_queue
        self._limiter = limiter
        self._base_url = base_url
        self._metrics = metrics

    async def register(self, email: str, name: str, address: str) -> None:
        """Sends a verification email for a client at the network address `address`.

        Raises EmailNotConfigured and RateLimited.
        """
        if not self._email_queue.enabled:
            raise EmailNotConfigured
        await self._check_limits(email, address)
        registration = await self._database.run(email_verification.register, email, name)
        link = f"{self._base_url}/verify?token={registration.token}"
        write = verification_email if registration.purpose == "register" else replacement_email
        self._email_queue.enqueue(write(registration.email, link))

    async def verify(self, token: str) -> Verified:
        """Exchanges the token of a verification email, once, for an API key. Raises NotFound."""
        verified = await self._database.run(email_verification.verify, token.lower(), free_credits=FREE_CREDITS)
        if verified.purpose == "register":
            self._metrics.granted.labels("registration").inc(FREE_CREDITS)
        return verified

    async def _check_limits(self, email: str, address: str) -> None:
        """Counts a registration for the email and the network address, or for neither if one limit is reached."""
        counters = (
            (f"registrations:email:{email_key(email)}", REGISTRATIONS_PER_EMAIL, HOUR),
            (f"registrations:address:{address}", REGISTRATIONS_PER_ADDRESS, DAY),
        )
        for count in (self._limiter.peek, self._limiter.hit):
            for counter in counters:
                status = await count(*counter)
                if not status.allowed:
                    message = "Too many registrations; try again later."
                    raise RateLimited(message, retry_after=status.retry_after, reason="registrations")
