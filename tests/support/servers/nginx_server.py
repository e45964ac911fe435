"""A real nginx with the provided configuration, on free ports."""

import os
import re
import shutil
import ssl
import subprocess
from functools import cached_property
from pathlib import Path

from benchmarks.processes import ServerProcess, free_port

CONFIGURATION = Path(__file__).parents[3] / "config" / "nginx.conf"
_PROGRAM = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") or "nginx"  # users' paths lack /usr/sbin
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
        return ssl.create_default_context(cafile=str(self._folder / "certificate.pem"))

    @property
    def command(self) -> list[str]:
        return [_PROGRAM, "-p", str(self._folder), "-e", "error.log", "-c", "nginx.conf"]

    def start(self) -> None:
        self._certify()
        self._configure()
        super().start()

    def _certify(self) -> None:
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        subprocess.run(
            ["openssl", "req", "-x509", *kind, *subject, "-keyout", "key.pem", "-out", "certificate.pem"],
            check=True,
            capture_output=True,
            cwd=self._folder,
        )

    def _configure(self) -> None:
        """Writes the configuration with the paths and ports of this server."""
        text = CONFIGURATION.read_text()
        servers = " ".join(f"server 127.0.0.1:{port};" for port in self._upstreams)
        for pattern, here in (
            (r"listen \[::\].*\n", "\n"),  # not every machine has IPv6
            (r"listen 80(?=[; ])", f"listen 127.0.0.1:{self.http_port}"),
            (r"listen 443 ", f"listen 127.0.0.1:{self.port} "),
            (r"server 127\.0\.0\.1:8000;", servers),
            (r"convert\.example\.com;", "localhost;"),
            (r"/var/log/nginx/convertd\.log", str(self._folder / "access.log")),
            (r"ssl_certificate \S+;", "ssl_certificate certificate.pem;"),
            (r"ssl_certificate_key \S+;", "ssl_certificate_key key.pem;"),
        ):
            text, count = re.subn(pattern, here, text)
            assert count, pattern
        (self._folder / "convertd.conf").write_text(text)
        (self._folder / "nginx.conf").write_text(_AROUND.format(folder=self._folder))
