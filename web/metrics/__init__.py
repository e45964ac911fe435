"""Prometheus metrics, grouped by concern.

No label has a value that a client can choose: routes are patterns, formats are names from the catalogue, codes and
reasons are the API's. The classes here read no database and no disk: other code calls them with the values to record.

Each server counts its own work, so counters can be summed over servers. Values read from a shared database are the same
for all servers. The processes of one server keep their metrics in files that all of them read: each returns the sums,
or of states the smallest or largest value, as `multiprocess_mode` declares. Counters of processes that have ended stay.
"""

from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.multiprocess import MultiProcessCollector

from engine.plugin_loader import Plugin
from web.metrics.conversions import ConversionMetrics
from web.metrics.jobs import JobMetrics
from web.metrics.service import (
    ClusterMetrics,
    CreditMetrics,
    HttpMetrics,
    InstallationMetrics,
    ProcessMetrics,
    RemoteFileMetrics,
    TotalsMetrics,
    WorkerMetrics,
)
from web.metrics.webhooks import WebhookMetrics


def process_registry() -> CollectorRegistry:
    """Returns a registry with the metrics of this process and of Python."""
    disable_created_metrics()  # Prometheus does not use them, and they are a third of all series
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


class Metrics:
    """All metrics of a server with these plugins. `registry` is the one to expose.

    With `shared`, these are the metrics of all processes of the server. `process` has those that are to be updated.
    """

    def __init__(self, plugins: Iterable[Plugin], *, cluster: bool = False, shared: bool = False) -> None:
        self.process: ProcessMetrics | None = None
        if shared:
            disable_created_metrics()
            registry = CollectorRegistry()
            self.registry = CollectorRegistry()
            MultiProcessCollector(self.registry)
            PlatformCollector(self.registry)
            self.process = ProcessMetrics(registry)
        else:
            self.registry = registry = process_registry()
            GCCollector(registry)
        self.http = HttpMetrics(registry)
        self.conversions = ConversionMetrics(registry)
        self.workers = WorkerMetrics(registry)
        self.credits = CreditMetrics(registry)
        self.webhooks = WebhookMetrics(registry)
        self.jobs = JobMetrics(registry)
        self.remote_files = RemoteFileMetrics(registry)
        self.totals = TotalsMetrics(registry)
        self.installation = InstallationMetrics(registry)
        self.installation.set_plugins(plugins)
        self.cluster = ClusterMetrics(registry) if cluster else None
