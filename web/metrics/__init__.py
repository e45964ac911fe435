"""What is counted and measured, for Prometheus. Each module defines what one concern is told of, and takes note of it.

No label holds what a client can choose: routes are patterns, formats those of the catalogue, codes and reasons those
of the API. Nothing here reads a database or a disk: whoever knows a fact tells it.

With several server processes each tells of its own work on a port of its own, and sums over them are true; what is
read from the database that they share, they all tell alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from engine.executor import JobResult
from engine.planner import Plan
from engine.plugin_loader import Plugin
from web.metrics.conversions import ConversionMetrics
from web.metrics.service import CreditMetrics, HttpMetrics, InstallationMetrics, TotalsMetrics, WorkerMetrics

__all__ = ["Metrics", "create"]


@dataclass(frozen=True)
class Metrics:
    """All metrics of a server, by who is told of them, in a registry of their own."""

    registry: CollectorRegistry
    http: HttpMetrics
    conversions: ConversionMetrics
    workers: WorkerMetrics
    money: CreditMetrics
    stock: TotalsMetrics
    installation: InstallationMetrics

    def waited(self, seconds: float) -> None:
        """A conversion got its turn."""
        self.workers.waited(seconds)
        self.conversions.stage("queue", seconds)

    def ran(self, plan: Plan, done: JobResult) -> None:
        """A job is done."""
        self.conversions.ran(plan, done)
        self.workers.peak(done.peak_memory)


def create(version: str, plugins: Iterable[Plugin]) -> Metrics:
    """Metrics of that version of convertd with these plugins, which know of nothing else yet."""
    disable_created_metrics()  # of no use to Prometheus, and a third of all series
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    created = Metrics(
        registry=registry,
        http=HttpMetrics(registry),
        conversions=ConversionMetrics(registry),
        workers=WorkerMetrics(registry),
        money=CreditMetrics(registry),
        stock=TotalsMetrics(registry),
        installation=InstallationMetrics(registry),
    )
    created.installation.runs(version, plugins)
    return created
