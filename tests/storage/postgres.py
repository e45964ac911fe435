"""A PostgreSQL server of the tests' own: in a temporary folder, on a free port, gone afterwards."""

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

import psycopg

from tests.server_process import free_port

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


@contextmanager
def running_server(binaries: Path) -> Iterator[str]:
    """Gives the URL of a database on the server."""
    folder = Path(tempfile.mkdtemp(prefix="convertd-postgres-"))
    as_user = _give_away(folder) if os.geteuid() == 0 else []
    port = free_port()
    data = folder / "data"
    subprocess.run(
        [*as_user, binaries / "initdb", "-D", data, "-U", "convertd", "-A", "trust", "-E", "UTF8", "--no-sync"],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    options = [part for setting in _SETTINGS for part in ("-c", setting)]
    command = [*as_user, str(binaries / "postgres"), "-D", str(data), "-p", str(port), "-k", str(folder), *options]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        url = f"postgresql://convertd@127.0.0.1:{port}/postgres"
        _wait_for(url, server)
        yield url
    finally:
        server.send_signal(signal.SIGQUIT)  # what it has need not be kept
        server.wait(30)
        shutil.rmtree(folder)


def _give_away(folder: Path) -> list[str]:
    """Makes a folder somebody else's; gives the command that runs another as that user."""
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
