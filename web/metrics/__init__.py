"""Prometheus metrics, grouped by concern.

No label has a value that a client can choose: routes are patterns, formats are names from the catalogue, codes and
reasons are the API's. The classes here read no database and no disk: other code calls them with the values to record.

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

from engine.plugin_loader import Plugin
from web.metrics.cluster import ClusterMetrics
from web.metrics.conversions import ConversionMetrics
from web.metrics.service import CreditMetrics, HttpMetrics, InstallationMetrics, TotalsMetrics, WorkerMetrics

__all__ = ["Metrics", "create_metrics"]


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
    cluster: ClusterMetrics | None


def create_metrics(version: str, plugins: Iterable[Plugin], *, cluster: bool = False) -> Metrics:
    """Creates the metrics of this version of convertd with these plugins, also for a `cluster`."""
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
        cluster=ClusterMetrics(registry) if cluster else None,
    )
    metrics.installation.set_build(version, plugins)
    return metrics
