"""BaseHandler: the checks before a resource's method, the parsing of requests, and the response.

The checks, in this order: route and method, API key, rate limit, job queue, body size. A request that fails one of them
gets its error response before its body has arrived.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType, TracebackType
from typing import Any, ClassVar, cast

from tornado.iostream import StreamClosedError
from tornado.web import Finish, HTTPError, RequestHandler, stream_request_body

from engine.options import Option, OptionValue, validate_options
from storage.ids import new_id
from web.api.errors import (
    STATUS,
    ApiError,
    InvalidParameter,
    MethodNotAllowed,
    PublicError,
    envelope,
    error_headers,
    public_error,
)
from web.api.fields import IdempotencyHeader, Model, check_known, field_names, validate
from web.api.headers import PREFLIGHT_HEADERS, common_headers, rate_limit_headers
from web.api.operations import Access, operation_of
from web.api.values import to_json
from web.http.access_log import AccessRecord, record
from web.http.authorization import Authorization
from web.http.bodies import Body, BodyDrain, MemoryBody, content_length, malformed, read_json
from web.http.multipart import Form, MultipartBody
from web.http.server import UNKNOWN_METHOD, connection_of
from web.metrics.conversions import OTHER
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.client_address import client_address, client_network
from web.services.container import Services
from web.services.idempotency import IdempotentRequest, Replayed, ResponseData

log = logging.getLogger("convertd.web")

_CLIENT_CLOSED_REQUEST = 499  # for the access log only
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@stream_request_body
class BaseHandler(RequestHandler):
    """A resource. Its methods are decorated with the Operation that they implement.

    `access` sets authentication and rate limit, `fixed_headers` are sent with all its responses, `max_body` is the
    maximum size in bytes of bodies other than multipart forms.
    """

    access: ClassVar[Access] = "key"
    fixed_headers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    max_body: ClassVar[int] = 64 << 10
    SUPPORTED_METHODS = (*RequestHandler.SUPPORTED_METHODS, UNKNOWN_METHOD)

    def initialize(self, services: Services) -> None:
        self.services = services
        self.context = RequestContext(self.request_id)
        self.body: Body | None = None  # until the request is authorized
        peer, forwarded = self.request.remote_ip or "", self.request.headers.get("X-Forwarded-For")
        self.address = client_network(client_address(peer, forwarded, services.settings.trusted_proxies))
        self.authorization = Authorization(services, self.address)
        self._received = 0  # bytes of the body
        self._sent = 0  # bytes of the response body
        self._error: PublicError | None = None
        self._replayed = False
        self._drain: BodyDrain | None = None  # of a refused request
        self._headers_sent = False
        self._ended = False
        self._disconnected = False
        self._work: asyncio.Task[None] | None = None
        services.in_flight.begin(self.request_id)

    def set_default_headers(self) -> None:
        # Tornado calls this before initialize, and again after an error has cleared the headers.
        if "request_id" not in vars(self):
            self.request_id = new_id("req")
        for name, value in {**common_headers(self.request_id), **self.fixed_headers}.items():
            self.set_header(name, value)

    def compute_etag(self) -> str | None:
        return None  # every response differs by its request id

    # Before the method

    async def prepare(self) -> None:
        try:
            method = str(self.request.method)
            routed = method in self.supported_methods()
            if self.access != "open" and (method == "OPTIONS" or not routed):
                await self.authorization.peek()
            if not routed:
                raise self.routing_error()
            if method != "OPTIONS":
                await self.authorize()
            if self.request.headers.get("Content-Encoding", "identity").lower() != "identity":
                message = "The body must be sent without a Content-Encoding."
                raise InvalidParameter(message, reason="content_encoding", param="Content-Encoding")
            await self._start_body(method)
        except Exception as error:
            await self._refuse(error)

    def supported_methods(self) -> tuple[str, ...]:
        """The HTTP methods of the resource."""
        methods = [name for name in _METHODS if _method(type(self), name) is not _method(RequestHandler, name)]
        return (*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS")

    def routing_error(self) -> ApiError:
        """The error for a method that is not supported."""
        return MethodNotAllowed(self.supported_methods())

    async def authorize(self) -> None:
        """Authenticates the request where the resource needs an API key, and counts it. Raises ApiError, InvalidKey."""
        if self.access == "key":
            # A queued operation checks the key again when it reserves credits, and its response has the new balance.
            operation = operation_of(type(self), str(self.request.method))
            cached = operation is not None and operation.queued
            await self.authorization.authenticate(self.request.headers.get("Authorization"), cached=cached)
        if self.access != "open":
            await self.authorization.count()

    async def _start_body(self, method: str) -> None:
        operation = operation_of(type(self), method)
        if operation is not None and operation.queued:
            account = self.client()
            self.services.job_queue.check(account.id, account.tier.max_concurrent)
        if operation is not None and operation.form is not None:
            content_type, services = self.request.headers.get("Content-Type", ""), self.services
            account, registry = self.client(), services.registry
            create = partial(services.work_files.create, account.id)
            texts = (*operation.form.text_names, *self.options_taken)
            self.body = MultipartBody(operation.form, texts, content_type, account.tier.max_file_size, create, registry)
        else:
            self.body = MemoryBody(self.max_body)
        await self.body.start(content_length(self.request.headers.get("Content-Length")))

    async def data_received(self, chunk: bytes) -> None:
        self._received += len(chunk)
        if self._drain is not None:
            if self._drain.exceeded(chunk):
                self._abort()
            return
        try:
            assert self.body is not None
            await self.body.write(chunk)
        except Exception as error:
            await self._refuse(error)

    async def _refuse(self, error: Exception) -> None:
        """Sends the error at once, and discards the rest of the body."""
        self.log_exception(type(error), error, error.__traceback__)
        self._drain = BodyDrain(self._abort)
        setattr(self, str(self.request.method).lower(), self._do_nothing)
        self.write_public_error(error)
        with suppress(StreamClosedError):
            await self.flush()
        if "Expect" in self.request.headers:  # the client has not sent the body
            self.finish()

    def _abort(self) -> None:
        if not self._ended:
            self.finish()

    async def _do_nothing(self, *_args: str) -> None:
        """The method of a refused request."""

    # Reading the request

    @property
    def account(self) -> Account | None:
        """The account of the request, if it has been authenticated."""
        return self.authorization.account

    def client(self) -> Account:
        """The authenticated account."""
        assert self.account is not None
        return self.account

    def set_balance(self, credits: int) -> None:
        """Sets the balance after the request, which the response shows."""
        self.authorization.account = replace(self.client(), credits_remaining=credits)

    def query_fields(self, model: type[Model]) -> Model:
        """The validated query. Raises InvalidParameter, also for repeated fields."""
        values: dict[str, object] = {}
        for name in field_names(model):
            arguments = self.get_query_arguments(name, strip=False)
            if len(arguments) > 1:
                raise InvalidParameter(f"{name} was sent twice.", reason="duplicate", param=name)
            if arguments:
                values[name] = arguments[0]
        return validate(model, values, from_text=True)

    def json_fields(self, model: type[Model]) -> Model:
        """The validated fields of the JSON body. Raises InvalidParameter, and InvalidOption for unknown fields."""
        check_known(self.json_values, (*field_names(model), *self.options_taken))
        return validate(model, self.json_values)

    @cached_property
    def json_values(self) -> Mapping[str, Any]:
        """The unvalidated JSON body. Raises InvalidParameter."""
        return read_json(self.content, self.request.headers.get("Content-Type", ""))

    @property
    def options_taken(self) -> Mapping[str, Option]:
        """The options that the body may have, by name."""
        operation = operation_of(type(self), str(self.request.method))
        return operation.options_of(self.services.registry) if operation else {}

    def options_given(self) -> dict[str, OptionValue]:
        """The validated options of the form or the JSON body. Raises InvalidParameter and InvalidOption."""
        is_form, known = isinstance(self.body, MultipartBody), self.options_taken
        values: Mapping[str, object] = self.form.texts if is_form else self.json_values
        given = {name: value for name, value in values.items() if name in known}
        return validate_options(known, given, from_text=is_form)

    def form_fields(self, model: type[Model]) -> Model:
        """The validated text fields of the multipart form. Raises InvalidParameter."""
        return validate(model, self.form.texts, from_text=True)

    def header_fields(self, model: type[Model]) -> Model:
        """The validated request headers. Raises InvalidParameter."""
        return validate(model, dict(self.request.headers), from_text=True)

    @property
    def form(self) -> Form:
        """The multipart form. Raises InvalidParameter if it is incomplete."""
        assert isinstance(self.body, MultipartBody)
        return self.body.form

    @property
    def content(self) -> bytes:
        """The body of a request that is not a multipart form."""
        assert isinstance(self.body, MemoryBody)
        return self.body.content

    def idempotent_request(self) -> IdempotentRequest | None:
        """The request's idempotency key with its scope, if it has one. Raises InvalidParameter."""
        key = self.header_fields(IdempotencyHeader).idempotency_key
        return IdempotentRequest(self.client().id, self.request.path, key) if key else None

    # Responding

    def respond(self, data: object) -> None:
        """Responds with a value of the API, or JSON values, in the envelope."""
        self.set_credits_header()
        balance = {"credits_remaining": self.account.credits_remaining} if self.account else {}
        self.write_json({"data": to_json(data), "meta": {"request_id": self.request_id, **balance}})

    def unwrap_replay(self, response: ResponseData | Replayed) -> ResponseData:
        """The response data. Sets the header Idempotency-Replayed if it is stored. Raises a stored error."""
        if isinstance(response, Replayed):
            self._replayed = True
            self.set_header("Idempotency-Replayed", "true")
            return response.response
        return response

    def write_json(self, value: Mapping[str, Any]) -> None:
        """Responds with JSON."""
        self.write_encoded(json.dumps(value, ensure_ascii=False).encode())

    def write_encoded(self, body: bytes) -> None:
        """Responds with encoded JSON."""
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Length", str(len(body)))
        self.write(body)

    def set_credits_header(self) -> None:
        """Sets X-Credits-Remaining for an authenticated request."""
        if self.account:
            self.set_header("X-Credits-Remaining", str(self.account.credits_remaining))

    def redirect_to(self, url: str) -> None:
        """Responds with 303 See Other."""
        self.set_status(303)
        self.set_header("Location", url)

    def set_error(self, error: PublicError) -> None:
        """Sets the status and the headers of the error."""
        self._error = error
        self.set_status(STATUS[error.code])
        for name, value in error_headers(error, replayed=self._replayed).items():
            self.set_header(name, value)

    def write_public_error(self, error: BaseException | None) -> None:
        """Responds with the error in the envelope."""
        public = public_error(error)
        self.set_error(public)
        self.write_json(envelope(public, self.request_id))

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else None
        if isinstance(error, HTTPError):  # raised by Tornado for requests that reached no method
            error = malformed("The request is malformed.")
        self.write_public_error(error)
        self.finish()

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
        methods = ", ".join(self.supported_methods())
        for name, value in {**PREFLIGHT_HEADERS, "Access-Control-Allow-Methods": methods, "Allow": methods}.items():
            self.set_header(name, value)

    # The end of the request

    async def cancel_on_disconnect(self, work: Coroutine[Any, Any, None]) -> None:
        """Awaits the work, and cancels it if the client disconnects."""
        self._work = asyncio.ensure_future(work)
        if self._disconnected:
            self._work.cancel()
        try:
            await self._work
        except (asyncio.CancelledError, StreamClosedError) as error:
            if isinstance(error, asyncio.CancelledError) and not self._disconnected:
                raise
            raise Finish from None

    def on_connection_close(self) -> None:
        super().on_connection_close()
        if self._disconnected:
            return
        self._disconnected = True
        if not self._headers_sent:
            self.set_status(_CLIENT_CLOSED_REQUEST, "Client Closed Request")
        if self._work is not None:
            self._work.cancel()
        elif connection_of(self.request.server_connection).receiving and not self._ended:
            # The method will not run, so Tornado does not end the request.
            self.log_access()
            self.on_finish()

    def on_finish(self) -> None:
        self._ended = True
        self.services.in_flight.end(self.request_id)
        if self.body is not None:
            self.body.close()
        if self._drain is not None:
            self._drain.close()

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        # The access log has the expected errors.
        if value is not None and not isinstance(value, PublicError | HTTPError):
            fields = {"request_id": self.request_id}
            log.error("request failed", exc_info=(type(value), value, tb), extra={"fields": fields})

    def log_access(self) -> None:
        """Records the request in the access log, the metrics and the account's request log."""
        entry = AccessRecord(
            method=str(self.request.method),
            path=self.request.path,
            route=str(self.settings["routes"].get(type(self), OTHER)),
            status=self.get_status(),
            seconds=self.request.request_time(),
            context=self.context,
            account=self.account,
            error=self._error,
            received=self._received,
            sent=self._sent,
        )
        record(self.services, entry)


def _method(handler: type[RequestHandler], name: str) -> object:
    return getattr(handler, name.lower())
