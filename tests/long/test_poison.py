"""Jobs that harm the process of their server, in twenty ways: they end, others are done, and none is charged for harm.

Servers that end are started again after a second, as systemd does.
"""

import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from storage.database import Database, Transaction
from storage.tables import jobs
from storage.tables.jobs import Job
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually
from tests.support.servers.load import charged, create_accounts
from tests.support.servers.poison import DEADLY, SILENT, PoisonedServer

pytestmark = pytest.mark.long

_KINDS = (*DEADLY, *SILENT)
_AT_ONCE = 5  # kinds in a test
_SERVED_WITHIN = 30.0  # seconds
_INTERVAL = 2.0  # seconds between the jobs of others
_ENDED_WITHIN = 120.0  # seconds
_PAUSE = 1.0  # seconds until a server is started again


class Keeper:
    """Starts servers again that have ended, and counts how often. With the end of the block, it stops."""

    def __init__(self, servers: Sequence[ConvertdServer]) -> None:
        self._servers = servers
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._keep, args=(server,)) for server in servers]
        self.restarts = 0

    def __enter__(self) -> "Keeper":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, server: ConvertdServer) -> None:
        while not self._stopped.wait(0.05):
            if server.process.poll() is not None:
                self.restarts += 1
                sleep(_PAUSE)
                with suppress(RuntimeError):  # it has ended again
                    server.start()


def submit(servers: Sequence[ConvertdServer], key: str, name: str) -> str:
    """Submits a job to the first server that responds. Returns its ID."""
    headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}
    for attempt in count():
        api = servers[attempt % len(servers)].api
        try:
            form = {"files": {"file": (name, image())}, "data": {"output_format": "webp"}}
            response = httpx.post(f"{api}/convert", headers=headers, timeout=1, **form)  # type: ignore[arg-type]
        except httpx.TransportError:
            sleep(0.1)
            continue
        assert response.status_code == 202, response.text
        return str(response.json()["data"]["job_id"])
    raise AssertionError


def responds(server: ConvertdServer) -> bool:
    try:
        return httpx.get(f"{server.url}/livez", timeout=1).is_success
    except httpx.TransportError:
        return False


class Stored:
    """The jobs in a database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def job(self, job_id: str) -> Job:
        def read(transaction: Transaction) -> Job:
            (found,) = jobs.read_all(transaction, [job_id])
            return found

        return self._database.run_blocking(read)

    def await_end(self, job_id: str, seconds: float) -> None:
        assert eventually(lambda: self.job(job_id).has_ended, seconds), self.job(job_id)


@contextmanager
def two_servers(folder: Path, url: str) -> Iterator[list[PoisonedServer]]:
    settings = {"CONVERTD_DATABASE_URL": url, "CONVERTD_BLOB_URL": (folder / "blobs").as_uri()}
    with PoisonedServer(folder / "one", settings) as one, PoisonedServer(folder / "two", settings) as two:
        yield [one, two]


@pytest.mark.parametrize(
    "kinds", [_KINDS[start :: len(_KINDS) // _AT_ONCE] for start in range(len(_KINDS) // _AT_ONCE)]
)
@pytest.mark.parametrize("url", ["sqlite", "postgresql"], indirect=True)
def test_poison_ends_and_others_are_served(tmp_path: Path, url: str, kinds: Sequence[str]) -> None:
    """A job of another account takes at most 30 s at any time. The poison has failed after two restarts at most."""
    poisoner, other = create_accounts(url, 2)
    database = Database(url)
    stored, waits, submitted = Stored(database), list[float](), 0
    with two_servers(tmp_path, url) as servers, Keeper(servers) as keeper:
        for kind in kinds:
            restarts, started = keeper.restarts, monotonic()
            poison = submit(servers, poisoner, f"poison-{kind}.jpg")
            while not stored.job(poison).has_ended:
                assert monotonic() - started < _ENDED_WITHIN, stored.job(poison)
                asked = monotonic()
                stored.await_end(submit(servers, other, "a.jpg"), _SERVED_WITHIN)
                waits.append(monotonic() - asked)
                submitted += 1
                sleep(_INTERVAL)
            ended = stored.job(poison)
            assert (ended.status, ended.attempts) == ("failed", 2), (kind, ended)
            assert '"worker_crashed"' in str(ended.error)
            assert keeper.restarts - restarts == 2, kind
            print(f"{kind}: ended after {monotonic() - started:.1f} s; others waited up to {max(waits):.1f} s")
    database.close()
    assert charged(url) == submitted > 0


@pytest.mark.parametrize("kind", ["expression", "lock"])
def test_sigterm_ends_a_server_whose_loop_stands_still(tmp_path: Path, url: str, kind: str) -> None:
    (key,) = create_accounts(url, 1)
    with PoisonedServer(tmp_path, {"CONVERTD_DATABASE_URL": url}) as server:
        submit([server], key, f"poison-{kind}.jpg")
        assert eventually(lambda: not responds(server))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 1
        assert "Timeout (0:00:05)!" in server.log()


def test_sigterm_ends_a_server_that_waits_for_ever(tmp_path: Path, url: str) -> None:
    """As the server would wait for the rest of a request, for longer than it may take to stop."""
    (key,) = create_accounts(url, 1)
    with PoisonedServer(tmp_path, {"CONVERTD_DATABASE_URL": url}) as server:
        submit([server], key, "poison-haste.jpg")
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(b"POST /api/v1/account/keys HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
            assert responds(server)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(20) == 1
        assert "Current thread" in server.log()
