"""The HTTP server: Tornado's, with an answer in the envelope where Tornado has a bare status line or none."""

from __future__ import annotations

import json
import logging
import time
from typing import Any
from weakref import WeakKeyDictionary

from tornado.http1connection import HTTP1Connection, HTTP1ServerConnection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPConnection, HTTPMessageDelegate
from tornado.iostream import IOStream, UnsatisfiableReadError
from tornado.web import Application

from config.tariff import RATE_WINDOW
from storage.limits import fresh
from web.errors import STATUS, InvalidParameter, envelope
from web.headers import common, limits
from web.services.ids import new_id

log = logging.getLogger("convertd.access")

_BARE = b"HTTP/1.1 400 Bad Request\r\n\r\n"
_MAX_HEADERS = 64 << 10  # bytes
_IDLE_SECONDS = 60  # between requests, and for the headers of one
_BODY_SECONDS = 900  # 100 MB at 1 Mbit/s
_UNLIMITED = 1 << 60  # handlers count the bytes of bodies, and say so in the envelope


class Server(HTTPServer):
    """Serves an application. `rate_limit` is what clients are told who cannot be understood."""

    def initialize(self, application: Application, rate_limit: int) -> None:  # type: ignore[override]
        self._rate_limit = rate_limit
        self._latest: WeakKeyDictionary[IOStream, HTTP1Connection] = WeakKeyDictionary()
        super().initialize(
            application,
            max_header_size=_MAX_HEADERS,
            max_body_size=_UNLIMITED,
            idle_connection_timeout=_IDLE_SECONDS,
            body_timeout=_BODY_SECONDS,
        )

    def handle_stream(self, stream: IOStream, address: tuple[Any, ...]) -> None:
        write, close = stream.write, stream.close

        def write_civilly(data: bytes | memoryview) -> Any:
            if data != _BARE:
                return write(data)
            # A handler may have refused the request before its body turned out to be malformed.
            answered = self._latest[stream]._response_start_line is not None
            return write(b"" if answered else self._refusal("The request is malformed."))

        def close_civilly(exc_info: Any = False) -> None:
            if isinstance(exc_info, UnsatisfiableReadError) and not stream.closed():
                write(self._refusal(f"The headers are larger than {_MAX_HEADERS} bytes."))
            close(exc_info)

        stream.write = write_civilly  # type: ignore[method-assign]
        stream.close = close_civilly  # type: ignore[method-assign]
        super().handle_stream(stream, address)

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        if isinstance(server_conn, HTTP1ServerConnection) and isinstance(request_conn, HTTP1Connection):
            self._latest[server_conn.stream] = request_conn
        return super().start_request(server_conn, request_conn)

    def _refusal(self, message: str) -> bytes:
        """A whole answer to a request that never reached a handler."""
        request_id = new_id("req")
        error = InvalidParameter(message, reason="malformed")
        status = STATUS[error.code]
        body = json.dumps(envelope(error, request_id)).encode()
        headers = {
            **common(request_id),
            **limits(fresh(self._rate_limit, RATE_WINDOW, time.time())),
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
        }
        fields = {"status": status, "request_id": request_id, "code": error.code}
        log.info("malformed request", extra={"fields": fields})
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} Bad Request\r\n{lines}\r\n".encode() + body
