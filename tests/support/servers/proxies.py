"""A real nginx and a real HAProxy with the provided configurations, on free ports."""

import csv
import os
import re
import shutil
import socket
import ssl
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from benchmarks.processes import ServerProcess, free_port
from tests.support.servers.receiver import make_certificate

NGINX_CONFIGURATION = Path(__file__).parents[3] / "config" / "nginx.conf"
HAPROXY_CONFIGURATION = NGINX_CONFIGURATION.with_name("haproxy.cfg")
_AROUND = """
master_process off;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 4096; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/convertd.conf;
}}
"""


class NginxServer(ServerProcess):
    """An nginx in front of the servers at the ports `upstreams`, with its files in `folder`."""

    def __init__(self, folder: Path, *upstreams: int) -> None:
        super().__init__()
        self.http_port = free_port()
        self._folder = folder
        self._upstreams = upstreams

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def lines(self) -> list[str]:
        """The content of the access log."""
        return (self._folder / "access.log").read_text().splitlines()

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """The arguments of a client that trusts the server's certificate."""
        return ssl.create_default_context(cafile=str(self._folder / "localhost.pem"))

    @property
    def command(self) -> list[str]:
        return [program("nginx"), "-p", str(self._folder), "-e", "error.log", "-c", "nginx.conf"]

    def start(self) -> None:
        make_certificate(self._folder, "localhost")
        servers = " ".join(f"server 127.0.0.1:{port};" for port in self._upstreams)
        changes = {
            r"listen \[::\].*\n": "\n",  # not every machine has IPv6
            r"listen 80(?=[; ])": f"listen 127.0.0.1:{self.http_port}",
            r"listen 443 ": f"listen 127.0.0.1:{self.port} ",
            r"server 127\.0\.0\.1:8000;": servers,
            r"convert\.example\.com;": "localhost;",
            r"/var/log/nginx/convertd\.log": str(self._folder / "access.log"),
            r"ssl_certificate \S+;": "ssl_certificate localhost.pem;",
            r"ssl_certificate_key \S+;": "ssl_certificate_key localhost.pem;",
        }
        (self._folder / "convertd.conf").write_text(_changed(NGINX_CONFIGURATION, changes))
        (self._folder / "nginx.conf").write_text(_AROUND.format(folder=self._folder))
        super().start()


class HaproxyServer(ServerProcess):
    """An HAProxy in front of the servers at the ports `upstreams`, with its files in `folder`."""

    def __init__(self, folder: Path, *upstreams: int) -> None:
        super().__init__()
        self._upstreams = upstreams
        self._socket = folder / "socket"
        self.configuration = folder / "haproxy.cfg"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        return [program("haproxy"), "-db", "-f", str(self.configuration)]

    def start(self) -> None:
        changes = {
            r"    user haproxy\n    group haproxy\n    log .*\n": "",
            r"stats socket \S+": f"stats socket {self._socket}",
            r"bind \S+": f"bind 127.0.0.1:{self.port}",
            r"(    server .*\n)+": "".join(f"    server on-{port} 127.0.0.1:{port}\n" for port in self._upstreams),
        }
        self.configuration.write_text(_changed(HAPROXY_CONFIGURATION, changes))
        super().start()

    def answers(self) -> bool:
        return self._socket.exists() and super().answers()

    def is_used(self, upstream: int) -> bool:
        """Whether the server at this port gets requests."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(b"show stat\n")
            text = connection.makefile().read()
        rows = {row["svname"]: row for row in csv.DictReader(text.removeprefix("# ").splitlines())}
        return rows[f"on-{upstream}"]["status"].startswith("UP")


def _changed(configuration: Path, changes: Mapping[str, str]) -> str:
    """The text of a configuration, with replacements of patterns that must be in it."""
    text = configuration.read_text()
    for pattern, here in changes.items():
        text, count = re.subn(pattern, here, text)
        assert count, pattern
    return text


def program(name: str) -> str:
    return shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") or name  # users' paths lack /usr/sbin
