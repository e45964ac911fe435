"""A `convertd serve` process with all features on: API key, credit ledger, rate limits, sandbox, verification, log."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from time import monotonic, sleep
from types import MappingProxyType

import httpx

from benchmarks.libraries import PILLOW
from benchmarks.load_generator import LoadPlan, generate_load
from benchmarks.measure import (
    Run,
    Variant,
    cpu_ms,
    cpu_seconds,
    interleaved,
    load,
    memory,
    p50_ms,
    p99_ms,
    table,
    throughput_ratio,
)
from benchmarks.processes import ConvertdServer, free_port
from benchmarks.report import COLUMNS, Report, Row, at_most, equals, required
from benchmarks.workloads import LONG, PHOTO, TINY, Workload
from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger

LONG_JOBS = 8
"""The number of long encodes of other accounts, beside which tiny requests are measured."""

BESIDE = f"1 connection beside {LONG_JOBS} AVIF encodes"
"""The name of a load of one connection meanwhile."""

FREE = "free account"
"""The name of a load of 16 connections of an account that has bought nothing."""

IN_TURN: Mapping[int, int] = MappingProxyType({8: 5, 16: 5, 64: 5, 256: 8})
"""Numbers of accounts that take turns, and the CPU time allowed for a request, in ms."""

_CREDITS = 10**6
_ONE_JOB_PER_PROCESS = {"CONVERTD_JOBS_PER_PROCESS": "1"}
_IDLE_SECONDS = 2.0  # pause after the start; idle memory is measured at its end
_START_TIMEOUT, _POLL_INTERVAL = 60.0, 0.02  # seconds

Runs = Mapping[str, Sequence[Run]]


@dataclass(frozen=True)
class Server:
    """A running convertd with its data folder, API keys of paid accounts, and one of a free account.

    `ready_seconds` is the time from the start of its process until /readyz responds with 200.
    """

    process: ConvertdServer
    data: Path
    keys: tuple[str, ...]
    free_key: str
    ready_seconds: float

    @property
    def pid(self) -> int:
        """The process ID of the server."""
        return self.process.pid

    def plan(self, workload: Workload, folder: Path, seconds: float, connections: int, accounts: int = 1) -> LoadPlan:
        """Returns a load of that many connections, with the input file in `folder`."""
        return LoadPlan(
            f"{self.process.api}/{workload.endpoint}",
            self.keys[:accounts],
            str(folder / workload.file),
            seconds,
            concurrency=connections,
            fields=workload.fields,
            file_field=workload.file_field,
            copies=workload.copies,
        )

    def variant(self, workload: Workload, folder: Path, seconds: float, connections: int, accounts: int = 1) -> Variant:
        """Returns a variant that runs the plan, with the CPU time of the server's processes."""
        plan = self.plan(workload, folder, seconds, connections, accounts)
        return partial(load, plan, partial(cpu_seconds, self.pid))


@contextmanager
def running(folder: Path, settings: Mapping[str, str] = MappingProxyType({}), processes: int = 1) -> Iterator[Server]:
    """Runs a server with a data folder of its own below `folder`, 256 paid accounts and a free one."""
    data = Path(mkdtemp(dir=folder))
    *keys, free_key = _create_accounts(settings.get("CONVERTD_DATABASE_URL", f"sqlite:///{data / 'convertd.db'}"))
    process = ConvertdServer(data, {"CONVERTD_METRICS_PORT": str(free_port()), **settings}, processes)
    started = monotonic()
    with process:
        _wait_until_ready(f"{process.url}/readyz")
        yield Server(process, data, tuple(keys), free_key, monotonic() - started)


def _create_accounts(url: str) -> tuple[str, ...]:
    """Creates the accounts of a server that has not started. Returns their API keys."""
    database = Database(url)
    keys = [database.run_blocking(_create_account, number, paid=True) for number in range(max(IN_TURN))]
    free_key = database.run_blocking(_create_account, max(IN_TURN), paid=False)
    database.close()
    return *keys, free_key


def _create_account(transaction: Transaction, number: int, *, paid: bool) -> str:
    account = accounts.create(transaction, f"benchmark-{number}@example.com", "Benchmark", free_credits=_CREDITS)
    if paid:
        ledger.credit(transaction, account.id, "purchase", 1, ref=f"benchmark:{account.id}")
    return api_keys.issue(transaction, account.id, "Benchmark").text


def _wait_until_ready(url: str) -> None:
    """Polls the URL until it responds with 200. Raises ConnectionError after a minute."""
    deadline = monotonic() + _START_TIMEOUT
    while monotonic() < deadline:
        if httpx.get(url, timeout=_START_TIMEOUT).is_success:
            return
        sleep(_POLL_INTERVAL)
    raise ConnectionError(f"no success at {url}")


def measure(rounds: int, seconds: float) -> list[Report]:
    """Returns the results of both workloads, and of the requirements, for runs of `seconds`."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for workload in (TINY, PHOTO, LONG):
            workload.write(folder)
        server = stack.enter_context(running(folder))
        sleep(_IDLE_SECONDS)
        idle_memory = memory(server.pid)
        single = stack.enter_context(running(folder, _ONE_JOB_PER_PROCESS))
        tiny: dict[str, Variant] = {
            **{connections_title(count): server.variant(TINY, folder, seconds, count) for count in (1, 4, 16)},
            FREE: replace(server, keys=(server.free_key,)).variant(TINY, folder, seconds, 16),
            **{in_turn_title(count): server.variant(TINY, folder, seconds, 16, accounts=count) for count in IN_TURN},
            BESIDE: partial(_beside_long_jobs, server, folder, seconds),
            "1 job per process": single.variant(TINY, folder, seconds, 16),
        }
        photo: dict[str, Variant] = {
            PILLOW.title: PILLOW.variant(folder, seconds),
            **{connections_title(count): server.variant(PHOTO, folder, seconds, count) for count in (1, 4, 16)},
        }
        tiny_runs, photo_runs = asyncio.run(_measure(tiny, photo, rounds))
    return [
        table(f"{TINY.title} ({rounds} x {seconds:g} s)", tiny_runs),
        table(f"{PHOTO.title} ({rounds} x {seconds:g} s)", photo_runs),
        Report("Requirements", COLUMNS, tuple(_requirements(tiny_runs, photo_runs, server.ready_seconds, idle_memory))),
    ]


async def _beside_long_jobs(server: Server, folder: Path, seconds: float) -> Run:
    """Runs tiny requests of the first account while each of the others has one long encode at any time."""
    others = replace(server, keys=server.keys[1:]).plan(LONG, folder, 2 * seconds, LONG_JOBS, accounts=LONG_JOBS)
    encodes = asyncio.create_task(generate_load(others))
    try:
        return await server.variant(TINY, folder, seconds, 1)()
    finally:
        await encodes


async def _measure(tiny: Mapping[str, Variant], photo: Mapping[str, Variant], rounds: int) -> tuple[Runs, Runs]:
    return await interleaved(tiny, rounds), await interleaved(photo, rounds)


def connections_title(count: int) -> str:
    """Returns the name of a load of so many connections."""
    return f"{count} connection{'s' * (count > 1)}"


def in_turn_title(count: int) -> str:
    """Returns the name of a load of 16 connections whose requests take turns among so many accounts."""
    return f"{count} accounts in turn"


def _requirements(tiny: Runs, photo: Runs, ready_seconds: float, idle_memory: float) -> list[Row]:
    rows = [
        at_most("seconds until ready", ready_seconds, 3),
        at_most("idle memory of all processes, MiB", idle_memory, 250),
        at_most("tiny, 1 connection: p50, ms", p50_ms(tiny["1 connection"]), 4),
        at_most(f"tiny, {BESIDE}: p50, ms", p50_ms(tiny[BESIDE]), 10),
        at_most("tiny, 16 connections: CPU, ms", cpu_ms(tiny["16 connections"]), 2.4),
        at_most(f"tiny, {FREE}: CPU, ms", cpu_ms(tiny[FREE]), 2.4),
        *(
            at_most(f"tiny, {in_turn_title(count)}: CPU, ms", cpu_ms(tiny[in_turn_title(count)]), limit)
            for count, limit in IN_TURN.items()
        ),
    ]
    for variant in ("4 connections", "16 connections"):
        share = throughput_ratio(photo[variant], photo[PILLOW.title])
        rows += [
            required(f"photo, {variant}: throughput / {PILLOW.title}", share, ">= 1", met=share >= 1),
            at_most(f"photo, {variant}: p99 / p50", p99_ms(photo[variant]) / p50_ms(photo[variant]), 1.6),
        ]
    failed = sum(run.failures for runs in (*tiny.values(), *photo.values()) for run in runs)
    return [*rows, equals("failed requests", failed, 0)]
