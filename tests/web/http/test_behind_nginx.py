"""The service behind nginx with config/nginx.conf."""

import re
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.processes import free_port
from config.pricing import TIERS
from tests.support.requests import http
from tests.support.samples.forms import picture
from tests.support.servers import nginx_server
from tests.support.servers.in_process import Running, Servers, eventually, parsed, read_response
from tests.support.servers.nginx_server import NginxServer
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
    content = picture("BMP", _LARGE)

    with proxied.client(**proxied.server.auth) as client:
        small = client.post("/convert", files={"file": content}, data={"output_format": "png"})
        large = client.post("/convert", files={"file": small.content}, data={"output_format": "bmp"})

    assert len(large.content) == len(content) == int(large.headers["Content-Length"])


def test_the_service_refuses_large_bodies_before_they_arrive(proxied: Proxied) -> None:
    key = proxied.server.account()
    length = TIERS["free"].max_file_size * 2
    head = (
        f"POST /api/v1/convert HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n"
        f"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n"
    )

    with proxied.send(head) as connection:
        response = parsed(read_response(connection))

    assert response.status_code == 413
    error = response.json()["error"]
    assert error["code"] == "file_too_large"
    assert error["details"] == {"max_file_size": TIERS["free"].max_file_size}
    assert error["request_id"] == response.headers["X-Request-Id"]


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
    head = (
        f"POST /api/v1/files/upload HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {proxied.server.key}\r\n"
        "Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 1000\r\n\r\n"
    )
    with ExitStack() as stack, proxied.client("127.0.0.7") as same, proxied.client("127.0.0.8") as other:
        for _ in range(MAX_CONNECTIONS_PER_CLIENT):
            stack.enter_context(proxied.send(head, "127.0.0.7"))
        assert eventually(lambda: same.get("/formats").status_code == 429)
        refused = same.get("/formats")

        assert refused.json()["error"]["reason"] == "too_many_connections"
        assert refused.json()["error"]["request_id"] == refused.headers["X-Request-Id"]
        assert int(refused.headers["Retry-After"]) > 0
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
            "/convert", files={"file": picture("BMP")}, data={"output_format": "bmp"}, headers=proxied.server.auth
        )
        for response in (page, result):
            assert response.status_code == 200
            assert len(response.content) > 1024
            assert "Content-Encoding" not in response.headers


def test_an_error_has_the_envelope_while_the_service_is_down(tmp_path_factory: pytest.TempPathFactory) -> None:
    with NginxServer(tmp_path_factory.mktemp("nginx"), free_port()) as nginx:
        response = httpx.get(f"{nginx.url}/api/v1/formats", verify=nginx.trust)

    assert response.status_code == 503
    assert response.json()["error"]["code"] == "not_ready"
    assert response.json()["error"]["retryable"] is True
    assert response.json()["error"]["request_id"] == response.headers["X-Request-Id"]
    assert int(response.headers["Retry-After"]) > 0


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
    patterns = re.findall(r'"~(.+)" \$convertd_network', nginx_server.CONFIGURATION.read_text())
    found = [match[1] for pattern in patterns if (match := re.match(pattern.replace("?<", "?P<"), address))]
    assert (found or [address])[0] == client
