"""A real Prometheus watches a server that has every trouble which can be made in seconds."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import plain
from tests.config.prometheus_server import PrometheusServer
from tests.redis_server import RedisServer
from tests.samples import sample
from tests.server_process import free_port
from tests.web.processes import serving
from tests.web.servers import eventually, made_key

_ROOT = Path(__file__).parents[2]
_CONFIG = _ROOT / "config"
_DASHBOARD = json.loads((_CONFIG / "grafana" / "dashboards" / "convertd.json").read_text())
_PANELS = [panel for panel in _DASHBOARD["panels"] if panel["type"] != "row"]
_COMPARISON = re.compile(r"(?P<value>.+) (?P<operator>[<>]|==) (?P<bound>[\d.e+]+)", re.DOTALL)
_SECONDS = 25  # that a trouble may take to be seen
_CROWD = 60  # conversions at once
_PATIENCE = 2.0  # seconds

# What the server below is put through, and what it is spared.
_MADE = {
    "ConvertdConversionsFail",
    "ConvertdConversionsRefused",
    "ConvertdMailFails",
    "ConvertdNotReady",
    "ConvertdRedisGone",
    "ConvertdSandboxIncomplete",
    "ConvertdWorkersDie",
}
_SPARED = {"ConvertdDown", "ConvertdUpkeepStalls", "ConvertdPluginBroken"}


@dataclass(frozen=True)
class Watched:
    """A server in trouble, its metrics, and the Prometheus that reads them."""

    prometheus: PrometheusServer
    process: subprocess.Popen[str]
    exposition: str

    def seen(self) -> set[str]:
        """The alerts whose conditions hold; how long they have to hold is tested with promtool."""
        return {name for name, rule in self.prometheus.rules().items() if rule["state"] != "inactive"}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder, metrics_port = tmp_path_factory.mktemp("watched"), free_port()
    data = folder / "data"
    data.mkdir()
    key = made_key(data)
    with RedisServer(folder) as redis, PrometheusServer(folder, metrics_port) as prometheus:
        settings = {
            "CONVERTD_METRICS_PORT": str(metrics_port),
            "CONVERTD_REDIS_URL": redis.url,
            "CONVERTD_SANDBOX": "off",
            "CONVERTD_SMTP_URL": f"smtp://127.0.0.1:{free_port()}",
            "CONVERTD_WORKERS": "1",
            "PYTHONPATH": os.pathsep.join(map(str, (_ROOT, _ROOT / "tests" / "misbehaving"))),
        }
        with serving(data, f"sqlite:///{data}/convertd.db", **settings) as (process, url):
            metrics = f"http://127.0.0.1:{metrics_port}/metrics"
            assert eventually(lambda: prometheus.query('up{job="convertd"} > 0') != [])
            (data / "blobs").rename(data / "gone")
            _load(url, key)
            redis.kill()
            plain.get(f"{url}/api/v1/formats")
            yield Watched(prometheus, process, plain.get(metrics).text)


def _load(url: str, key: str) -> None:
    """Work that is done, refused, lost and given up."""
    with plain.Client(base_url=f"{url}/api/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:

        def convert(content: bytes) -> int:
            answer = client.post("/convert", files={"file": content}, data={"output_format": "webp"})
            return answer.status_code

        client.post("/register", json={"email": "you@example.com", "name": "You"}).raise_for_status()
        assert [convert(sample("png")), convert(sample("png")[:100])] == [200, 500]
        assert {convert(b"TROUBLE crash") for _ in range(4)} == {500}
        assert 429 in asyncio.run(_crowd(url, key))  # meanwhile Prometheus sees the first: only what rises has a rate
        assert {convert(b"TROUBLE crash") for _ in range(4)} == {500}


async def _crowd(url: str, key: str) -> list[int]:
    """What those are answered who have an answer at once, of more than may wait for the only worker."""
    headers = {"Authorization": f"Bearer {key}"}
    async with plain.AsyncClient(base_url=f"{url}/api/v1", headers=headers, timeout=_PATIENCE) as client:

        async def convert() -> int:
            form: dict[str, Any] = {"files": {"file": b"TROUBLE hang"}, "data": {"output_format": "webp"}}
            try:
                return (await client.post("/convert", **form)).status_code
            except httpx.ReadTimeout:
                return 0

        return await asyncio.gather(*(convert() for _ in range(_CROWD)))


def test_what_is_exposed_is_what_prometheus_expects(watched: Watched) -> None:
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=watched.exposition, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")


def test_every_metric_that_is_named_is_exposed(watched: Watched) -> None:
    named = {
        name
        for text in ((_CONFIG / "alerts.yml").read_text(), json.dumps(_DASHBOARD))
        for name in re.findall(r"\b(?:convertd|process)_\w+", text)
    }
    exposed = set(re.findall(r"^(\w+)[{ ]", watched.exposition, re.MULTILINE))

    assert named - exposed == set()


def test_every_expression_of_the_dashboard_has_data(watched: Watched) -> None:
    expressions = {
        target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*")
        for panel in _PANELS
        for target in panel["targets"]
    }

    assert [asked for asked in expressions if not watched.prometheus.query(asked)] == []


def test_every_alert_compares_data_with_a_number(watched: Watched) -> None:
    compared = {name: _COMPARISON.fullmatch(rule["query"]) for name, rule in watched.prometheus.rules().items()}

    assert [name for name, found in compared.items() if found is None] == []
    assert [name for name, found in compared.items() if found and not watched.prometheus.query(found["value"])] == []


def test_what_happened_is_seen_and_nothing_else(watched: Watched) -> None:
    assert eventually(lambda: watched.seen() >= _MADE, _SECONDS), _MADE - watched.seen()
    assert not watched.seen() & _SPARED


def test_it_is_seen_that_the_server_is_gone(watched: Watched) -> None:
    watched.process.kill()

    assert eventually(lambda: "ConvertdDown" in watched.seen())
