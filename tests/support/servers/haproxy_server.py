"""A real HAProxy with the provided configuration, on a free port."""

import csv
import os
import re
import shutil
import socket
from pathlib import Path

from benchmarks.processes import ServerProcess

CONFIGURATION = Path(__file__).parents[3] / "config" / "haproxy.cfg"
_PROGRAM = shutil.which("haproxy", path=f"{os.environ['PATH']}:/usr/sbin") or "haproxy"  # users' paths lack /usr/sbin


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
        return [_PROGRAM, "-db", "-f", str(self.configuration)]

    def start(self) -> None:
        text = CONFIGURATION.read_text()
        servers = "".join(f"    server on-{port} 127.0.0.1:{port}\n" for port in self._upstreams)
        for pattern, here in (
            (r"    user haproxy\n    group haproxy\n    log .*\n", ""),
            (r"stats socket \S+", f"stats socket {self._socket}"),
            (r"bind \S+", f"bind 127.0.0.1:{self.port}"),
            (r"(    server .*\n)+", servers),
        ):
            text, count = re.subn(pattern, here, text)
            assert count == 1, pattern
        self.configuration.write_text(text)
        super().start()

    def is_used(self, upstream: int) -> bool:
        """Whether the server at this port gets requests."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self._socket))
            connection.sendall(b"show stat\n")
            text = connection.makefile().read()
        rows = {row["svname"]: row for row in csv.DictReader(text.removeprefix("# ").splitlines())}
        return rows[f"on-{upstream}"]["status"].startswith("UP")
