"""BaseHandler: the checks before a resource's method, and the response.

The checks, in this order: route and method, API key, rate limit, job queue, body size. A request that fails one of them
gets its error response before its body has arrived.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import cached_property, wraps
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, Concatenate, ParamSpec, TypeVar, cast

from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from config.errors import PublicError
from storage.ids import new_id
from web.api.errors import (
    STATUS,
    InvalidParameter,
    MethodNotAllowed,
    NotFound,
    RateLimited,
    envelope,
    error_headers,
    malformed,
    public_error,
)
from web.api.headers import PREFLIGHT_HEADERS, common_headers, rate_limit_headers
from web.api.job_fields import Preferences, parse_preferences
from web.api.operations import METHODS, Access, Route
from web.api.values import below, to_json
from web.http.authorization import Authorization
from web.http.connections import connection_of
from web.http.request_input import DiscardedBody, RequestInput
from web.http.responses import accepted_language, write_json
from web.http.server import UNKNOWN_METHOD
from web.locale.languages import Language
from web.metrics.conversions import RequestContext
from web.services.accounts.accounts import Account
from web.services.container import Services
from web.services.conversions.idempotency import Replayed, ResponseData
from web.services.files.work_files import WorkFile

log = logging.getLogger("convertd.web")

_CLIENT_CLOSED_REQUEST = 499  # for the access log only

P = ParamSpec("P")
H = TypeVar("H", bound="BaseHandler")


@stream_request_body
class BaseHandler(RequestHandler):
    """A resource. Its methods are decorated with the Operation that they implement, unless the route has them.

    `access` is the policy of who may send requests; if not `any_host`, only under the host of the base URL.
    `fixed_headers` are sent with all its responses, `max_body` is the maximum size in bytes of bodies other than
    multipart forms, `methods` are the HTTP methods. A resource without methods does not exist; `absence` is the message
    of the error. `work` is the task to cancel when the client disconnects; `disconnected` shows whether it has.
    """

    access: ClassVar[Access] = "key"
    any_host: ClassVar[bool] = True
    fixed_headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    max_body: ClassVar[int] = 64 << 10
    absence: str = "This path does not exist."
    methods: ClassVar[tuple[str, ...]] = ()
    SUPPORTED_METHODS = (*RequestHandler.SUPPORTED_METHODS, UNKNOWN_METHOD)

    def __init_subclass__(cls) -> None:
        own = [name for name in METHODS if getattr(cls, name.lower()) is not getattr(RequestHandler, name.lower())]
        cls.methods = (*own, *(["HEAD"] if "GET" in own else []), "OPTIONS") if own else ()

    def initialize(self, services: Services, route: Route) -> None:
        self.services = services
        self.route = route
        self.operation = route.operations.get("GET" if self.request.method == "HEAD" else str(self.request.method))
        self.context = RequestContext(self.request_id)
        self.connection = connection_of(self.request.server_connection)
        self.authorization = Authorization(services, self.request)
        self.input = RequestInput(self.request, self.operation)
        self._received = 0  # bytes of the body
        self._sent = 0  # bytes of the response body
        self._error: PublicError | None = None
        self._replayed = False
        self._headers_sent = False
        self._ended = False
        self.disconnected = False
        self.work: asyncio.Task[Any] | None = None
        services.in_flight.begin(self.request_id)

    def set_default_headers(self) -> None:
        # Tornado calls this before initialize, and again after an error has cleared the headers.
        if "request_id" not in vars(self):
            self.request_id = new_id("req")
        for name, value in {**common_headers(self.request_id), **self.fixed_headers}.items():
            self.set_header(name, value)

    def compute_etag(self) -> str | None:
        return None  # every response differs by its request id

    @cached_property
    def preferences(self) -> Preferences:
        """The preferences in the header Prefer."""
        header = self.request.headers.get("Prefer")
        return parse_preferences(header) if header else Preferences()

    # Before the method

    async def prepare(self) -> None:
        try:
            method = str(self.request.method)
            # Jobs in the background have a queue of their own.
            queued = self.operation is not None and self.operation.queued and not self.preferences.respond_async
            if method == "OPTIONS" or method not in self.methods:
                await self.authorization.peek(self.access)
            if not self.methods:
                raise NotFound(self.absence)
            if method not in self.methods:
                raise MethodNotAllowed(self.methods)
            if not self.any_host:
                self.authorization.check_host()
            if method != "OPTIONS":
                await self.authorize()
                self.connection.has_account = self.authorization.credits_remaining is not None
            if self.request.headers.get("Content-Encoding", "identity").lower() != "identity":
                message = "The body must be sent without a Content-Encoding."
                raise InvalidParameter(message, reason="content_encoding", param="Content-Encoding")
            if self.operation is not None and self.access != "open" and self.request.query_arguments:
                self.input.check_query(self.operation)
            if queued:
                self.services.admission.check(self.client().tenant)
            account = self.authorization.account
            self.input.expect_body(self.max_body, account, self.services, self.connection)
        except Exception as error:
            await self._refuse(error)

    async def authorize(self) -> None:
        """Raises an error if the sender may not use the resource."""
        await self.authorization.check(self.access)

    async def data_received(self, chunk: bytes) -> None:
        self._received += len(chunk)
        try:
            await self.input.body.write(chunk)
        except Exception as error:
            await self._refuse(error)

    async def _refuse(self, error: Exception) -> None:
        """Sends the error at once, and discards the rest of the body."""
        self.log_exception(type(error), error, error.__traceback__)
        self.input.body.close()
        self.input.body = DiscardedBody(self.finish)
        setattr(self, str(self.request.method).lower(), _no_method)
        self.write_public_error(error)
        with suppress(StreamClosedError):
            await self.flush()
        if "Expect" in self.request.headers:  # the client has not sent the body
            self.finish()

    def client(self) -> Account:
        """The authenticated account."""
        assert self.authorization.account is not None
        return self.authorization.account

    @property
    def language(self) -> Language:
        """The language that the client prefers for emails."""
        return accepted_language(self.request.headers.get("Accept-Language", ""))

    @property
    def base_path(self) -> str:
        """The path below which everything is served. Paths of requests are without it, and links have it."""
        return self.services.settings.base_path

    def redirect(self, url: str, permanent: bool = False, status: int | None = None) -> None:
        """Redirects to a URL, or to a path of this server."""
        super().redirect(self.base_path + url if url.startswith("/") else url, permanent, status)

    def static_url(self, path: str, include_host: bool | None = None, **kwargs: Any) -> str:
        """The URL of a static file."""
        return self.base_path + super().static_url(path, include_host, **kwargs)

    def create_work_file(self) -> WorkFile:
        """An empty file of the account, for the request or its result. Raises RateLimited."""
        return self.services.work_files.create(self.client().tenant.id, self.connection.give_up_if_slow)

    # Responding

    def respond(self, data: object) -> None:
        """Responds with a value of the API, or JSON values, in the envelope."""
        write_json(self, {"data": below(self.base_path, to_json(data)), "meta": self._meta()})

    def respond_encoded(self, data: bytes) -> None:
        """Responds with encoded JSON in the envelope."""
        write_json(self, b'{"data": %b, "meta": %b}' % (data, json.dumps(self._meta()).encode()))

    def _meta(self) -> dict[str, Any]:
        """The metadata of the response. Sets the header with the balance, if there is one."""
        meta: dict[str, Any] = {"request_id": self.request_id}
        if (credits := self.authorization.credits_remaining) is not None:
            meta["credits_remaining"] = credits
            self.set_header("X-Credits-Remaining", str(credits))
        return meta

    def unwrap_replay(self, response: ResponseData | Replayed) -> ResponseData:
        """The response data. Sets the header Idempotency-Replayed if it is stored. Raises a stored error."""
        if isinstance(response, Replayed):
            self._replayed = True
            self.set_header("Idempotency-Replayed", "true")
            return response.response
        return response

    def set_error(self, error: PublicError) -> None:
        """Sets the status and the headers of the error."""
        self._error = error
        if isinstance(error, RateLimited) and error.limit is not None:
            self.authorization.show_limit(error.limit)
        self.set_status(STATUS[error.code])
        for name, value in error_headers(error, replayed=self._replayed).items():
            self.set_header(name, value)

    def write_public_error(self, error: BaseException | None) -> None:
        """Responds with the error in the envelope."""
        public = public_error(error)
        self.set_error(public)
        write_json(self, below(self.base_path, envelope(public, self.request_id)))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        if isinstance(error, HTTPError):  # raised by Tornado for requests that reached no method
            error = malformed("The request is malformed.")
        self.write_public_error(error)

    def write(self, chunk: str | bytes | dict[str, Any]) -> None:
        if self.request.method != "HEAD":
            self._sent += len(chunk) if isinstance(chunk, bytes) else len(str(chunk).encode())
        super().write(chunk)

    def flush(self, include_footers: bool = False) -> asyncio.Future[None]:
        if not self._headers_sent:
            self._headers_sent = True
            for name, value in rate_limit_headers(self.authorization.status).items():
                self.set_header(name, value)
            if self.services.in_flight.stopping:
                self.set_header("Connection", "close")
        return super().flush(include_footers)

    async def head(self, *args: str) -> None:
        await cast(Coroutine[Any, Any, None], self.get(*args))

    async def options(self, *_args: str) -> None:
        self.set_status(204)
        methods = ", ".join(self.methods)
        for name, value in {**PREFLIGHT_HEADERS, "Access-Control-Allow-Methods": methods, "Allow": methods}.items():
            self.set_header(name, value)

    def begin_trace(self) -> None:
        """Begins the span of the request, so that its job continues the trace."""
        self.services.request_log.begin_trace(
            self.context,
            self.request.headers,
            method=str(self.request.method),
            route=self.route.label,
            seconds=self.request.request_time(),
        )

    # The end of the request

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self.disconnected:
            return
        self.disconnected = True
        if not self._headers_sent:
            self.set_status(_CLIENT_CLOSED_REQUEST, "Client Closed Request")
        if self.work is not None:
            self.work.cancel()
        elif self.connection.receiving:
            self.on_finish()  # the method will not run, so Tornado does not end the request

    def on_finish(self) -> None:
        if self._ended:
            return
        self._ended = True
        self.services.request_log.record(
            self.context,
            self.authorization.account,
            self._error,
            self.input.shown_options,
            self.request.headers,
            method=str(self.request.method),
            path=self.request.path,
            route=self.route.label,
            status=self.get_status(),
            seconds=self.request.request_time(),
            received=self._received,
            sent=self._sent,
        )
        self.services.in_flight.end(self.request_id)
        self.input.body.close()

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        # The access log has the expected errors.
        if value is not None and not isinstance(value, PublicError | HTTPError):
            fields = {"request_id": self.request_id}
            log.error("request failed", exc_info=(type(value), value, tb), extra={"fields": fields})


def cancelled_on_disconnect(
    method: Callable[Concatenate[H, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[H, P], Coroutine[Any, Any, None]]:
    """Decorates a method of a handler, which is cancelled if the client disconnects."""

    @wraps(method)
    async def cancellable(handler: H, /, *args: P.args, **kwargs: P.kwargs) -> None:
        handler.work = work = asyncio.current_task()
        if work is None or handler.disconnected:
            raise Finish
        try:
            await method(handler, *args, **kwargs)
        except (asyncio.CancelledError, StreamClosedError) as error:
            if isinstance(error, asyncio.CancelledError) and not handler.disconnected:
                raise
            work.uncancel()
            raise Finish from None

    return cancellable


async def _no_method(*_args: str) -> None:
    """The method of a refused request."""
