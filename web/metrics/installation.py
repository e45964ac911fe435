"""What runs here: version, plugins, the sandbox, and what counts requests."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, Gauge, Info

from engine.loading import Plugin


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

    def runs(self, version: str, plugins: Iterable[Plugin]) -> None:
        """The version of convertd, and the plugins that it found; those that come with it are of its version."""
        self._build.info({"version": version, "python": platform.python_version()})
        for plugin in plugins:
            self._plugins.labels(plugin.name, plugin.version or version).set(plugin.error is None)

    def sandboxed(self, layers: Mapping[str, bool]) -> None:
        """Which layers of the sandbox hold."""
        for layer, holds in layers.items():
            self._layers.labels(layer).set(holds)

    def redis(self, *, failing: bool) -> None:
        """Whether requests are counted without Redis, which should count them."""
        self._breaker.set(failing)
