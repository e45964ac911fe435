"""What runs here: version, plugins, the sandbox, and what counts requests."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, Info


class InstallationMetrics:
    """Told of what was found at the start, and of Redis."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._build = Info("convertd_build", "The version that runs, and its Python.", registry=registry)
        self._plugins = Gauge(
            "convertd_plugin_up", "Whether a plugin could be loaded.", ("plugin", "version"), registry=registry
        )
        self._layers = Gauge(
            "convertd_sandbox_layer", "Whether a layer of the sandbox holds here.", ("layer",), registry=registry
        )
        self._breaker = Gauge(
            "convertd_redis_breaker_open",
            "Whether Redis does not answer, so that limits hold for each process by itself.",
            registry=registry,
        )
