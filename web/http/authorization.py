"""Who may send a request: authentication, the origin of forms, rate limits, and the addresses that these apply to."""

import re
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import urlsplit

from tornado.httputil import HTTPServerRequest, split_host_and_port

from config.pricing import FAILED_LOGINS, PAGE_REQUESTS, RATE_WINDOW
from config.settings import is_loopback
from storage.errors import InvalidKey
from storage.rate_limits import RateLimitStatus, unused
from web.api.errors import InvalidParameter, KeyNotVerified, RateLimited
from web.api.operations import Access
from web.services.accounts.accounts import Account
from web.services.container import Services

SESSION_COOKIE = "convertd_account"  # for all pages; releases before this one had a cookie for the dashboard only
PAGE_ACCOUNT = "X-Page-Account"
"""The header with the id of the account that a page was made for; empty without one."""

_SCRIPTS = ("trial", "preview")
_FORMS = ("form", "session", *_SCRIPTS)
_CLIENT_PREFIX = 64  # bits of an IPv6 address that identify one subscriber
_WITH_PORT = re.compile(r"\[([^]]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+", re.ASCII)


class Authorization:
    """The account of a request, and its rate limit: by account, or by client `address` without one.

    `session` is the account of the browser's session, which requests to the dashboard have in place of `account`.
    `credits_remaining` is the balance that the response shows; None without an account, and for the account of trials.
    """

    def __init__(self, services: Services, request: HTTPServerRequest) -> None:
        self.account: Account | None = None
        self.session: Account | None = None
        self._counted: RateLimitStatus | None = None
        self.credits_remaining: int | None = None
        self._services = services
        self._request = request

    @cached_property
    def address(self) -> str:
        """The network of the client, behind trusted proxies."""
        forwarded = self._request.headers.get("X-Forwarded-For")
        trusted = self._services.settings.trusted_proxies
        return client_network(client_address(self._request.remote_ip or "", forwarded, trusted))

    @property
    def status(self) -> RateLimitStatus:
        """The rate limit for the response headers."""
        return self._counted or unused(self._services.settings.rate_limit_anonymous, RATE_WINDOW, time.time())

    def check_host(self) -> None:
        """Raises InvalidParameter unless the Host header names the host of the base URL, or both name this machine.

        Otherwise, a site whose name resolves to the address of this server could use its pages as its own.
        """
        base = urlsplit(self._services.settings.base_url)
        host = split_host_and_port(self._request.host.lower())[0].strip("[]")
        if host != base.hostname and not (is_loopback(host) and is_loopback(base.hostname)):
            address = f"{base.scheme}://{base.netloc.rpartition('@')[2]}"
            message = f"The pages are at {address}. The setting CONVERTD_BASE_URL changes their address."
            raise InvalidParameter(message, reason="unknown_host", param="Host")

    async def check(self, access: Access) -> None:
        """Applies the policy of a resource to the request, and counts it. Raises ApiError and InvalidKey."""
        if access == "open":
            return
        if access in _FORMS and self._request.method == "POST" and not self._is_same_origin():
            raise _cross_site()
        if access == "key":
            await self.authenticate()
        if access in _SCRIPTS:
            await self._find_page_account()
        key, limit = self._key_and_limit(access)
        self._counted = await self._services.limiter.hit(key, limit, RATE_WINDOW)
        if not self._counted.allowed:
            message = f"More than {limit} requests in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=self._counted.retry_after)
        match access:
            case "not_cross_site":
                if self._is_same_origin() is False:
                    raise _cross_site()
            case "session":
                if await self.find_session() is None:
                    raise InvalidKey
            case "trial" if self.account is None:
                self.account = await self._services.trials.account(self.address)
                await self._services.trials.check(self.address)
            case "preview":
                await self._check_preview()

    async def peek(self, access: Access) -> None:
        """Updates `status` without counting the request."""
        if access != "open":
            key, limit = self._key_and_limit(access)
            self._counted = await self._services.limiter.peek(key, limit, RATE_WINDOW)

    async def find_session(self) -> Account | None:
        """Sets and returns the account of the browser's session, if it has one."""
        cookie = self._request.cookies.get(SESSION_COOKIE)
        if cookie is not None:
            with suppress(InvalidKey):
                self.session = await self._services.accounts.session_account(cookie.value)
        return self.session

    async def count_failed_login(self) -> None:
        """Counts an invalid API key for the address. Raises RateLimited."""
        status = await self._services.limiter.hit(f"failures:{self.address}", FAILED_LOGINS, RATE_WINDOW)
        if not status.allowed:
            message = f"More than {FAILED_LOGINS} invalid API keys in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=status.retry_after, reason="failed_authentications", limit=status)

    def show_limit(self, limit: RateLimitStatus) -> None:
        """Makes `limit` the `status`, because the request exceeds it."""
        self._counted = limit

    async def authenticate(self) -> None:
        """Sets the account by the Authorization header. Raises InvalidKey, KeyNotVerified and RateLimited."""
        header = self._request.headers.get("Authorization")
        try:
            self.account = account = await self._services.accounts.authenticate(header)
        except InvalidKey as error:
            await self.peek("key")
            if (header or "").strip().lower() not in ("", "bearer"):
                await self.count_failed_login()
            raise InvalidKey(_misplaced_key(self._request)) from error
        self.credits_remaining = account.credits_remaining
        if account.verified_at is None:
            await self.peek("key")
            raise KeyNotVerified

    async def _find_page_account(self) -> None:
        """Sets the account of the browser's session, if it has one, for a request of a page's script.

        Raises InvalidParameter if it is not the account that the page was made for: it has another price and limits.
        """
        self.account = await self.find_session()
        expected = self._request.headers.get(PAGE_ACCOUNT)
        if expected is not None and expected != (self.account.id if self.account else ""):
            message = "You have signed in or out since this page was opened. Reload it."
            raise InvalidParameter(message, reason="signed_in_changed", param=PAGE_ACCOUNT)
        if self.account is not None:
            self.credits_remaining = self.account.credits_remaining

    async def _check_preview(self) -> None:
        """Sets the account of trials. The files of an account that is signed in may be as large as its tier allows."""
        trials = self._services.trials
        signed_in = self.account
        self.account = paying = await trials.account(self.address)
        self.credits_remaining = None
        if signed_in is None:
            trials.check_offered()
        else:
            tier = replace(paying.tier, max_file_size=signed_in.tier.max_file_size)
            self.account = replace(paying, tier=tier, client=signed_in.id)
        await trials.count_preview(self.address, signed_in)

    def _key_and_limit(self, access: Access) -> tuple[str, int]:
        if access in _SCRIPTS:
            return f"page:{self.account.id if self.account else self.address}", PAGE_REQUESTS
        if self.account is None:
            return f"address:{self.address}", self._services.settings.rate_limit_anonymous
        return f"account:{self.account.id}", self.account.tier.requests_per_minute

    def _is_same_origin(self) -> bool | None:
        """Whether a page of this server sent the request; None if no page did, by the headers that browsers set."""
        request = self._request
        site = request.headers.get("Sec-Fetch-Site")
        origin = request.headers.get("Origin")
        if site is not None:
            return site == "same-origin"
        base = urlsplit(self._services.settings.base_url)
        own = (f"{request.protocol}://{request.host}", f"{base.scheme}://{base.netloc}")
        return None if origin is None else origin in own


def _misplaced_key(request: HTTPServerRequest) -> str | None:
    """The message about an API key that was sent in a wrong place; None if there is none."""
    scheme, _, rest = request.headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "basic":
        found = "was sent by Basic authentication"
    elif scheme and not rest and scheme.lower() != "bearer":
        found = "was sent without the word Bearer"
    elif "X-API-Key" in request.headers and not scheme:
        found = "was sent in the header X-API-Key"
    else:
        return None
    return f"The API key {found}; send it in the header Authorization: Bearer YOUR_KEY."


def _cross_site() -> InvalidParameter:
    return InvalidParameter("This form was sent from another site.", reason="cross_site", param="Origin")


def client_address(peer: str, forwarded_for: str | None, trusted: Collection[IPv4Network | IPv6Network]) -> str:
    """The client's address: `peer`, or if that is a trusted proxy, the last untrusted address in X-Forwarded-For."""
    nearest = peer
    for hop in [peer, *reversed((forwarded_for or "").split(","))]:
        address = _parse(hop.strip())
        if address is None:
            break
        nearest = str(address)
        if not is_trusted(nearest, trusted):
            break
    return nearest


def is_trusted(address: str, trusted: Collection[IPv4Network | IPv6Network]) -> bool:
    """Whether the address belongs to a trusted proxy."""
    parsed = _parse(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_network(address: str) -> str:
    """The network that rate limits apply to: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, _CLIENT_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(4096)  # every request parses its client's address
def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parses an address. Ignores a port, which some proxies add, and an IPv6 zone."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))
