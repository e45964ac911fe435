"""Registrations: an application gets a key once its e-mail address is shown to be its own."""

from __future__ import annotations

from config.tariff import DAY, FREE_CREDITS, HOUR, REGISTRATIONS_PER_ADDRESS, REGISTRATIONS_PER_EMAIL
from storage import registration
from storage.database import Database
from storage.limits import Limiter
from storage.registration import Verified
from web.errors import RateLimited
from web.services import letters
from web.services.post import Postbox


class Registrations:
    """Mails links, and gives keys to whoever opens them."""

    def __init__(self, database: Database, postbox: Postbox, limiter: Limiter, base_url: str) -> None:
        self._database = database
        self._postbox = postbox
        self._limiter = limiter
        self._base_url = base_url

    async def register(self, email: str, name: str, address: str) -> None:
        """Mails a link, the same for known addresses and new ones. Raises RateLimited."""
        await self._count(f"register:email:{email.lower()}", REGISTRATIONS_PER_EMAIL, HOUR)
        await self._count(f"register:address:{address}", REGISTRATIONS_PER_ADDRESS, DAY)
        begun = await self._database.run(registration.register, email, name)
        letter = letters.verification if begun.purpose == "register" else letters.replacement
        self._postbox.post(letter(begun.email, f"{self._base_url}/verify?token={begun.token}"))

    async def verify(self, token: str) -> Verified:
        """Uses a token up for an account and a key. Raises Missing."""
        return await self._database.run(registration.verify, token, free_credits=FREE_CREDITS)

    async def _count(self, key: str, limit: int, window: int) -> None:
        verdict = await self._limiter.hit(key, limit, window)
        if not verdict.allowed:
            message = f"More than {limit} registrations in {window} seconds."
            raise RateLimited(message, retry_after=verdict.retry_after, reason="registrations")
