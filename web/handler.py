"""Handler: how every request comes in. Route, account, rate and size are looked at before the body."""

from __future__ import annotations

from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, ClassVar, cast

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, stream_request_body

from config.tariff import FAILED_LOGINS, RATE_WINDOW
from storage.errors import InvalidKey
from web.answers import Answers
from web.errors import ApiError, FileTooLarge, InvalidParameter, KeyNotVerified, MethodNotAllowed, RateLimited
from web.headers import PREFLIGHT
from web.requests import Requests, declared_length
from web.services.accounts import Account
from web.services.addresses import client_address, subscriber
from web.services.all import Services
from web.surplus import Surplus


@stream_request_body
class Handler(Requests, Answers):
    """A resource. Every handler takes its body as a stream, and so can refuse a request before its body."""

    max_body: ClassVar[int] = 64 << 10  # bytes

    def initialize(self, services: Services) -> None:
        super().initialize(services)
        self._surplus: Surplus | None = None  # of a request that has been refused
        peer, forwarded = self.request.remote_ip or "", self.request.headers.get("X-Forwarded-For")
        self._address = subscriber(client_address(peer, forwarded, services.settings.trusted_proxies))

    async def prepare(self) -> None:
        try:
            if self.request.method not in self.verbs():
                await self.look()
                raise self.misrouted()
            if self.request.method == "OPTIONS":
                await self.look()
                return
            await self.admit()
            self._understand()
            await self.expect_body(declared_length(self.request.headers.get("Content-Length")))
        except Exception as error:
            await self._refuse(error)

    def misrouted(self) -> ApiError:
        return MethodNotAllowed(self.verbs())

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        if isinstance(error, HTTPError):  # Tornado's own, about requests that never came to a verb
            malformed = InvalidParameter("The request is malformed.", reason="malformed")
            error = self.misrouted() if status_code == 405 else malformed
        self.write_problem(error)
        self.finish()

    async def admit(self) -> None:
        """Finds out whose request this is, and counts it."""
        try:
            account = await self.services.accounts.authenticate(self.request.headers.get("Authorization"))
        except InvalidKey:
            await self.look()
            await self._count_failure()
            raise
        self.account = account
        if not account.verified:
            await self.look()
            raise KeyNotVerified("The account's e-mail address is not verified: open the link in the mail.")
        await self.count(*self._limit(account))

    async def _count_failure(self) -> None:
        verdict = await self.services.limiter.hit(f"failures:{self._address}", FAILED_LOGINS, RATE_WINDOW)
        if not verdict.allowed:
            message = f"More than {FAILED_LOGINS} wrong keys in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=verdict.retry_after, reason="failed_authentications")

    def client(self) -> Account:
        """The account that the request was let in for."""
        assert self.account is not None
        return self.account

    async def count(self, key: str, limit: int) -> None:
        """Counts the request. Raises RateLimited."""
        verdict = await self.services.limiter.hit(key, limit, RATE_WINDOW)
        self.show(verdict)
        if not verdict.allowed:
            message = f"More than {limit} requests in {RATE_WINDOW} seconds."
            raise RateLimited(message, retry_after=verdict.retry_after)

    async def count_address(self) -> None:
        """Counts the request for its address."""
        await self.count(*self._limit(None))

    async def look(self) -> None:
        """Shows where the account stands, or the address where there is none, and counts nothing."""
        key, limit = self._limit(self.account)
        self.show(await self.services.limiter.peek(key, limit, RATE_WINDOW))

    def _limit(self, account: Account | None) -> tuple[str, int]:
        """By what its requests are counted, and how many it may make."""
        settings = self.services.settings
        if account is None:
            return f"address:{self._address}", settings.rate_limit_anonymous
        return account.counted_as, settings.rate_limit(account.tier.name)

    def _understand(self) -> None:
        coding = self.request.headers.get("Content-Encoding", "identity")
        if coding.lower() != "identity":
            message = "The body must come without a Content-Encoding."
            raise InvalidParameter(message, reason="content_encoding", param="Content-Encoding")

    async def expect_body(self, length: int | None) -> None:
        """Gets ready for a body of `length` bytes, which is None where the client does not say."""
        if (length or 0) > self.max_body:
            raise FileTooLarge(self.max_body)

    async def take(self, chunk: bytes) -> None:
        """Takes a piece of the body, of which `received` bytes have come. The next waits until this one is taken."""
        if self.received > self.max_body:
            raise FileTooLarge(self.max_body)

    async def data_received(self, chunk: bytes) -> None:
        self.received += len(chunk)
        if self._surplus is not None:
            if self._surplus.is_too_much(chunk):
                self._cut_off()
            return
        try:
            await self.take(chunk)
        except Exception as error:
            await self._refuse(error)

    async def _refuse(self, error: Exception) -> None:
        """Answers now, and passes over the body that may still come."""
        self.log_exception(type(error), error, error.__traceback__)
        self._surplus = Surplus(self._cut_off)
        setattr(self, str(self.request.method).lower(), self._nothing_more)
        self.write_problem(error)
        with suppress(StreamClosedError):
            await self.flush()
        if "Expect" in self.request.headers:  # it has nothing on the way yet
            self.finish()

    def _cut_off(self) -> None:
        if not self.ended:
            self.finish()

    def on_finish(self) -> None:
        super().on_finish()
        if self._surplus is not None:
            self._surplus.end()

    async def _nothing_more(self, *_args: str) -> None:
        """Stands in for the verb of a request that has been refused."""

    async def head(self, *args: str) -> None:
        await cast(Coroutine[Any, Any, None], self.get(*args))

    async def options(self, *_args: str) -> None:
        self.set_status(204)
        verbs = ", ".join(self.verbs())
        for name, value in {**PREFLIGHT, "Access-Control-Allow-Methods": verbs, "Allow": verbs}.items():
            self.set_header(name, value)


class PublicHandler(Handler):
    """A resource that needs no key. Requests are counted by address."""

    async def admit(self) -> None:
        await self.count_address()


class UncountedHandler(Handler):
    """A resource that answers anybody at any rate."""

    async def admit(self) -> None:
        """Lets everybody in."""

    async def look(self) -> None:
        """Leaves the headers as they are."""
