"""The service behind nginx with config/nginx.conf, and several servers behind HAProxy with config/haproxy.cfg."""

import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.processes import ServerProcess, free_port
from config.pricing import MIB
from tests.support.requests import http
from tests.support.requests.log_lines import captured_log
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from tests.support.servers.proxies import NGINX_CONFIGURATION, HaproxyServer, NginxServer
from web.api.headers import common_headers
from web.http.multipart import MAX_BODY
from web.http.server import MAX_CONNECTIONS_PER_CLIENT

_LARGE = (4000, 3000)  # pixels: 36 MB
_PROXY = "127.0.0.1"


@dataclass(frozen=True)
class Proxied:
    """A server, and the nginx in front of it."""

    nginx: NginxServer
    server: Running

    def client(self, address: str = "127.0.0.2", **headers: str) -> httpx.Client:
        """A client with this address."""
        transport = httpx.HTTPTransport(verify=self.nginx.trust, local_address=address)
        return httpx.Client(transport=transport, base_url=f"{self.nginx.url}/api/v1", headers=headers, timeout=60)

    def send(self, head: str, address: str = "127.0.0.2") -> ssl.SSLSocket:
        """A connection from this address on which only these headers are sent."""
        plain = socket.create_connection((_PROXY, self.nginx.port), timeout=20, source_address=(address, 0))
        connection = self.nginx.trust.wrap_socket(plain, server_hostname="localhost")
        connection.sendall(head.encode())
        return connection


@pytest.fixture(scope="module")
def proxied(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    settings: dict[str, Any] = {"trusted_proxies": (_PROXY,), "rate_limit_anonymous": 60}
    with servers.running(tmp_path_factory.mktemp("data"), **settings) as running:
        upstream = urlsplit(running.url).port
        assert upstream is not None
        with NginxServer(tmp_path_factory.mktemp("nginx"), upstream) as nginx:
            yield Proxied(nginx, running)


def test_nginx_takes_the_configuration(proxied: Proxied) -> None:
    done = subprocess.run([*proxied.nginx.command, "-t"], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    # From nginx 1.25.1 on. Older versions, as that of Debian 12, do not have the new directive.
    deprecated = 'the "listen ... http2" directive is deprecated'
    assert [line for line in done.stderr.splitlines() if "[warn]" in line and deprecated not in line] == []


def test_large_files_are_uploaded_and_downloaded(proxied: Proxied) -> None:
    content = image("BMP", _LARGE)

    with proxied.client(**proxied.server.auth) as client:
        small = client.post("/convert", files={"file": content}, data={"output_format": "tiff"})
        large = client.post("/convert", files={"file": small.content}, data={"output_format": "bmp"})

    assert len(large.content) == len(content) == int(large.headers["Content-Length"])


def sending(key: str, length: int) -> str:
    """The headers of a conversion request with a body of `length` bytes."""
    return (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
    )


def is_an_error_of_nginx(response: httpx.Response, status: int, code: str, reason: str | None) -> None:
    """Asserts the format of the API and the headers that every response has."""
    error = response.json()["error"]
    assert (response.status_code, error["code"], error.get("reason")) == (status, code, reason)
    assert error["message"].endswith(".")
    assert error["request_id"] == response.headers["X-Request-Id"]
    assert (status in (429, 503)) is ("Retry-After" in response.headers)
    assert (status == 405) is ("Allow" in response.headers)
    assert (response.headers["X-RateLimit-Limit"], response.headers["X-RateLimit-Remaining"]) == ("64", "0")
    assert abs(int(response.headers["X-RateLimit-Reset"]) - time.time()) < 2
    assert response.headers["RateLimit-Policy"] == '"connections";q=64;w=1'
    assert response.headers["RateLimit"] == '"connections";r=0;t=1'
    assert "max-age" in response.headers["Strict-Transport-Security"]
    for name, value in common_headers("").items():
        assert name in ("Server", "X-Request-Id") or response.headers[name] == value


def test_half_sent_bodies_stop_at_nginx(proxied: Proxied) -> None:
    with captured_log() as lines, ExitStack() as stack, proxied.client("127.0.0.9") as client:
        for _ in range(10):
            stack.enter_context(proxied.send(sending("none", 60_000) + "a", "127.0.0.9"))
        assert client.get("/formats").status_code == 200
    assert not any(entry.get("code") == "invalid_api_key" for entry in lines.entries)


def test_bodies_above_every_limit_are_refused_before_they_arrive(proxied: Proxied) -> None:
    assert 512 * MIB < MAX_BODY <= 513 * MIB
    with proxied.send(sending(proxied.server.account(), 513 * MIB + 1)) as connection:
        is_an_error_of_nginx(parsed(read_response(connection)), 413, "file_too_large", "bytes")


@pytest.mark.parametrize(
    ("request_", "status", "code", "reason"),
    [
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "invalid_parameter", "malformed"),
        ("no request\r\n\r\n", 400, "invalid_parameter", "malformed"),
        ("GET /convertd-error HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found", None),
        ("TRACE / HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed", None),
        (f"GET /{'a' * 8_500} HTTP/1.1\r\nHost: localhost\r\n\r\n", 414, "invalid_parameter", "too_long"),
        (f"GET / HTTP/1.1\r\nHost: localhost\r\nA: {'a' * 8_500}\r\n\r\n", 431, "invalid_parameter", "too_long"),
    ],
)
def test_malformed_requests_end_at_nginx(
    proxied: Proxied, request_: str, status: int, code: str, reason: str | None
) -> None:
    with proxied.send(request_) as connection:
        is_an_error_of_nginx(parsed(read_response(connection)), status, code, reason)


def test_plain_http_on_the_port_of_tls(proxied: Proxied) -> None:
    with socket.create_connection((_PROXY, proxied.nginx.port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        is_an_error_of_nginx(parsed(read_response(connection)), 400, "invalid_parameter", "malformed")


def test_forged_forwarded_headers_do_not_change_the_rate_limit(proxied: Proxied) -> None:
    with (
        proxied.client("127.0.0.5") as one,
        proxied.client("127.0.0.5", **{"X-Forwarded-For": "192.0.2.1"}) as same,
        proxied.client("127.0.0.6") as other,
    ):
        remaining = [int(client.get("/formats").headers["X-RateLimit-Remaining"]) for client in (one, same, other)]

    assert remaining == [59, 58, 59]


def test_a_request_keeps_its_id(proxied: Proxied) -> None:
    with proxied.client(**proxied.server.auth) as client:
        response = client.get("/account/usage?period=canary")

    request_id = response.json()["error"]["request_id"]
    assert response.headers["X-Request-Id"] == request_id
    assert eventually(lambda: any(request_id in line for line in proxied.nginx.lines))
    assert not any("canary" in line for line in proxied.nginx.lines)


def test_a_client_has_as_many_connections_as_without_a_proxy(proxied: Proxied) -> None:
    head = sending(proxied.server.key, 1000)
    with ExitStack() as stack, proxied.client("127.0.0.7") as same, proxied.client("127.0.0.8") as other:
        for _ in range(MAX_CONNECTIONS_PER_CLIENT):
            stack.enter_context(proxied.send(head, "127.0.0.7"))
        assert eventually(lambda: same.get("/formats").status_code == 429)
        refused = same.get("/formats")

        is_an_error_of_nginx(refused, 429, "rate_limit_exceeded", "too_many_connections")
        assert other.get("/formats").status_code == 200


def test_http_2_is_spoken_and_plain_http_is_not(proxied: Proxied) -> None:
    offering = ssl.create_default_context()
    offering.check_hostname, offering.verify_mode = False, ssl.CERT_NONE
    offering.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection((_PROXY, proxied.nginx.port), timeout=20)
    with offering.wrap_socket(plain, server_hostname="localhost") as connection:
        assert connection.selected_alpn_protocol() == "h2"

    moved = http.get(f"http://localhost:{proxied.nginx.http_port}/docs?a=b")
    assert (moved.status_code, moved.headers["Location"]) == (308, "https://localhost/docs?a=b")


def test_text_is_compressed_and_secrets_are_not(proxied: Proxied) -> None:
    root = proxied.nginx.url
    with proxied.client(**{"Accept-Encoding": "gzip", "Origin": root}) as client:
        for path in ("/docs", "/static/site.css", "/api/v1/openapi.json"):
            response = client.get(f"{root}{path}")
            assert (response.status_code, response.headers["Content-Encoding"]) == (200, "gzip")
            assert "Accept-Encoding" in response.headers["Vary"]
        again = client.get(f"{root}/static/site.css")
        kept = client.get(f"{root}/static/site.css", headers={"If-None-Match": again.headers["ETag"]})
        assert (kept.status_code, kept.content) == (304, b"")
        page = client.get(f"{root}/dashboard")
        result = client.post(
            "/convert", files={"file": image("BMP")}, data={"output_format": "bmp"}, headers=proxied.server.auth
        )
        for response in (page, result):
            assert response.status_code == 200
            assert len(response.content) > 1024
            assert "Content-Encoding" not in response.headers


def test_an_error_has_the_envelope_while_the_service_is_down(tmp_path_factory: pytest.TempPathFactory) -> None:
    with NginxServer(tmp_path_factory.mktemp("nginx"), free_port()) as nginx:
        response = httpx.get(f"{nginx.url}/api/v1/formats", verify=nginx.trust)

    is_an_error_of_nginx(response, 503, "not_ready", None)


def test_requests_for_other_hosts_are_dropped(proxied: Proxied) -> None:
    with socket.create_connection((_PROXY, proxied.nginx.http_port), timeout=20) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        assert connection.recv(1000) == b""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((_PROXY, proxied.nginx.port), timeout=20) as plain, pytest.raises(ssl.SSLError):
        unverified.wrap_socket(plain, server_hostname="evil.example")


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2:"),
        ("2001:db8:1:2::6", "2001:db8:1:2:"),
        ("2001:db8:1::6", "2001:db8:1:"),
        ("2001:db8::3:4:5:6", "2001:db8:"),
        ("::1", "::1"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_ipv6_network_is_one_client(address: str, client: str) -> None:
    patterns = re.findall(r'"~(.+)" \$convertd_network', NGINX_CONFIGURATION.read_text())
    found = [match[1] for pattern in patterns if (match := re.match(pattern.replace("?<", "?P<"), address))]
    assert (found or [address])[0] == client


@pytest.mark.parametrize(
    ("now", "following"),
    [
        *(("1795238640.001", "1795238641"), ("1795238648.999", "1795238649"), ("1795238609.000", "1795238610")),
        *(("1795238689.120", "1795238690"), ("1795238699.500", "1795238699")),
    ],
)
def test_the_next_second(now: str, following: str) -> None:
    (table,) = re.findall(r"map \$msec .*?\n}", NGINX_CONFIGURATION.read_text(), re.DOTALL)
    assert table.count("\n") == 9 + 9 + 2
    for pattern, value in re.findall(r'"~(\S+)" (\S+);', table):
        if match := re.match(pattern.replace("?<", "?P<"), now):
            assert re.sub(r"\$\{?\w+\}?", lambda _: match[1], value) == following
            return
    pytest.fail("no line of the table matches")


class _FileServer(ServerProcess):
    """Another server whose `/readyz` succeeds, and which can be stalled."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        (folder / "readyz").touch()
        self._folder = folder

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "http.server", str(self.port), "-b", "127.0.0.1", "-d", str(self._folder)]


@contextmanager
def _losing_requests(ports: list[int], received: list[bytes]) -> Iterator[None]:
    """Servers that are ready, and close the connection of any other request. Adds the first line of each."""

    def serve(listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                line = connection.recv(65_536).split(b"\r\n")[0]
                if line.startswith(b"GET /readyz"):
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                else:
                    received.append(line)

    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    threads = [threading.Thread(target=serve, args=(listener,)) for listener in listeners]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for listener, thread in zip(listeners, threads, strict=True):
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            listener.close()


@pytest.mark.long
def test_a_hung_server_gets_no_requests(servers: Servers, data_dir: Path, tmp_path: Path) -> None:
    with servers.running(data_dir) as server, _FileServer(tmp_path) as other:
        port = urlsplit(server.url).port or 0
        with HaproxyServer(tmp_path, port, other.port) as haproxy:
            checked = subprocess.run([*haproxy.command, "-c"], capture_output=True, text=True, check=False)
            assert (checked.returncode, "WARN" in checked.stderr) == (0, False), checked.stderr
            assert eventually(lambda: haproxy.is_used(port) and haproxy.is_used(other.port))
            other.stall()
            assert eventually(lambda: not haproxy.is_used(other.port))
            assert [http.get(f"{haproxy.url}/version").status_code for _ in range(4)] == [200] * 4
            other.resume()
            assert eventually(lambda: haproxy.is_used(other.port))
            assert haproxy.is_used(port)


def test_a_request_that_was_lost_is_not_repeated(tmp_path: Path) -> None:
    received: list[bytes] = []
    ports = [free_port(), free_port()]
    with (
        _losing_requests(ports, received),
        HaproxyServer(tmp_path, *ports) as haproxy,
        NginxServer(tmp_path, haproxy.port) as nginx,
    ):
        assert eventually(lambda: all(map(haproxy.is_used, ports)))
        response = httpx.post(f"{nginx.url}/api/v1/convert", content=b"a file", verify=nginx.trust)
    assert response.status_code in (502, 503)
    assert received == [b"POST /api/v1/convert HTTP/1.1"]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_without_a_server_errors_have_the_envelope(tmp_path: Path, method: str) -> None:
    port = free_port()
    with HaproxyServer(tmp_path, port) as haproxy:
        assert eventually(lambda: not haproxy.is_used(port))
        response = http.request(method, f"{haproxy.url}/api/v1/convert")
    assert response.status_code == 503
    error = response.json()["error"]
    assert (error["code"], error["retryable"]) == ("not_ready", True)
    assert error["request_id"] == response.headers["X-Request-Id"]
    assert int(response.headers["Retry-After"]) > 0
