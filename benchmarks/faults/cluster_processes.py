"""The processes of a cluster on one machine: servers behind nginx, their stores, a scheduler, and workers."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import time
from unittest.mock import patch
from xml.etree import ElementTree

import httpx

from benchmarks import server_process
from benchmarks.faults.kills import descendants, send_signal
from engine.registry import load_registry
from storage.blobs.s3 import S3BlobStore
from storage.database import Database
from tests.support.servers.cluster import SchedulerProcess
from tests.support.servers.nginx_server import NginxServer
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.redis_server import RedisServer
from tests.support.servers.s3_server import S3Server
from tests.support.servers.server_process import free_port
from web.services.files import Files

_SERVERS, _WORKERS = 2, 3
_WORKER = (str(Path(sys.executable).with_name("convertd")), "worker", "--host", "127.0.0.1")
_LIMITS = ("--jobs", "2", "--memory", "4GiB")
_PREFIX = "cluster"  # of all keys in the bucket
_ORPHAN_AGE = 86_400  # seconds, which is more than the age at which orphans are deleted
_EXIT_TIMEOUT = 90  # seconds, which is more than running jobs can take


class ServerNode:
    """A `convertd serve` process that can be killed. Its port and its data folder are the same after a restart."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.port = free_port()
        self._metrics_port = free_port()
        self._settings = {**settings, "CONVERTD_METRICS_PORT": str(self._metrics_port)}
        self._stack = ExitStack()
        self._earlier_retries = 0.0

    @property
    def url(self) -> str:
        """Its URL without nginx."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.pid

    def start(self) -> None:
        """Starts the server, and waits until it listens."""
        serving = server_process.serving(self.folder, self._settings, self.port)
        self._process, _ = self._stack.enter_context(serving)

    def restart(self) -> None:
        """Kills the server and starts it again."""
        self._earlier_retries = self.retries()
        self.kill()
        self.start()

    def is_ready(self) -> bool:
        """Returns whether the server can convert."""
        return httpx.get(f"{self.url}/readyz", timeout=30).is_success

    def kill(self) -> None:
        """Kills the server."""
        self._stack.close()

    def retries(self) -> float:
        """Returns the number of jobs that were repeated because their worker died."""
        text = httpx.get(f"http://127.0.0.1:{self._metrics_port}/metrics", timeout=30).text
        found = re.search(r"^convertd_cluster_retries_total (\S+)$", text, re.MULTILINE)
        assert found is not None, "no metric of retries"
        return self._earlier_retries + float(found[1])


class WorkerNode:
    """A `convertd worker` process that `supervise` restarts after its end, as systemd does."""

    def __init__(self, folder: Path, scheduler: str, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self.ends = 0  # without a kill
        self._command = (*_WORKER, "--scheduler", scheduler, *_LIMITS)
        own = {"CONVERTD_DATA_DIR": str(folder), "CONVERTD_METRICS_PORT": "0"}
        self._environment = {**os.environ, **settings, **own}
        self._log = folder.with_suffix(".log")

    def start(self) -> None:
        """Starts the worker, which joins the cluster after some seconds."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(self._command, stderr=log, env=self._environment)

    def has_joined(self) -> bool:
        """Returns whether the worker has joined the cluster since its start."""
        return b"joined the cluster" in self._log.read_bytes()

    def supervise(self) -> None:
        """Starts the worker again if it has ended."""
        if self._process.poll() is not None:
            self.ends += 1
            self.start()

    def restart(self) -> None:
        """Kills the worker with all its processes, and starts it again."""
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kills the worker with all its processes, as the end of a control group does."""
        processes = descendants(self._process.pid)
        self._process.kill()
        for process in processes:
            send_signal(process, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Stops the worker as systemd does. Returns its exit code."""
        self._process.terminate()
        return self._process.wait(_EXIT_TIMEOUT)

    def files(self) -> list[Path]:
        """Returns the work files and the folders of processes in the data folder."""
        patterns = ("jobs/*", "workers/*", "dask-scratch-space/worker-*")
        return [path for pattern in patterns for path in self.folder.glob(pattern)]


@dataclass
class Cluster:
    """All processes. `rate_limit` is that of free accounts per minute; others have none."""

    folder: Path
    postgres: PostgresServer
    redis: RedisServer
    rate_limit: int
    s3: S3Server = field(default_factory=S3Server)
    scheduler: SchedulerProcess = field(default_factory=SchedulerProcess)
    stack: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        stores = {**self.s3.environment, "CONVERTD_BLOB_URL": self.s3.url(_PREFIX)}
        settings = {
            **stores,
            "CONVERTD_DATABASE_URL": self.postgres.url,
            "CONVERTD_REDIS_URL": self.redis.url,
            "CONVERTD_CLUSTER": self.scheduler.address,
            "CONVERTD_RATE_LIMIT_FREE": str(self.rate_limit),
            "CONVERTD_TRUSTED_PROXIES": "127.0.0.1",
        }
        self.servers = [ServerNode(self._new_folder(f"server-{number}"), settings) for number in range(_SERVERS)]
        self.workers = [
            WorkerNode(self._new_folder(f"worker-{number}"), self.scheduler.address, stores)
            for number in range(_WORKERS)
        ]
        self.nginx = NginxServer(self._new_folder("nginx"), *(server.port for server in self.servers))

    def _new_folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(mode=0o711)
        return folder

    def start(self) -> None:
        """Starts all processes."""
        for store in (self.s3, self.redis, self.scheduler):
            self.stack.enter_context(store)
        for worker in self.workers:
            self.stack.callback(worker.kill)
            worker.start()
        for server in self.servers:
            self.stack.callback(server.kill)
            server.start()
        self.stack.enter_context(self.nginx)

    def blobs_of_jobs(self) -> set[str]:
        """Returns the keys of inputs and results of jobs in the blob store."""
        bucket = self.s3.url("").removeprefix("s3://").rstrip("/")
        keys: set[str] = set()
        for kind in ("input", "result"):
            query = {"list-type": "2", "prefix": f"{_PREFIX}/{kind}_"}
            listing = httpx.get(f"{self.s3.environment['AWS_ENDPOINT_URL']}/{bucket}", params=query, timeout=60)
            keys |= {
                str(entry.text) for entry in ElementTree.fromstring(listing.text).iter() if entry.tag.endswith("}Key")
            }
        return keys

    async def sweep_orphans(self, database: Database) -> None:
        """Deletes the blobs without a row, as the maintenance of a server does when they are old enough."""
        with patch.dict(os.environ, self.s3.environment):
            blobs = S3BlobStore(self.s3.url(_PREFIX), clock=lambda: time() + _ORPHAN_AGE)
        await Files(database, blobs, load_registry(), retention=0).sweep_orphans()


@contextmanager
def running(folder: Path, postgres: PostgresServer, rate_limit: int) -> Iterator[Cluster]:
    """Runs a cluster with its data folders below `folder`."""
    folder.chmod(0o711)  # otherwise the folders of job processes are not below the data folders
    cluster = Cluster(folder, postgres, RedisServer(folder), rate_limit)
    with cluster.stack:
        cluster.start()
        yield cluster
