"""What the service adds to a codec, in paired runs: each round tries every way once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext, redirect_stderr
from dataclasses import fields
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import httpx
from prometheus_client import CollectorRegistry

from benchmarks.report import Report
from config.logs import configure
from config.settings import Settings
from engine import Options, pipeline, sandbox
from engine.executor import Job, LocalExecutor
from engine.registry import load_registry
from storage import accounts, api_keys
from storage.transaction import Transaction
from storage.usage import UsageRecord
from tests.support.samples import sample
from web.app import assemble, listening
from web.metrics import Metrics
from web.services.container import Services

Way = Callable[[], Awaitable[object]]


def measure(rounds: int) -> Report:
    """Medians and 95th percentiles over the rounds, in milliseconds; `added` is to the row above."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), rounds))


async def _measure(folder: Path, rounds: int) -> Report:
    registry = load_registry()
    executor = LocalExecutor(2)
    bare = LocalExecutor(2, sandbox.ALWAYS)
    await executor.start()
    await bare.start()
    settings = Settings(data_dir=folder, rate_limit_free=10**9, rate_limit_anonymous=10**9, metrics_port=0)
    services = await asyncio.to_thread(assemble, settings, registry, executor)
    async with AsyncExitStack() as stack:
        with redirect_stderr(stack.enter_context((folder / "log").open("w"))):
            configure("json")
        url = await stack.enter_async_context(listening(services, "127.0.0.1", 0))
        client = await stack.enter_async_context(httpx.AsyncClient())
        ways = await _ways(folder, services, (bare, executor), client, f"{url}/api/v1")
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(rounds):
            for name, way in ways.items():
                started = perf_counter()
                await way()
                times[name].append((perf_counter() - started) * 1000)
                await asyncio.sleep(0.02)  # spares are forked between requests, as in a service that is not full
    await executor.close()
    await bare.close()
    return _report(times, rounds)


async def _ways(
    folder: Path, services: Services, executors: tuple[LocalExecutor, ...], client: httpx.AsyncClient, url: str
) -> dict[str, Way]:
    registry = load_registry()
    bare, executor = executors
    plan = registry.plan([registry.formats["png"]], "jpeg")
    data = sample("png")
    source = folder / "in.png"
    source.write_bytes(data)
    job = Job.of(plan, [source], folder / "out.jpg")
    key = await services.database.run(_account)
    headers = {"Authorization": f"Bearer {key}"}

    async def in_process() -> object:
        return pipeline.run(plan, [data], Options())

    async def in_a_bare_job() -> object:
        return await bare.run(job)

    async def in_a_job() -> object:
        return await executor.run(job)

    async def metered() -> object:
        account = await services.accounts.authenticate(headers["Authorization"])
        await services.limiter.hit(f"account:{account.id}", 10**9, 60)
        use = UsageRecord("convert", "png", "jpeg", len(data))
        async with services.charges.hold(account.id, 1, use, None) as charge:
            return await charge.settle(1)

    over_http = _over_http(services, client, url, headers, data)
    return {
        "codec in process": in_process,
        "in a process of its own": in_a_bare_job,
        "in its sandbox": in_a_job,
        **over_http,
        "account, limit and credit alone": metered,
    }


def _over_http(
    services: Services, client: httpx.AsyncClient, url: str, headers: dict[str, str], data: bytes
) -> dict[str, Way]:
    async def convert() -> object:
        files, form = {"file": ("in.png", data)}, {"output_format": "jpeg"}
        return (await client.post(f"{url}/convert", files=files, data=form, headers=headers)).raise_for_status()

    async def get() -> object:
        return (await client.get(f"{url}/account", headers=headers)).raise_for_status()

    def alone(way: Way) -> Way:
        async def unwatched_way() -> object:
            with unwatched(services.metrics):
                return await way()

        return unwatched_way

    return {
        "GET /account, no metrics and no log": alone(get),
        "GET /account": get,
        "POST /convert, no metrics and no log": alone(convert),
        "POST /convert": convert,
    }


def _account(transaction: Transaction) -> str:
    account = accounts.create(transaction, "benchmark@example.com", "Benchmark", free_credits=10**6)
    return api_keys.issue(transaction, account.id, "Benchmark").text


def _report(times: dict[str, list[float]], rounds: int) -> Report:
    rows = []
    above: list[float] | None = None
    for name, taken in times.items():
        added = median(mine - other for mine, other in zip(taken, above or taken, strict=True))
        # Some ways are a part of the one above.
        rows.append((name, median(taken), sorted(taken)[int(len(taken) * 0.95)], max(added, 0.0)))
        above = taken
    return Report(f"overhead, {rounds} rounds", ("way", "median ms", "p95 ms", "added ms"), tuple(rows))


@contextmanager
def unwatched(metrics: Metrics) -> Iterator[None]:
    """While this lasts, the metrics take note of nothing, and nothing is logged."""
    parts = [getattr(metrics, field.name) for field in fields(metrics)]
    before = logging.root.manager.disable
    logging.disable()
    try:
        with _deaf([part for part in parts if not isinstance(part, CollectorRegistry)]):
            yield
    finally:
        logging.disable(before)


@contextmanager
def _deaf(parts: list[object]) -> Iterator[None]:
    names = [(part, name) for part in parts for name in vars(type(part)) if not name.startswith("_")]
    for part, name in names:
        setattr(part, name, lambda *_args, **_told: nullcontext())
    try:
        yield
    finally:
        for part, name in names:
            delattr(part, name)
