"""Overhead of the service over the codec alone: the conversion of a tiny picture, layer by layer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext, redirect_stderr
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from prometheus_client import CollectorRegistry

from benchmarks.load_generator import LoadPlan
from benchmarks.measure import Run, Variant, interleaved, load, own_cpu_seconds, repeat, run_job, table
from benchmarks.report import Report
from benchmarks.server import TINY
from config.logs import configure
from config.settings import Settings
from engine import pipeline, sandbox
from engine.executor import Job, LocalExecutor
from engine.registry import Registry, load_registry
from storage.database import Transaction
from storage.tables import accounts, api_keys
from storage.tables.usage import UsageRecord
from web.app import assemble, listening
from web.metrics import Metrics
from web.services.container import Services

_UNLIMITED = 10**9
_UPLOAD_SIZE = 10_000  # bytes


def measure(rounds: int, seconds: float) -> list[Report]:
    """Returns a row per variant, for runs of `seconds` with one request at a time."""
    with TemporaryDirectory() as folder:
        runs = asyncio.run(_measure(Path(folder), rounds, seconds))
    return [table(f"Overhead of the service, {TINY.title} ({rounds} x {seconds:g} s)", runs)]


async def _measure(folder: Path, rounds: int, seconds: float) -> dict[str, list[Run]]:
    registry = load_registry()
    sandboxed, unsandboxed = LocalExecutor(2), LocalExecutor(2, sandbox.ALWAYS)
    await sandboxed.start()
    await unsandboxed.start()
    TINY.write(folder)
    settings = Settings(data_dir=folder, rate_limit_free=_UNLIMITED, rate_limit_anonymous=_UNLIMITED, metrics_port=0)
    services = await asyncio.to_thread(assemble, settings, registry, sandboxed)
    async with AsyncExitStack() as stack:
        with redirect_stderr(stack.enter_context((folder / "log").open("w"))):
            configure("json")
        url = await stack.enter_async_context(listening(services, "127.0.0.1", 0))
        key = await services.database.run(_create_account)
        post = LoadPlan(f"{url}/api/v1/convert", (key,), str(folder / TINY.file), seconds, 0, 1, TINY.fields)
        variants: dict[str, Variant] = {
            **_executor_variants(registry, folder, unsandboxed, sandboxed, seconds),
            **_http_variants(services, post),
            "account, limit and credit alone": partial(repeat, _charge(services, f"Bearer {key}"), seconds),
        }
        runs = await interleaved(variants, rounds)
    await sandboxed.close()
    await unsandboxed.close()
    return runs


def _executor_variants(
    registry: Registry, folder: Path, unsandboxed: LocalExecutor, sandboxed: LocalExecutor, seconds: float
) -> dict[str, Variant]:
    plan = registry.plan([registry.formats["png"]], "jpeg")
    job, source = Job.of(plan), folder / TINY.file

    async def in_process() -> object:
        return pipeline.run(plan, [source.read_bytes()])

    return {
        "codec in process": partial(repeat, in_process, seconds),
        "in a worker process": partial(repeat, partial(run_job, unsandboxed, job, source), seconds),
        "in a sandboxed worker process": partial(repeat, partial(run_job, sandboxed, job, source), seconds),
    }


def _http_variants(services: Services, post: LoadPlan) -> dict[str, Variant]:
    get = replace(post, url=post.url.replace("convert", "account"), file="")

    def unobserved(plan: LoadPlan) -> Variant:
        async def run() -> Run:
            with _metrics_and_logs_disabled(services.metrics):
                return await load(plan, own_cpu_seconds)

        return run

    return {
        "GET /account, no metrics and no log": unobserved(get),
        "GET /account": partial(load, get, own_cpu_seconds),
        "POST /convert, no metrics and no log": unobserved(post),
        "POST /convert": partial(load, post, own_cpu_seconds),
    }


def _charge(services: Services, authorization: str) -> Callable[[], Awaitable[object]]:
    async def charge_one_credit() -> object:
        account = await services.accounts.authenticate(authorization)
        await services.limiter.hit(f"account:{account.id}", _UNLIMITED, 60)
        usage = UsageRecord("convert", "png", "jpeg", _UPLOAD_SIZE)
        async with services.charges.hold(account.id, account.key_id, 1, usage, None) as charge:
            return await charge.settle(1)

    return charge_one_credit


def _create_account(transaction: Transaction) -> str:
    account = accounts.create(transaction, "benchmark@example.com", "Benchmark", free_credits=10**6)
    return api_keys.issue(transaction, account.id, "Benchmark").text


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
