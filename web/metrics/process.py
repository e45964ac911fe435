"""The standard `process_*` metrics as sums over the processes of a server."""

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector

_CPU = "process_cpu_seconds"


class ProcessMetrics:
    """What this process uses of CPU, memory and descriptors, in metrics that processes share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._collector = ProcessCollector(registry=None)
        families = [family for family in self._collector.collect() if family.name != _CPU]
        self._gauges = {
            family.name: Gauge(
                family.name,
                family.documentation,
                registry=registry,
                multiprocess_mode="livemin" if family.name == "process_start_time_seconds" else "livesum",
            )
            for family in families
        }
        self._cpu = Counter(_CPU, "Total user and system CPU time spent in seconds.", registry=registry)
        self._cpu_before = 0.0
        self.update()

    def update(self) -> None:
        """Sets all metrics."""
        for family in self._collector.collect():
            (sample,) = family.samples
            if family.name == _CPU:
                self._cpu.inc(sample.value - self._cpu_before)
                self._cpu_before = sample.value
            else:
                self._gauges[family.name].set(sample.value)
