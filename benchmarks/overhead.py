"""Overhead of the service over the codec alone, in paired runs: each round runs every variant once."""

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

from benchmarks.report import Report, Row
from config.logs import configure
from config.settings import Settings
from engine import pipeline, sandbox
from engine.executor import Job, LocalExecutor
from engine.registry import Registry, load_registry
from storage import accounts, api_keys
from storage.transaction import Transaction
from storage.usage import UsageRecord
from tests.support.executors import FileJob, run_files
from tests.support.samples import sample
from web.app import assemble, listening
from web.metrics import Metrics
from web.services.container import Services

Variant = Callable[[], Awaitable[object]]

_UNLIMITED = 10**9


def measure(rounds: int) -> Report:
    """Returns medians and 95th percentiles in milliseconds. `added` is the difference from the row above."""
    with TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder), rounds))


async def _measure(folder: Path, rounds: int) -> Report:
    registry = load_registry()
    sandboxed, unsandboxed = LocalExecutor(2), LocalExecutor(2, sandbox.ALWAYS)
    await sandboxed.start()
    await unsandboxed.start()
    settings = Settings(data_dir=folder, rate_limit_free=_UNLIMITED, rate_limit_anonymous=_UNLIMITED, metrics_port=0)
    services = await asyncio.to_thread(assemble, settings, registry, sandboxed)
    async with AsyncExitStack() as stack:
        with redirect_stderr(stack.enter_context((folder / "log").open("w"))):
            configure("json")
        url = await stack.enter_async_context(listening(services, "127.0.0.1", 0))
        client = await stack.enter_async_context(httpx.AsyncClient())
        key = await services.database.run(_create_account)
        headers = {"Authorization": f"Bearer {key}"}
        variants = {
            **_executor_variants(registry, folder, unsandboxed, sandboxed),
            **_http_variants(services, client, f"{url}/api/v1", headers),
            "account, limit and credit alone": _charge_variant(services, headers["Authorization"]),
        }
        times: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name, run in variants.items():
                started = perf_counter()
                await run()
                times[name].append((perf_counter() - started) * 1000)
                await asyncio.sleep(0.02)  # lets the executors refill their pools, as on a server with spare capacity
    await sandboxed.close()
    await unsandboxed.close()
    return _report(times, rounds)


def _executor_variants(
    registry: Registry, folder: Path, unsandboxed: LocalExecutor, sandboxed: LocalExecutor
) -> dict[str, Variant]:
    plan = registry.plan([registry.formats["png"]], "jpeg")
    source = folder / "in.png"
    source.write_bytes(sample("png"))
    job = FileJob(Job.of(plan), [source], folder / "out.jpg")

    async def in_process() -> object:
        return pipeline.run(plan, [source.read_bytes()])

    return {
        "codec in process": in_process,
        "in a worker process": lambda: run_files(unsandboxed, job),
        "in a sandboxed worker process": lambda: run_files(sandboxed, job),
    }


def _http_variants(
    services: Services, client: httpx.AsyncClient, url: str, headers: dict[str, str]
) -> dict[str, Variant]:
    async def convert() -> object:
        files, form = {"file": ("in.png", sample("png"))}, {"output_format": "jpeg"}
        return (await client.post(f"{url}/convert", files=files, data=form, headers=headers)).raise_for_status()

    async def get() -> object:
        return (await client.get(f"{url}/account", headers=headers)).raise_for_status()

    def unobserved(run: Variant) -> Variant:
        async def run_unobserved() -> object:
            with _metrics_and_logs_disabled(services.metrics):
                return await run()

        return run_unobserved

    return {
        "GET /account, no metrics and no log": unobserved(get),
        "GET /account": get,
        "POST /convert, no metrics and no log": unobserved(convert),
        "POST /convert": convert,
    }


def _charge_variant(services: Services, authorization: str) -> Variant:
    async def charge_one_credit() -> object:
        account = await services.accounts.authenticate(authorization)
        await services.limiter.hit(f"account:{account.id}", _UNLIMITED, 60)
        usage = UsageRecord("convert", "png", "jpeg", len(sample("png")))
        async with services.charges.hold(account.id, account.key_id, 1, usage, None) as charge:
            return await charge.settle(1)

    return charge_one_credit


def _create_account(transaction: Transaction) -> str:
    account = accounts.create(transaction, "benchmark@example.com", "Benchmark", free_credits=10**6)
    return api_keys.issue(transaction, account.id, "Benchmark").text


def _report(times: dict[str, list[float]], rounds: int) -> Report:
    rows: list[Row] = []
    above: list[float] | None = None
    for name, milliseconds in times.items():
        added = median(own - other for own, other in zip(milliseconds, above or milliseconds, strict=True))
        p95 = sorted(milliseconds)[int(len(milliseconds) * 0.95)]
        rows.append((name, median(milliseconds), p95, max(added, 0.0)))  # some variants are a part of the one above
        above = milliseconds
    return Report(f"overhead, {rounds} rounds", ("variant", "median ms", "p95 ms", "added ms"), tuple(rows))


@contextmanager
def _metrics_and_logs_disabled(metrics: Metrics) -> Iterator[None]:
    groups = [getattr(metrics, field.name) for field in fields(metrics)]
    level = logging.root.manager.disable
    logging.disable()
    try:
        with _methods_disabled([group for group in groups if not isinstance(group, CollectorRegistry)]):
            yield
    finally:
        logging.disable(level)


@contextmanager
def _methods_disabled(groups: list[object]) -> Iterator[None]:
    """Replaces the public methods of the objects by functions that do nothing."""
    names = [(group, name) for group in groups for name in vars(type(group)) if not name.startswith("_")]
    for group, name in names:
        setattr(group, name, lambda *_args, **_kwargs: nullcontext())
    try:
        yield
    finally:
        for group, name in names:
            delattr(group, name)
