"""A real Prometheus with the provided configuration and alerts, on a free port."""

from pathlib import Path
from typing import Any

import httpx

from benchmarks.processes import ServerProcess
from tests.support.requests import http

_CONFIG = Path(__file__).parents[3] / "config"
_INTERVAL = "15s"
_TARGET = "127.0.0.1:9464"


class PrometheusServer(ServerProcess):
    """A Prometheus that scrapes the metrics ports of a server and a worker every second. Its files are in `folder`."""

    def __init__(self, folder: Path, metrics_port: int, worker_port: int) -> None:
        super().__init__()
        self._folder = folder
        self._metrics_port = metrics_port
        self._worker_port = worker_port

    @property
    def command(self) -> list[str]:
        options = {
            "config.file": self._folder / "prometheus.yml",
            "storage.tsdb.path": self._folder / "data",
            "web.listen-address": f"127.0.0.1:{self.port}",
        }
        return ["prometheus", *(f"--{name}={value}" for name, value in options.items())]

    def start(self) -> None:
        text = (_CONFIG / "prometheus.yml").read_text()
        assert _INTERVAL in text
        assert _TARGET in text
        here = text.replace(_INTERVAL, "1s").replace(_TARGET, f"127.0.0.1:{self._metrics_port}")
        (self._folder / "prometheus.yml").write_text(here)
        (self._folder / "alerts.yml").write_text((_CONFIG / "alerts.yml").read_text())
        (self._folder / "workers.yml").write_text(f'- targets: ["127.0.0.1:{self._worker_port}"]')
        super().start()

    def answers(self) -> bool:
        try:
            return self._get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The current samples of a query."""
        return list(self._asked("query", query=expression)["result"])

    def rules(self) -> dict[str, dict[str, Any]]:
        """The alerts by name, with their `query` and their `state`: inactive, pending or firing."""
        (group,) = self._asked("rules")["groups"]
        return {rule["name"]: rule for rule in group["rules"]}

    def _asked(self, what: str, **parameters: str) -> Any:
        response = self._get(f"/api/v1/{what}", **parameters)
        assert response.status_code == 200, response.text
        return response.json()["data"]

    def _get(self, path: str, **parameters: str) -> httpx.Response:
        # Without certificates, which take longer to load than the request.
        return http.get(f"http://127.0.0.1:{self.port}{path}", params=parameters, timeout=20)
