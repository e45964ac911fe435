"""An HTTP server of somebody else: it records requests, and responds as a test wants, also badly."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias


@dataclass(frozen=True)
class Received:
    """A request. `at` is Unix time in seconds. Names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at: float


Send: TypeAlias = Callable[[bytes], object]
Respond: TypeAlias = Callable[[Received, Send], object]


def reply(status: int = 204, body: bytes = b"", **headers: str) -> Respond:
    """Responds with a status, and headers whose names have `_` for `-`."""
    lines = {"content_length": str(len(body)), "connection": "close"} | headers
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in lines.items())
    response = f"HTTP/1.1 {status} Status\r\n{head}\r\n".encode() + body
    return lambda request, send: send(response)


class Receiver:
    """The server, at `url`. `respond` can be replaced while it runs. `stopped` is set at its end.

    With a certificate, which is a file with its key, it speaks TLS. `connections` counts those that were made.
    As a proxy, it forwards connections to ports of this machine: those in `tunnels`, by the `host:port` of CONNECT.
    """

    def __init__(
        self, respond: Respond | None = None, address: str = "127.0.0.1", certificate: Path | None = None
    ) -> None:
        self.respond = respond or reply()
        self.requests: list[Received] = []
        self.connections = 0
        self.tunnels: dict[str, int] = {}
        self.stopped = threading.Event()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = type("Listener", (_Listener,), {"receiver": self, "address_family": family})
        self._server = kind((address, 0), type("Requests", (_Requests,), {"receiver": self}))
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = int(self._server.server_address[1])
        host = f"[{address}]" if ":" in address else address
        self.url = f"http{'s' if certificate else ''}://{host}:{self.port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    def hang(self, request: Received, send: Send) -> None:
        """Never responds."""
        self.stopped.wait()


def make_certificate(folder: Path, name: str) -> Path:
    """Makes a certificate for a host name or 127.0.0.1, which is its own authority. The file has its key, too."""
    path = folder / f"{name}.pem"
    kind = ("openssl", "req", "-x509", "-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
    names = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={'IP' if name == '127.0.0.1' else 'DNS'}:{name}")
    subprocess.run([*kind, *names, "-keyout", path, "-out", folder / "alone.pem"], check=True, capture_output=True)
    path.write_text(path.read_text() + (folder / "alone.pem").read_text())
    return path


class _Listener(ThreadingHTTPServer):
    receiver: Receiver
    daemon_threads = True
    request_queue_size = 128

    def verify_request(self, request: object, client_address: object) -> bool:
        self.receiver.connections += 1
        return True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients close connections in the middle of responses."""


class _Requests(BaseHTTPRequestHandler):
    receiver: Receiver
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, body, time.time())
        self.receiver.requests.append(received)
        self.close_connection = True
        self.receiver.respond(received, self.wfile.write)

    do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

    def do_CONNECT(self) -> None:
        self.do_GET()
        if self.path in self.receiver.tunnels:
            with socket.create_connection(("127.0.0.1", self.receiver.tunnels[self.path])) as server:
                threading.Thread(target=_forward, args=(server, self.connection), daemon=True).start()
                _forward(self.connection, server)

    def log_message(self, format: str, *args: object) -> None:
        """Suppresses the log."""


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
