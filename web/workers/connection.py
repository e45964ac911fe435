"""The connection of a server to the scheduler of a cluster, and the state of the cluster's workers."""

import asyncio
import hashlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any, Literal
from urllib.parse import urlsplit

import dask
from dask.utils import parse_timedelta
from distributed import Client, Security
from distributed.protocol.serialize import families, register_serialization_family

from config.settings import SettingsError, is_loopback
from storage.blobs.blob_store import BlobStore
from storage.ids import new_id
from web.api.schemas.service import Cluster
from web.workers.cluster_jobs import Installation

log = logging.getLogger("convertd.cluster")

SERVERS = "convertd-servers"
"""The metadata of the scheduler that has the installation of each server, the Unix time of its latest sign, and the URL
of a blob that workers write, to see whether they can.
"""

INSTALLATION = "convertd"
"""The entry of a worker's description that has its installation."""

SERIALIZERS = ["msgpack", "error"]
"""Dask's serializers for messages from workers and schedulers: plain values, and the text of errors."""

MEMORY = "memory"
"""The Dask resource for the expected memory of jobs in bytes."""

CONNECT_TIMEOUT = 5.0  # seconds

POLL_INTERVAL = 5.0  # seconds between updates of the state
_RETRY_INTERVAL = 1.0  # seconds, while there is no worker
_START_TIMEOUT = _CLOSE_TIMEOUT = 1.0  # seconds
_ECHO = "convertd-echo"  # the topic of events by which servers see whether they read messages
_ECHO_TIMEOUT, _ECHO_INTERVAL = 3.0, 0.2  # seconds
_POLL_TIMEOUT = 10.0  # seconds, which includes the connection
_URL_LIFETIME = 900.0  # seconds
MAX_SILENCE = 4.0  # seconds, less than between two updates; a worker without a new sign for as long gets no jobs
MAX_OUTAGE = 10.0  # running jobs fail after as many seconds without a worker
_ALLOWED_FAILURES = "distributed.scheduler.allowed-failures"
_NO_WORKERS_TIMEOUT = "distributed.scheduler.no-workers-timeout"
_WORKER_TTL = "distributed.scheduler.worker-ttl"
_SERVER_TIMEOUT = 60.0  # a server without a sign for as many seconds counts as ended
_MAX_WORKER_TTL = 60.0  # seconds; jobs of a worker that does not respond are repeated within twice this time


@dataclass(frozen=True)
class ClusterWorker:
    """A worker that can run jobs of this server: `slots` at a time that need `memory` bytes together."""

    address: str
    slots: int
    memory: int


@dataclass(frozen=True)
class _Description:
    """A worker as it describes itself. `running`: the scheduler assigns new jobs to it."""

    address: str
    installation: Mapping[str, Any]
    running: bool
    slots: int
    memory: int
    executing: int
    waiting: int
    last_seen: float  # by the clock of the scheduler


class ClusterConnection:
    """The connection to `scheduler`, which is opened again when it was lost.

    `workers` respond and can run jobs of this server. `outage` is done while none has responded for 10 s.
    """

    def __init__(self, scheduler: str, installation: Installation, blobs: BlobStore) -> None:
        self.state = Cluster()
        self.workers: tuple[ClusterWorker, ...] = ()
        self.outage: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._scheduler = scheduler
        self._installation = installation
        self._blobs = blobs
        self._on_resize: Callable[[int, int, int], None] = lambda *_limits: None
        self._id = new_id("srv")
        self._servers = 1
        self._client: Client | None = None
        self._polling: asyncio.Task[None] | None = None
        self._first_update = asyncio.Event()
        self._outdated = asyncio.Event()
        self._echoed = asyncio.Event()
        self._last_usable = monotonic()
        self._signs: dict[str, tuple[float, float]] = {}  # by address: the latest sign, and the time of its update
        self._assigned: Counter[str] = Counter()  # jobs of this server by the address of their preferred worker

    async def start(self, on_resize: Callable[[int, int, int], None]) -> None:
        """Connects, waits up to 1 s for it, and updates the state every 5 s. Without a scheduler it tries again.

        Calls `on_resize` with the number of jobs that the workers can run at a time, their memory in bytes, and the
        number of servers that divide both.
        """
        self._on_resize = on_resize
        self._polling = asyncio.create_task(self._poll())
        with suppress(TimeoutError):
            await asyncio.wait_for(self._first_update.wait(), _START_TIMEOUT)

    async def close(self) -> None:
        """Disconnects, which ends all jobs of this server."""
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait([self._polling])
        if self._client is not None and self._client.status == "running":
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_TIMEOUT):
                    await self._client.set_metadata([SERVERS, self._id], None)
        await self._disconnect()

    def refresh(self) -> None:
        """Updates the state at once, because a worker or the scheduler was lost."""
        self._outdated.set()

    @property
    def client(self) -> Client | None:
        """The client, if the cluster has a worker for jobs of this server."""
        return self._client if self.workers else None

    @contextmanager
    def prefer_worker(self, account: str, memory: int) -> Iterator[ClusterWorker | None]:
        """A worker that is likely to have an idle process of the account, counted as busy with a job for the block.

        All servers rank the workers of an account in the same order; the first with a free slot is preferred. None if
        there is none, or if the cluster has workers that cannot run the job: Dask ignores the needs of a job whose
        preferred worker is busy.
        """
        free = [worker for worker in self.workers if self._assigned[worker.address] < worker.slots]
        if not free or self.state.unusable or any(worker.memory < memory for worker in self.workers):
            yield None
            return
        chosen = min(free, key=lambda worker: _rank(account, worker.address))
        self._assigned[chosen.address] += 1
        try:
            yield chosen
        finally:
            self._assigned[chosen.address] -= 1
            self._assigned += Counter()  # removes zeros

    async def _poll(self) -> None:
        while True:
            try:
                await self._update()
            except Exception:
                log.exception("the state of the cluster cannot be read; next attempt in %g s", _RETRY_INTERVAL)
                self._set_state(None)
            self._first_update.set()
            self._outdated.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._outdated.wait(), POLL_INTERVAL if self.workers else _RETRY_INTERVAL)

    async def _update(self) -> None:
        logs_failure = self.state.connected or not self._first_update.is_set()
        try:
            async with asyncio.timeout(_POLL_TIMEOUT):
                client = await self._connect()
                url = await self._blobs.write_url(self._id, _URL_LIFETIME)
                seen = {"installation": asdict(self._installation), "seen": time.time(), "blob": url}
                await client.set_metadata([SERVERS, self._id], seen)
                await self._check_reading(client)
                assert client.scheduler is not None
                description = await client.scheduler.identity(n_workers=-1)
                servers = await client.get_metadata([SERVERS], default={})
                self._servers = max(sum(is_live(server) for server in servers.values()), 1)
        except (OSError, TimeoutError, RuntimeError, ValueError) as error:  # ValueError if it does not use TLS
            if logs_failure:
                log.warning("cannot use the scheduler at %s: %s", self._scheduler, failure_cause(error))
            description = None
        self._set_state(None if description is None else description["workers"])

    async def _connect(self) -> Client:
        if self._client is not None and self._client.status != "running":
            self._set_state(None)
            await self._disconnect()  # a new client has no state of the lost scheduler
        if self._client is None:
            self._client = Client(
                self._scheduler,
                asynchronous=True,
                direct_to_workers=True,
                serializers=SERIALIZERS,
                deserializers=SERIALIZERS,
                set_as_default=False,
                timeout=CONNECT_TIMEOUT,
            )
            await self._client
            self._client.subscribe_topic(_ECHO, lambda _event: self._echoed.set())
            # Workers could write any text to the log of the server.
            for topic in ("print", "warn"):
                self._client.unsubscribe_topic(topic)
            await _check_scheduler(self._client)
        return self._client

    async def _check_reading(self, client: Client) -> None:
        """Disconnects, ends all jobs and raises OSError if the client has met a message that it could not read.

        After such a message, it reads no others.
        """
        self._echoed.clear()
        try:
            async with asyncio.timeout(_ECHO_TIMEOUT):
                while not self._echoed.is_set():
                    await client.log_event(_ECHO, None)
                    with suppress(TimeoutError):  # the scheduler may not know yet that the client waits for it
                        await asyncio.wait_for(self._echoed.wait(), _ECHO_INTERVAL)
        except TimeoutError:
            if not self.outage.done():
                self.outage.set_result(None)
            await self._disconnect()
            raise OSError("a message could not be read") from None

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is None:
            return
        try:
            await client.close(timeout=_CLOSE_TIMEOUT)
        except Exception as error:  # Dask also raises for a message that it cannot read, and stops closing
            log.debug("the connection to the scheduler was closed after an error: %s", error)
            await client.rpc.close()
            client.status = "closed"

    def _set_state(self, workers: Mapping[str, Mapping[str, Any]] | None) -> None:
        """Sets the state from the scheduler's description of its workers by address; None if it did not respond."""
        described = [_described(address, worker) for address, worker in (workers or {}).items()]
        found = [worker for worker in described if worker is not None]
        usable = [worker for worker in found if not self._installation.difference(worker.installation)]
        now = monotonic()
        self._signs = {worker.address: self._sign(worker, now) for worker in usable}
        responding = [worker for worker in usable if now - self._signs[worker.address][1] < MAX_SILENCE]
        running = [worker for worker in responding if worker.running]
        self.workers = tuple(ClusterWorker(worker.address, worker.slots, worker.memory) for worker in running)
        self.state = Cluster(
            connected=workers is not None,
            workers=dict(Counter(str(worker.installation.get("version")) for worker in found)),
            usable=len(usable),
            slots=sum(worker.slots for worker in running),
            running=sum(worker.executing for worker in running),
            waiting=sum(worker.waiting for worker in running),
        )
        self._record_outage(now if responding else self._last_usable)
        if self.workers:
            self._on_resize(self.state.slots, sum(worker.memory for worker in self.workers), self._servers)

    def _sign(self, worker: _Description, now: float) -> tuple[float, float]:
        known = self._signs.get(worker.address)
        return known if known is not None and known[0] == worker.last_seen else (worker.last_seen, now)

    def _record_outage(self, last_usable: float) -> None:
        """Records when there was a usable worker for the last time, if only one that ran its last jobs."""
        if last_usable > self._last_usable and self.outage.done():
            self.outage = asyncio.get_running_loop().create_future()
        elif monotonic() - last_usable > MAX_OUTAGE and not self.outage.done():
            self.outage.set_result(None)
        self._last_usable = last_usable


def _described(address: str, worker: Mapping[str, Any]) -> _Description | None:
    """Reads the description of a worker. None if it is not one of this service, or malformed."""
    try:
        counts = worker["metrics"].get("task_counts", {})
        return _Description(
            address=address,
            installation=dict(worker[INSTALLATION]),
            running=worker["status"] == "running",
            slots=int(worker["nthreads"]),
            memory=int(worker["resources"][MEMORY]),
            executing=int(counts.get("executing", 0)),
            waiting=int(counts.get("ready", 0)) + int(counts.get("constrained", 0)),
            last_seen=float(worker["last_seen"]),
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return None


def is_live(server: Mapping[str, Any] | None) -> bool:
    """Whether a server has given a sign recently, by its entry in the metadata of SERVERS."""
    return server is not None and time.time() - server["seen"] < _SERVER_TIMEOUT


def failure_cause(error: BaseException) -> str:
    """Returns why a connection to a scheduler failed."""
    text = "no response"
    cause: BaseException | None = error
    while cause is not None:
        text = str(cause) or text
        cause = cause.__cause__ or cause.__context__
    return f"{text}; check its address and that it runs, with TLS if and only if the address begins with tls://"


def check_tls(scheduler: str, process: Literal["client", "worker"], *, insecure: bool) -> None:
    """Raises SettingsError if the address of the scheduler does not fit the TLS variables of Dask, or these fail.

    A scheduler on another machine needs TLS, unless `insecure`.
    """
    names = ("CA_FILE", f"{process.upper()}__CERT", f"{process.upper()}__KEY")
    variables = ", ".join(f"DASK_DISTRIBUTED__COMM__TLS__{name}" for name in names)
    try:
        connection = Security().get_connection_args(process)
    except OSError as error:
        raise SettingsError(f"cannot use the files of {variables}: {error}") from error
    uses_tls = scheduler.startswith("tls://")
    if uses_tls and connection["ssl_context"] is None:
        raise SettingsError(f"the address of the scheduler begins with tls://, which requires {variables}")
    if not (uses_tls or insecure or is_loopback(urlsplit(scheduler).hostname)):
        raise SettingsError(
            "the scheduler is on another machine, and its address begins with tcp://: any client that reaches the "
            "cluster can run code in it. Use tls:// and 'convertd cluster certificates', or set "
            "CONVERTD_CLUSTER_INSECURE=true"
        )
    if not uses_tls and connection["require_encryption"]:
        raise SettingsError(
            "the address of the scheduler must begin with tls://: DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION is set"
        )


def _rank(account: str, worker: str) -> bytes:
    return hashlib.sha256(f"{account} {worker}".encode()).digest()


async def _check_scheduler(client: Client) -> None:
    """Logs a warning if the scheduler lacks the settings by which jobs whose worker was lost fail soon."""
    names = (_ALLOWED_FAILURES, _NO_WORKERS_TIMEOUT, _WORKER_TTL)
    failures, timeout, ttl = [await client.run_on_scheduler(dask.config.get, name) for name in names]
    if failures or timeout is None or ttl is None or parse_timedelta(ttl) > _MAX_WORKER_TTL:
        message = "the scheduler needs the settings %s: 0 (now %s), %s: 5s (now %s) and %s: 30s (now %s)"
        log.warning(message, _ALLOWED_FAILURES, failures, _NO_WORKERS_TIMEOUT, timeout, _WORKER_TTL, ttl)


_READABLE = frozenset(
    {("distributed.scheduler", "NoValidWorkerError"), ("distributed.scheduler", "NoWorkerError")}
)  # their arguments are names and numbers; the third error of a scheduler, KilledWorker, has an object


def refuse_pickles() -> None:
    """Makes this process refuse to unpickle any class or function but these errors, until it ends.

    `pickle.loads` raises TypeError, upon which Dask goes on without the value.
    """
    sys.addaudithook(_check)
    for name in ("dask", "pickle"):  # a client that fails to read one of these reads no further message
        dumps, _, _ = families[name]
        register_serialization_family(name, dumps, _join)


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and arguments not in _READABLE:
        raise TypeError(f"a server does not unpickle {arguments}")


def _join(_header: object, frames: Iterable[bytes]) -> bytes:
    return b"".join(frames)
