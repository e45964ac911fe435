"""Authentication and rate limiting of a request."""

from __future__ import annotations

import time
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest

from config.pricing import FAILED_LOGINS, RATE_WINDOW
from storage.errors import InvalidKey
from storage.rate_limits import unused
from web.api.errors import InvalidParameter, KeyNotVerified, RateLimited
from web.services.accounts import Account
from web.services.container import Services


def is_same_origin(request: HTTPServerRequest, base_url: str) -> bool | None:
    """Whether a page of this server sent the request; None if no page did, by the headers that browsers set."""
    site, origin = request.headers.get("Sec-Fetch-Site"), request.headers.get("Origin")
    if site is not None:
        return site == "same-origin"
    base = urlsplit(base_url)
    own = (f"{request.protocol}://{request.host}", f"{base.scheme}://{base.netloc}")
    return None if origin is None else origin in own


def cross_site() -> InvalidParameter:
    """The error for a request from a page of another site."""
    return InvalidParameter("This form was sent from another site.", reason="cross_site", param="Origin")


class Authorization:
    """The account of a request, and its rate limit: by account, or by client address without one.

    `status` is the rate limit for the response headers.
    """

    def __init__(self, services: Services, address: str) -> None:
        self.account: Account | None = None
        self.status = unused(services.settings.rate_limit_anonymous, RATE_WINDOW, time.time())
        self._services = services
        self._address = address

    async def authenticate(self, header: str | None, *, cached: bool) -> None:
        """Looks up the account of an Authorization header. Raises InvalidKey, KeyNotVerified and RateLimited.

        With `cached`, the balance may be outdated.
        """
        try:
            self.account = await self._services.accounts.authenticate(header, cached=cached)
        except InvalidKey:
            await self.peek()
            await self.count_failed_login()
            raise
        if self.account.verified_at is None:
            await self.peek()
            raise KeyNotVerified

    async def count_failed_login(self) -> None:
        """Counts an invalid API key for the address. Raises RateLimited."""
        status = await self._services.limiter.hit(f"failures:{self._address}", FAILED_LOGINS, RATE_WINDOW)
        if not status.allowed:
            message = f"More than {FAILED_LOGINS} invalid API keys in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=status.retry_after, reason="failed_authentications")

    async def count(self) -> None:
        """Counts the request. Raises RateLimited."""
        key, limit = self._key_and_limit()
        self.status = await self._services.limiter.hit(key, limit, RATE_WINDOW)
        if not self.status.allowed:
            message = f"More than {limit} requests in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=self.status.retry_after)

    async def peek(self) -> None:
        """Updates `status` without counting the request."""
        key, limit = self._key_and_limit()
        self.status = await self._services.limiter.peek(key, limit, RATE_WINDOW)

    def _key_and_limit(self) -> tuple[str, int]:
        settings = self._services.settings
        if self.account is None:
            return f"address:{self._address}", settings.rate_limit_anonymous
        paid = self.account.tier.name == "paid"
        return self.account.rate_limit_key, settings.rate_limit_paid if paid else settings.rate_limit_free
