"""What clients still send of a request that has its answer already."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, ClassVar, cast

from tornado.iostream import StreamClosedError
from tornado.web import HTTPError, RequestHandler, stream_request_body

from config.pricing import FAILED_LOGINS, RATE_WINDOW
from storage.errors import InvalidKey
from web.api.errors import ApiError, FileTooLarge, InvalidParameter, KeyNotVerified, MethodNotAllowed, RateLimited
from web.api.fields import AnyField, Values
from web.api.headers import PREFLIGHT_HEADERS
from web.api.operations import Operation, operation_of
from web.http.responses import Answers
from web.services.accounts import Account
from web.services.client_address import client_address, client_network
from web.services.container import Services

_DRAIN_BYTES = 32 << 20
_DRAIN_SECONDS = 10


class BodyDrain:
    """Passed over, up to so many bytes and seconds: to close on a client that is sending could cost it the answer.

    `cut_off` is called where it takes too long.
    """

    def __init__(self, cut_off: Callable[[], None]) -> None:
        self._left = _DRAIN_BYTES
        self._timer = asyncio.get_running_loop().call_later(_DRAIN_SECONDS, cut_off)

    def is_too_much(self, chunk: bytes) -> bool:
        """Passes over some of it; whether that is more than is waited for."""
        self._left -= len(chunk)
        return self._left < 0

    def end(self) -> None:
        """There is no more to come. Until then the timer keeps alive what it would cut off."""
        self._timer.cancel()


class Requests(RequestHandler):
    """The half of a handler that reads requests."""

    def verbs(self) -> tuple[str, ...]:
        """The verbs that the resource answers to."""
        verbs = ("GET", "POST", "PUT", "PATCH", "DELETE")
        own = [verb for verb in verbs if _method(type(self), verb) is not _method(RequestHandler, verb)]
        return (*own, *(["HEAD"] if "GET" in own else []), "OPTIONS")

    def operation(self) -> Operation:
        """The operation that is asked for. HEAD is like GET."""
        verb = str(self.request.method)
        found = operation_of(type(self), "GET" if verb == "HEAD" else verb)
        assert found is not None, f"{type(self).__name__} does not declare {verb}"
        return found

    def given(self) -> Values:
        """What the declared fields of the request stand for. Raises InvalidParameter."""
        declared, headers = self.operation(), self.request.headers
        return Values(
            [
                *((field, field.of_text(self._asked(field.name))) for field in declared.query),
                *self.carried(),
                *((field, field.of_text(headers.get(field.name))) for field in declared.headers),
            ]
        )

    def carried(self) -> Iterator[tuple[AnyField, object]]:
        """What the declared fields of the body stand for. Raises InvalidParameter."""
        yield from ()

    def _asked(self, name: str) -> str | None:
        """The field of the query. What is written twice could be read either way."""
        found = self.get_query_arguments(name, strip=False)
        if len(found) > 1:
            raise InvalidParameter(f"{name} was sent twice.", reason="duplicate", param=name)
        return found[0] if found else None


def _method(handler: type[RequestHandler], verb: str) -> object:
    return getattr(handler, verb.lower())


def declared_length(content_length: str | None) -> int | None:
    """The bytes that a request announces; None where it does not say, or says nonsense."""
    plain = content_length is not None and re.fullmatch(r"[0-9]{1,4000}", content_length)
    return int(plain[0]) if plain else None


@stream_request_body
class Handler(Requests, Answers):
    """A resource. Every handler takes its body as a stream, and so can refuse a request before its body."""

    max_body: ClassVar[int] = 64 << 10  # bytes

    def initialize(self, services: Services) -> None:
        super().initialize(services)
        self._surplus: BodyDrain | None = None  # of a request that has been refused
        peer, forwarded = self.request.remote_ip or "", self.request.headers.get("X-Forwarded-For")
        self._address = client_network(client_address(peer, forwarded, services.settings.trusted_proxies))

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
        return account.rate_limit_key, settings.rate_limit(account.tier.name)

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
        self._surplus = BodyDrain(self._cut_off)
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
        for name, value in {**PREFLIGHT_HEADERS, "Access-Control-Allow-Methods": verbs, "Allow": verbs}.items():
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
