"""A worker of a cluster whose code is an attacker's. The name of a job's file says what the worker sends."""

import asyncio
import copyreg
import hashlib
import pickle
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from distributed import Status, Worker
from distributed.protocol.serialize import Serialized, ToPickle
from prometheus_client import CollectorRegistry

from engine.executor import TaskResult
from engine.executor.tasks import result_reply
from engine.outcome import Outcome
from storage.blobs.url_transfers import UrlTransfers
from tests.support.executors.fake import EndlessExecutor
from tests.support.servers.cluster import SECONDS
from web.metrics.service import ClusterWorkerMetrics
from web.services.files.work_files import WorkFiles
from web.workers.cluster_jobs import MAX_INLINE, ClusterTask, Installation, JobRunner
from web.workers.connection import INSTALLATION, MEMORY

_LARGE = MAX_INLINE + 1


class Attack(Exception):
    """Creates a file when it is unpickled: in this folder, with the process ID as its name."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))

    def __reduce__(self) -> tuple[Callable[[str], Any], tuple[str]]:
        return exec, (f"import os; open('{self}/' + str(os.getpid()), 'w').close()",)


class _AttackType(type):
    """The type of classes whose pickle is an attack."""

    attack: Attack


copyreg.pickle(_AttackType, lambda cls: cls.attack.__reduce__())


class HostileRunner(JobRunner):
    """Replies as the name of a job says. Pickles create files in `folder`. `urls` are those of results."""

    def __init__(self, installation: Installation, folder: Path) -> None:
        metrics = ClusterWorkerMetrics(CollectorRegistry())
        super().__init__(installation, EndlessExecutor(), UrlTransfers(), WorkFiles(folder), metrics)
        self.worker: HostileWorker
        self.folder = folder
        self.attack = Attack(folder)
        self.urls: list[str] = []

    async def run(self, job: ClusterTask) -> Any:
        self.worker.pickles = False
        self.urls.append(job.output)
        match job.job.name:
            case "honest":
                return _reply(job, b"result")
            case "honest large":
                return await self.store(job, bytes(_LARGE))
            case "object":
                self.worker.pickles = True
                return self.attack
            case "marked object":
                return ToPickle(self.attack)
            case "exception" | "unreadable exception" as name:
                self.worker.unreadable = name == "unreadable exception"
                raise self.attack
            case "type":
                return _AttackType("Value", (bytes,), {"attack": self.attack})(b"value")
            case "warning":
                pickled = pickle.dumps(self.attack)
                self.worker.log_event("warn", {"message": pickled, "category": pickled})
                return _reply(job, b"result")
        return await self._wrong_reply(job)

    async def _wrong_reply(self, job: ClusterTask) -> Any:
        match job.job.name:
            case "nothing":
                return None
            case "text" | "silence" as text:
                return text
            case "unreadable reply":
                return b"{}", b"result", len(b"result"), ""
            case "wrong size":
                return _reply(job, b"result", 5)
            case "negative size":
                return _reply(job, b"", -1)
            case "vast":
                return _reply(job, b"", 1 << 40)
            case "no blob":
                return _reply(job, b"", _LARGE)
            case "small blob":
                return await self.store(job, bytes(_LARGE), bytes(_LARGE - 1))
            case "other bytes":
                return await self.store(job, bytes(_LARGE), b"x" * _LARGE)
        raise AssertionError(job.job.name)

    async def store(self, job: ClusterTask, reported: bytes, stored: bytes | None = None) -> Any:
        await self.write(job.output, reported if stored is None else stored)
        message, _, size, digest = _reply(job, reported)
        return message, b"", size, digest

    async def write(self, url: str, data: bytes) -> None:
        """Stores a blob by its URL."""
        with TemporaryFile(buffering=0) as file:
            file.write(data)
            await self.transfers.write(url, file.fileno())


def _reply(job: ClusterTask, data: bytes, size: int | None = None) -> tuple[bytes, bytes, int, str]:
    size = len(data) if size is None else size
    result = TaskResult(Outcome(job.job.target, size), seconds=SECONDS)
    return result_reply(result, reusable=True), data, size, hashlib.sha256(data).hexdigest()


class HostileWorker(Worker):
    """Sends objects as pickles, whatever the server accepts: as data, or marked so that Dask unpickles them at once."""

    async def get_data(self, comm: Any, keys: Any, who: Any = None, serializers: Any = None) -> Any:
        data = {key: self.data[key] for key in keys}
        if "silence" in data.values():
            self.stalled += 1
            await asyncio.Event().wait()
        if any(isinstance(value, ToPickle) for value in data.values()):
            await comm.write({"status": "OK", "data": data})
            await comm.read()
            return Status.dont_reply
        return await super().get_data(comm, keys, who, serializers=["pickle"] if self.pickles else serializers)

    def batched_send(self, msg: dict[str, Any]) -> None:
        """Sends a message to the scheduler, which sends the exceptions in it to servers as they are."""
        if msg["op"] == "task-erred" and self.unreadable:
            msg["exception"] = Serialized({"serializer": "none"}, [b""])
        super().batched_send(msg)

    pickles = False
    unreadable = False  # the exceptions that are sent
    stalled = 0  # replies that are not sent


def hostile_worker(scheduler: str, runner: HostileRunner) -> HostileWorker:
    """The worker, which joins the cluster for the block of `async with`."""
    runner.worker = HostileWorker(
        scheduler,
        nthreads=1,
        host="127.0.0.1",
        resources={runner.installation.resource: 1, MEMORY: 4 << 30},
        local_directory=str(runner.folder),
        startup_information={INSTALLATION: lambda _worker: asdict(runner.installation)},
        plugins=(runner,),
    )
    return runner.worker
