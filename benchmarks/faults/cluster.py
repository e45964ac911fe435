"""A cluster under load: its workers are killed, and a server, the scheduler and the stores are restarted."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from time import monotonic, sleep

import httpx

from benchmarks import server_process
from benchmarks.faults import cluster_processes
from benchmarks.faults.clients import check_ledger, check_work_files
from benchmarks.faults.cluster_clients import COLORS, AccountClients, Outcomes
from benchmarks.faults.cluster_processes import Cluster
from benchmarks.report import Row, at_most, equals, info, required
from storage.database import Transaction
from storage.tables import accounts, api_keys
from tests.support.servers.in_process import eventually
from tests.support.servers.postgres import PostgresServer, find_binaries

_SECONDS, _MIN_SECONDS = 90, 30
_CONCURRENCY = 2  # clients of an account
_KILL_INTERVAL = 3.0  # seconds
_OUTAGE = 2.0  # seconds between the end of a process and its start
_JOIN_TIMEOUT = 120.0  # seconds until the workers have joined the cluster
_END_TIMEOUT = 300.0  # seconds for conversions that were started before the end of the failures
_HOLD_TIMEOUT = 240  # seconds until credits are released that could not be released at once
_DELETE_TIMEOUT = 60.0  # seconds until the blobs of jobs are deleted
_RATE_LIMIT = 300  # requests per minute
_RATE_REQUESTS = 450
_RATE_TOLERANCE = 0.02


def fail_everywhere(folder: Path, divisor: int) -> list[Row]:
    """F21: a worker is killed every 3 s, a server once; Redis, the scheduler and PostgreSQL are restarted."""
    if (binaries := find_binaries()) is None:
        return [info("skipped: PostgreSQL is not installed")]
    with PostgresServer(binaries) as postgres, cluster_processes.running(folder, postgres, _RATE_LIMIT) as cluster:
        keys = server_process.create_accounts(postgres.url, len(COLORS))
        with server_process.open_database(postgres.url) as database:
            limited_key = database.run_blocking(_create_free_account)
        is_ready = eventually(lambda: all(server.is_ready() for server in cluster.servers), _JOIN_TIMEOUT)
        scenario = _Scenario(cluster, max(_MIN_SECONDS, _SECONDS / divisor))
        asyncio.run(scenario.run(keys))
        return [
            equals("servers ready", is_ready, True),
            *scenario.rows(),
            *asyncio.run(_rate_rows(cluster, limited_key)),
            *check_ledger(postgres.url, len(scenario.outcomes.succeeded), _HOLD_TIMEOUT, len(keys)),
            *_file_rows(cluster, postgres.url, scenario.blobs_of_killed_server, scenario.kills),
        ]


class _Scenario:
    """Load for `seconds` while processes are killed and restarted."""

    def __init__(self, cluster: Cluster, seconds: float) -> None:
        self.outcomes = Outcomes()
        self.blobs_of_killed_server: set[str] = set()
        self._cluster = cluster
        self._seconds = seconds
        self.kills = 0
        self._unfinished = 0

    async def run(self, keys: list[str]) -> None:
        """Converts with these keys, until all conversions that were started in time have ended."""
        end = monotonic() + self._seconds
        url, trust = self._cluster.nginx.url, self._cluster.nginx.trust
        servers = [server.url for server in self._cluster.servers]
        work = [
            asyncio.create_task(
                AccountClients(key, color, url, servers, trust, self.outcomes).convert_until(end, _CONCURRENCY)
            )
            for key, color in zip(keys, COLORS, strict=True)
        ]
        await asyncio.gather(self._kill_workers(end), self._restart_others())
        _, unfinished = await asyncio.wait(work, timeout=_END_TIMEOUT)
        self._unfinished = len(unfinished)
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=bool(unfinished))

    async def _kill_workers(self, end: float) -> None:
        """Kills a worker every few seconds, the longest running one that has joined the cluster."""
        workers = deque(self._cluster.workers)
        while monotonic() < end:
            await asyncio.sleep(_KILL_INTERVAL)
            for worker in workers:
                worker.supervise()
            if victim := next((worker for worker in workers if worker.has_joined()), None):
                await asyncio.to_thread(victim.restart)
                workers.remove(victim)
                workers.append(victim)
                self.kills += 1

    async def _restart_others(self) -> None:
        """Restarts a server, Redis, the scheduler and PostgreSQL, one after the other."""
        actions = (self._kill_server, self._restart_redis, self._restart_scheduler, self._cluster.postgres.restart)
        for action in actions:
            await asyncio.sleep(self._seconds / (len(actions) + 1))
            await asyncio.to_thread(action)

    def _kill_server(self) -> None:
        self._cluster.servers[0].restart()
        self.blobs_of_killed_server = self._cluster.blobs_of_jobs()

    def _restart_redis(self) -> None:
        _restart(self._cluster.redis.kill, self._cluster.redis.start)

    def _restart_scheduler(self) -> None:
        _restart(self._cluster.scheduler.kill, self._cluster.scheduler.start)

    def rows(self) -> list[Row]:
        """Returns the outcomes."""
        outcomes, failures = self.outcomes, self.outcomes.failures
        failed = " ".join(failures)
        return [
            required("workers killed", self.kills, "> 0", met=self.kills > 0),
            equals("workers that ended otherwise", sum(worker.ends for worker in self._cluster.workers), 0),
            info("requests with an idempotency key", len(outcomes.keys)),
            equals("requests that have not ended with 200", len(outcomes.keys - outcomes.succeeded), 0),
            equals(f"calls that failed {failed}".strip(), failures.total(), 0),
            equals("accounts whose calls have not ended", self._unfinished, 0),
            equals("results with another color or size", outcomes.wrong_results, 0),
            required(
                "files converted through the other server",
                outcomes.through_other_server,
                "> 0",
                met=outcomes.through_other_server > 0,
            ),
            info("longest time until success, s", max(outcomes.seconds, default=float("nan"))),
            info("jobs repeated", int(sum(server.retries() for server in self._cluster.servers))),
            *(info(f"errors before success: {kind}", number) for kind, number in outcomes.errors.most_common()),
        ]


def _restart(stop: Callable[[], None], start: Callable[[], None]) -> None:
    """Stops and starts a process. Blocks."""
    stop()
    sleep(_OUTAGE)
    start()


async def _rate_rows(cluster: Cluster, key: str) -> list[Row]:
    """Sends more requests than the account may in a minute, alternately to the servers."""
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
        started, statuses = monotonic(), []
        for number in range(_RATE_REQUESTS):
            url = cluster.servers[number % len(cluster.servers)].url
            statuses.append((await client.get(f"{url}/api/v1/account")).status_code)
        seconds = monotonic() - started
    allowed, refused = statuses.count(HTTPStatus.OK), statuses.count(HTTPStatus.TOO_MANY_REQUESTS)
    deviation = abs(allowed - _RATE_LIMIT) / _RATE_LIMIT
    return [
        required("rate limit: seconds for all requests", seconds, "< 60", met=seconds < 60),
        equals("rate limit: responses other than 200, 429", len(statuses) - allowed - refused, 0),
        required("rate limit: requests allowed", allowed, f"{_RATE_LIMIT} +- 2 %", met=deviation <= _RATE_TOLERANCE),
    ]


def _file_rows(cluster: Cluster, postgres_url: str, of_killed_server: set[str], kills: int) -> list[Row]:
    """Checks that no files are left: work files of servers and workers, folders of workers, and blobs of jobs."""
    eventually(lambda: not cluster.blobs_of_jobs() - of_killed_server, _DELETE_TIMEOUT)
    blobs = cluster.blobs_of_jobs()
    with server_process.open_database(postgres_url) as database:
        asyncio.run(cluster.sweep_orphans(database))
    eventually(lambda: all(worker.has_joined() for worker in cluster.workers), _JOIN_TIMEOUT)
    exit_codes = [worker.stop() for worker in cluster.workers]
    return [
        *(row for server in cluster.servers for row in check_work_files(server.pid, server.folder)),
        info("blobs of jobs of the killed server", len(blobs & of_killed_server)),
        # A result that a worker was storing when its server gave up is stored after the server has deleted it.
        at_most("other blobs of jobs", len(blobs - of_killed_server), kills),
        equals("blobs of jobs left after the orphan sweep", len(cluster.blobs_of_jobs()), 0),
        equals("exit codes of workers other than 0", len(exit_codes) - exit_codes.count(0), 0),
        equals("files and folders of workers left", sum(len(worker.files()) for worker in cluster.workers), 0),
    ]


def _create_free_account(transaction: Transaction) -> str:
    """Creates an account with a rate limit, and returns its API key."""
    account = accounts.create(transaction, "limited@example.com", "Benchmark", free_credits=1)
    return api_keys.issue(transaction, account.id, "Benchmark").text
