"""A PostgreSQL server in a temporary folder, on a free port."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg

from tests.support.servers.server_process import free_port

_USERS = ("postgres", "nobody")  # the server refuses to run as root
_SETTINGS = ("fsync=off", "full_page_writes=off", "max_connections=200", "listen_addresses=127.0.0.1")


def find_binaries() -> Path | None:
    """The folder of initdb and postgres, if they are installed."""
    asked = []
    if shutil.which("pg_config"):
        shown = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        asked.append(Path(shown.stdout.strip()))
    folders = [*asked, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class PostgresServer:
    """A server with an empty database. Its `url` is the same after a restart."""

    def __init__(self, binaries: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="convertd-postgres-"))
        as_user = _give_away(self._folder) if os.geteuid() == 0 else []
        port, data = free_port(), self._folder / "data"
        subprocess.run(
            [*as_user, binaries / "initdb", "-D", data, "-U", "convertd", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=self._folder,
        )
        options = [part for setting in _SETTINGS for part in ("-c", setting)]
        places = ["-D", str(data), "-p", str(port), "-k", str(self._folder)]
        self._command = [*as_user, str(binaries / "postgres"), *places, *options]
        self.url = f"postgresql://convertd@127.0.0.1:{port}/postgres"

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop(signal.SIGQUIT)  # its data is not needed
        shutil.rmtree(self._folder)

    def restart(self) -> None:
        """Cuts all connections, stops, and starts again."""
        self._stop(signal.SIGINT)
        self._start()

    def _start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._server = subprocess.Popen(self._command, cwd=self._folder, stdout=log, stderr=log)
        _wait_for(self.url, self._server)

    def _stop(self, number: signal.Signals) -> None:
        self._server.send_signal(number)
        self._server.wait(30)


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Yields the URL of a database on the server."""
    with PostgresServer(binaries) as server:
        yield server.url


def _give_away(folder: Path) -> list[str]:
    """Changes the owner of a folder. Returns the command prefix that runs a program as this user."""
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = next(known[name] for name in _USERS if name in known)
    os.chown(folder, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(300):
        try:
            psycopg.connect(url, connect_timeout=1).close()
        except psycopg.OperationalError:
            if server.poll() is not None:
                break
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("PostgreSQL did not start.")
