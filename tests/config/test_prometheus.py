"""A real Prometheus scrapes a server while faults are injected."""

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics, start_http_server

from benchmarks.processes import ConvertdServer, RedisServer, free_port
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import eventually
from tests.support.servers.load import create_accounts, sqlite_url
from tests.support.servers.prometheus_server import PrometheusServer
from web.api.schemas.service import Cluster
from web.metrics.service import ClusterMetrics, ClusterWorkerMetrics

_ROOT = Path(__file__).parents[2]
_CONFIG = _ROOT / "config"
_DASHBOARD = json.loads((_CONFIG / "grafana" / "dashboards" / "convertd.json").read_text())
_PANELS = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
_COMPARISON = re.compile(r"(?P<value>.+) (?P<operator>[<>]|==) (?P<bound>[\d.e+]+)", re.DOTALL)
_SECONDS = 25  # a fault is visible in Prometheus after at most this time
_CROWD = 90  # concurrent conversions
_TIMEOUT = 2.0  # seconds

# Alerts whose conditions the faults below cause, and alerts whose conditions they do not.
_EXPECTED = {
    "ConvertdConversionsFail",
    "ConvertdConversionsRefused",
    "ConvertdMailFails",
    "ConvertdMixedVersions",
    "ConvertdNotReady",
    "ConvertdRedisGone",
    "ConvertdSandboxIncomplete",
    "ConvertdWorkersDie",
}
_UNEXPECTED = {"ConvertdDown", "ConvertdUpkeepStalls", "ConvertdPluginBroken", "ConvertdNoClusterWorker"}


@dataclass(frozen=True)
class MonitoredServer:
    """A server with injected faults, its metrics and those of a cluster, and the Prometheus that scrapes both."""

    prometheus: PrometheusServer
    server: ConvertdServer
    expositions: tuple[str, str]

    def active_alerts(self) -> set[str]:
        """Returns the alerts whose conditions hold. test_alerts checks their durations."""
        return {name for name, rule in self.prometheus.rules().items() if rule["state"] != "inactive"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredServer]:
    folder, metrics_port, worker_port = tmp_path_factory.mktemp("watched"), free_port(), free_port()
    data = folder / "data"
    data.mkdir()
    (key,) = create_accounts(sqlite_url(data), 1)
    prometheus = PrometheusServer(folder, metrics_port, worker_port)
    with _cluster_metrics(worker_port), RedisServer(folder) as redis, prometheus:
        settings = {
            "CONVERTD_METRICS_PORT": str(metrics_port),
            "CONVERTD_REDIS_URL": redis.url,
            "CONVERTD_SANDBOX": "off",
            "CONVERTD_SMTP_URL": f"smtp://127.0.0.1:{free_port()}",
            "CONVERTD_WORKERS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "tests" / "support" / "executors" / "misbehaving"))),
        }
        with ConvertdServer(data, settings) as server:
            metrics = f"http://127.0.0.1:{metrics_port}/metrics"
            assert eventually(lambda: prometheus.query('up{job="convertd"} > 0') != [])
            (data / "blobs").rename(data / "gone")
            _load(server.api, key)
            redis.kill()
            http.get(f"{server.api}/formats")
            cluster = http.get(f"http://127.0.0.1:{worker_port}/metrics").text
            yield MonitoredServer(prometheus, server, (http.get(metrics).text, cluster))


@contextmanager
def _cluster_metrics(port: int) -> Iterator[None]:
    """Serves the metrics of a cluster with workers of two versions, as of a server and of a worker."""
    disable_created_metrics()
    registry = CollectorRegistry()
    ClusterWorkerMetrics(registry)
    ClusterMetrics(registry).update(Cluster(connected=True, workers={"1.0.0": 2, "1.1.0": 1}, usable=2, slots=4))
    server, thread = start_http_server(port, "127.0.0.1", registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _load(api: str, key: str) -> None:
    """Causes successful, rejected, lost and cancelled work."""
    with http.Client(base_url=api, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:

        def convert(content: bytes) -> int:
            response = client.post("/convert", files={"file": content}, data={"output_format": "webp"})
            return response.status_code

        client.post("/register", json={"email": "you@example.com", "name": "You"}).raise_for_status()
        assert [convert(sample("png")), convert(sample("png")[:100])] == [200, 500]
        assert {convert(b"TROUBLE crash") for _ in range(4)} == {500}
        for seconds in (0.1, 0.2, 0.3, 0.4, 0.6, 0.9, 1.4):  # so that a queue of the next ones is expected to take long
            assert convert(f"TROUBLE compute {seconds}".encode()) == 200
        assert 429 in asyncio.run(_crowd(api, key))  # Prometheus scrapes in between: a rate needs two samples
        assert {convert(b"TROUBLE crash") for _ in range(4)} == {500}


async def _crowd(api: str, key: str) -> list[int]:
    """Returns the statuses of the requests that are answered at once when there are more than the queue holds."""
    headers = {"Authorization": f"Bearer {key}"}
    async with http.AsyncClient(base_url=api, headers=headers, timeout=_TIMEOUT) as client:

        async def convert() -> int:
            form: dict[str, Any] = {"files": {"file": b"TROUBLE compute 99"}, "data": {"output_format": "webp"}}
            try:
                return (await client.post("/convert", **form)).status_code
            except httpx.TransportError:  # no answer in time, or more connections than an address may have
                return 0

        return await asyncio.gather(*(convert() for _ in range(_CROWD)))


def test_metrics_are_valid_for_prometheus(watched: MonitoredServer) -> None:
    for text in watched.expositions:
        done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False)

        assert (done.returncode, done.stderr) == (0, "")


def test_referenced_metrics_exist(watched: MonitoredServer) -> None:
    named = {
        name
        for text in ((_CONFIG / "alerts.yml").read_text(), json.dumps(_DASHBOARD))
        for name in re.findall(r"\b(?:convertd|process)_\w+", text)
    }
    exposed = set(re.findall(r"^(\w+)[{ ]", "".join(watched.expositions), re.MULTILINE))

    assert named - exposed == set()


def test_dashboard_expressions_return_data(watched: MonitoredServer) -> None:
    expressions = {
        target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        for panel in _PANELS
        for target in panel["targets"]
    }

    assert [expression for expression in expressions if not watched.prometheus.query(expression)] == []


def test_alert_expressions_compare_data_with_a_number(watched: MonitoredServer) -> None:
    compared = {name: _COMPARISON.fullmatch(rule["query"]) for name, rule in watched.prometheus.rules().items()}

    assert [name for name, found in compared.items() if found is None] == []
    assert [name for name, found in compared.items() if found and not watched.prometheus.query(found["value"])] == []


def test_only_the_expected_alerts_fire(watched: MonitoredServer) -> None:
    assert eventually(lambda: watched.active_alerts() >= _EXPECTED, _SECONDS), _EXPECTED - watched.active_alerts()
    assert not watched.active_alerts() & _UNEXPECTED


def test_down_alert_after_the_server_stops(watched: MonitoredServer) -> None:
    watched.server.kill()

    assert eventually(lambda: "ConvertdDown" in watched.active_alerts())
