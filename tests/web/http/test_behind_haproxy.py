"""Several servers behind HAProxy with config/haproxy.cfg, which is behind nginx."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from benchmarks.processes import ServerProcess, free_port
from tests.support.requests import http
from tests.support.servers.haproxy_server import HaproxyServer
from tests.support.servers.in_process import Servers, eventually
from tests.support.servers.nginx_server import NginxServer


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
