"""Prometheus metrics, grouped by concern.

No label has a value that a client can choose: routes are patterns, formats are names from the catalogue, codes and
reasons are the API's. The classes here read no database and no disk; the code that knows a fact reports it.

Each server process counts its own work on its own port, so counters can be summed over processes. Values read from a
shared database are the same in all processes.
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
    """All metrics of a server, in a registry of their own."""

    registry: CollectorRegistry
    http: HttpMetrics
    conversions: ConversionMetrics
    workers: WorkerMetrics
    credits: CreditMetrics
    totals: TotalsMetrics
    installation: InstallationMetrics

    def record_wait(self, seconds: float) -> None:
        """Records the time that a conversion spent in the queue before it started."""
        self.workers.queue_wait.observe(seconds)
        self.conversions.observe_stage("queue", seconds)

    def record_job(self, plan: Plan, result: JobResult) -> None:
        """Records the stages and the peak memory of a successful job."""
        self.conversions.record_stages(plan, result)
        self.workers.record_peak_memory(result.peak_memory)


def create(version: str, plugins: Iterable[Plugin]) -> Metrics:
    """Creates the metrics of this version of convertd with these plugins."""
    disable_created_metrics()  # Prometheus does not use them, and they are a third of all series
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    metrics = Metrics(
        registry=registry,
        http=HttpMetrics(registry),
        conversions=ConversionMetrics(registry),
        workers=WorkerMetrics(registry),
        credits=CreditMetrics(registry),
        totals=TotalsMetrics(registry),
        installation=InstallationMetrics(registry),
    )
    metrics.installation.set_build(version, plugins)
    return metrics
