"""A PostgreSQL server in a temporary folder, on a free port."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import psycopg

from benchmarks.processes import ServerProcess

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


class PostgresServer(ServerProcess):
    """A server with an empty database. Its `url` is the same after a restart. `settings` are PostgreSQL's."""

    def __init__(self, binaries: Path, settings: Sequence[str] = ()) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp(prefix="convertd-postgres-"))
        as_user = _give_away(self._folder) if os.geteuid() == 0 else []
        data = self._folder / "data"
        subprocess.run(
            [*as_user, binaries / "initdb", "-D", data, "-U", "convertd", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=self._folder,
        )
        options = [part for setting in (*_SETTINGS, *settings) for part in ("-c", setting)]
        places = ["-D", str(data), "-p", str(self.port), "-k", str(self._folder)]
        self._command = [*as_user, str(binaries / "postgres"), *places, *options]
        self.url = f"postgresql://convertd@127.0.0.1:{self.port}/postgres"

    @property
    def command(self) -> list[str]:
        return self._command

    def answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.url, connect_timeout=1):
            return True
        return False

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def kill(self) -> None:
        """Ends all of its processes at once. The data may be lost."""
        self._end(signal.SIGQUIT)
        super().kill()

    def restart(self) -> None:
        """Cuts all connections, stops, and starts again."""
        self._end(signal.SIGINT)
        self.start()

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(30)


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
