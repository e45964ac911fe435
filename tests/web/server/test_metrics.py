"""The Prometheus metrics: every event is counted, and no label value comes from a client."""

import re
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse

from benchmarks.processes import RedisServer, free_port
from engine.errors import OutOfMemory, TimedOut, WorkerCrashed
from engine.registry import load_registry
from storage.ids import new_id
from tests.support.executors.fake import EndlessExecutor, FailingExecutor
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.stripe_server import StripeServer, event, send
from web.api.schemas.service import Cluster
from web.metrics import Metrics
from web.metrics.service import ClusterWorkerMetrics

_README = (Path(__file__).parents[3] / "config" / "README.md").read_text()
CANARY = "canary"


class Scraped:
    """A server and its metrics endpoint."""

    def __init__(self, server: Running, port: int, client: httpx.Client) -> None:
        self.server = server
        self.url = f"http://127.0.0.1:{port}/metrics"
        self._client = client

    def text(self) -> str:
        return self._client.get(self.url).text

    def value(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels."""
        samples = [sample for family in parse(self.text()) for sample in family.samples]
        return sum(s.value for s in samples if s.name == name and labels.items() <= s.labels.items())

    @contextmanager
    def rising(self, name: str, by: float = 1, **labels: str) -> Iterator[None]:
        """Asserts that the block increases the value by exactly `by`."""
        before = self.value(name, **labels)
        yield
        assert eventually(lambda: self.value(name, **labels) - before >= by), name
        assert self.value(name, **labels) - before == by, name


@contextmanager
def scraping(servers: Servers, folder: Path, **settings: Any) -> Iterator[Scraped]:
    port = free_port()
    settings = {"simulated_checkout": "stripe_secret_key" not in settings, **settings}
    with servers.running(folder, metrics_port=port, **settings) as server, http.Client() as client:
        yield Scraped(server, port, client)


@pytest.fixture(scope="module")
def scraped(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    with scraping(servers, tmp_path_factory.mktemp("metrics"), rate_limit_paid=10_000) as found:
        yield found


def test_requests(scraped: Scraped) -> None:
    route = "/api/v1/files/{}"
    with (
        scraped.rising("convertd_http_requests_total", method="GET", route=route, status="404"),
        scraped.rising("convertd_http_request_duration_seconds_count", route=route),
    ):
        scraped.server.request("GET", "/files/file_0000000000000000000000")


def test_a_conversion(scraped: Scraped) -> None:
    stages = ("upload", "queue", "decode", "encode", "check", "store")
    with ExitStack() as stack:
        pngs: dict[str, Any] = {"input_format": "png", "output_format": "webp", "outcome": "success"}
        pair = scraped.rising("convertd_conversions_total", engine="in_process", **pngs)
        stack.enter_context(pair)
        stack.enter_context(scraped.rising("convertd_credits_charged_total", operation="convert"))
        stack.enter_context(scraped.rising("convertd_worker_peak_rss_bytes_count"))
        stack.enter_context(scraped.rising("convertd_queue_wait_seconds_count"))
        stack.enter_context(scraped.rising("convertd_input_bytes_sum", len(sample("png"))))
        for stage in stages:
            stack.enter_context(scraped.rising("convertd_conversion_stage_seconds_count", stage=stage))
        assert scraped.server.convert(sample("png"), "webp").status_code == 200
    assert scraped.value("convertd_worker_peak_rss_bytes_sum") > 1 << 20


def test_a_tool(scraped: Scraped) -> None:
    files = [("files[]", ("a.pdf", sample("pdf"))), ("files[]", ("b.pdf", sample("pdf")))]
    with (
        scraped.rising("convertd_conversion_stage_seconds_count", stage="tool"),
        scraped.rising("convertd_credits_charged_total", operation="pdf_merge"),
    ):
        assert scraped.server.request("POST", "/pdf/merge", files=files).status_code == 200


def test_a_conversion_with_an_external_program(scraped: Scraped) -> None:
    with scraped.rising("convertd_conversions_total", engine="gs", outcome="success"):
        assert scraped.server.convert(sample("eps"), "png").status_code == 200


@pytest.mark.parametrize(
    ("content", "source", "code", "reason"),
    [
        (b"no image at all", "other", "invalid_file_type", "unrecognized"),
        (sample("png")[:100], "png", "processing_failed", "corrupt_input"),
    ],
    ids=["no picture", "half a picture"],
)
def test_an_invalid_file(scraped: Scraped, content: bytes, source: str, code: str, reason: str) -> None:
    with (
        scraped.rising("convertd_conversions_total", input_format=source, outcome="rejected"),
        scraped.rising("convertd_conversion_errors_total", code=code, reason=reason),
        scraped.rising("convertd_credits_charged_total", by=0),
    ):
        scraped.server.convert(content)


@pytest.mark.parametrize(("size", "status"), [(None, 200), (60, 500)])
def test_a_replay_is_not_counted_as_a_conversion(scraped: Scraped, size: int | None, status: int) -> None:
    headers = {"Idempotency-Key": f"replay {status}"}
    content = sample("png")[:size]
    assert scraped.server.convert(content, "gif", headers=headers).status_code == status
    with (
        scraped.rising("convertd_idempotent_replays_total"),
        scraped.rising("convertd_conversions_total", by=0),
        scraped.rising("convertd_conversion_errors_total", by=0),
    ):
        response = scraped.server.convert(content, "gif", headers=headers)
    assert (response.status_code, response.headers["Idempotency-Replayed"]) == (status, "true")


def test_too_many_requests(servers: Servers, data_dir: Path) -> None:
    with scraping(servers, data_dir, rate_limit_anonymous=1) as found, http.Client() as client:
        for _ in range(3):
            client.get(f"{found.server.api}/formats")
        for _ in range(31):
            client.get(f"{found.server.api}/account", headers={"Authorization": "Bearer x"})
        assert found.value("convertd_rate_limited_total", scope="address") == 2
        assert found.value("convertd_rate_limited_total", scope="failed_authentications") == 1


def test_registration_and_email(scraped: Scraped) -> None:
    outbox = scraped.server.data_dir / "outbox"
    with scraped.rising("convertd_mail_total", outcome="sent"):
        body = {"email": f"{CANARY}@example.com", "name": CANARY}
        assert http.post(f"{scraped.server.api}/register", json=body).status_code == 200
    token = re.search(r"token=([0-9a-f]{64})", next(outbox.glob("*.eml")).read_text())
    assert token is not None
    with scraped.rising("convertd_credits_granted_total", 50, source="registration"):
        assert http.get(f"{scraped.server.api}/verify?token={token[1]}").status_code == 200


def test_a_purchase(scraped: Scraped) -> None:
    session = scraped.server.request("POST", "/credits/purchase", json={"pack": "pro"}).json()["data"]["session_id"]
    with scraped.rising("convertd_credits_granted_total", 2000, source="purchase"):
        code = {"code": scraped.server.checkout_code}
        assert http.post(f"{scraped.server.url}/checkout/{session}/pay", data=code).status_code < 400


def test_payments(servers: Servers, data_dir: Path) -> None:
    def counted(outcome: str, body: bytes, header: str | None = None) -> None:
        with shop.rising("convertd_payments_total", outcome=outcome), shop.rising("convertd_payments_total"):
            send(shop.server.api, body, header)

    with StripeServer() as stripe, scraping(servers, data_dir, **stripe.settings) as shop:
        with shop.rising("convertd_payments_total", outcome="opened"):
            opened = shop.server.request("POST", "/credits/purchase", json={"pack": "pro"}).json()["data"]
        stripe.trouble = [400]
        with shop.rising("convertd_payments_total", outcome="unavailable"):
            shop.server.request("POST", "/credits/purchase", json={"pack": "pro"})
        paid = stripe.paid(opened["session_id"])
        completed = partial(event, "checkout.session.completed")
        counted("mismatch", completed({**paid, "amount_total": 1}))
        counted("credited", completed(paid))
        counted("unchanged", completed(paid))
        counted("wrong_mode", completed(paid, livemode=True))
        counted("unknown_purchase", completed({**paid, "id": "cs_of_another_shop", "client_reference_id": "order-1"}))
        counted("mismatch", completed({**paid, "id": "cs_lost", "client_reference_id": new_id("pur")}))
        counted("ignored", event("customer.created", {"id": "cus_1"}))
        counted("malformed", b"[]")
        counted("invalid_signature", completed(paid), "t=1,v1=00")
        with closing(sqlite3.connect(data_dir / "convertd.db")) as database:
            database.execute("ALTER TABLE purchase RENAME TO lost")
        counted("failed", completed(paid))


def test_errors(servers: Servers, data_dir: Path) -> None:
    """A conversion that fails before it is counted as one is an error of its route."""
    route = "/api/v1/convert"
    with scraping(servers, data_dir) as found:
        with found.rising("convertd_http_errors_total", route=route, code="processing_failed"):
            found.server.convert(sample("png")[:100])
        unknown = {"Authorization": f"Bearer {found.server.account()}"}  # to the cache of accounts
        with closing(sqlite3.connect(data_dir / "convertd.db")) as database:
            database.execute("ALTER TABLE api_key RENAME TO lost")
        with (
            found.rising("convertd_http_errors_total", route=route, code="server_error"),
            found.rising("convertd_conversions_total", 0),
        ):
            assert found.server.convert(sample("png"), headers=unknown).status_code == 500


def test_totals(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        server.upload(sample("png"))
        made = server.convert(sample("png"), "webp", headers={"Accept": "application/json"}).json()["data"]
    with scraping(servers, data_dir) as found:  # the first update runs at once
        assert eventually(lambda: found.value("convertd_stock_updated_timestamp_seconds") > 0)
        assert found.value("convertd_accounts", tier="paid") >= 1
        assert found.value("convertd_files_stored", state="pending") == 1
        assert found.value("convertd_files_stored", state="processed") == 1
        assert found.value("convertd_storage_bytes") == len(sample("png")) + made["processed_size"]
        assert found.value("convertd_disk_free_bytes") > 0
        assert found.value("convertd_credits_balance") >= 1_000_000


def test_the_installation(scraped: Scraped) -> None:
    plugins = load_registry().plugins
    assert scraped.value("convertd_build_info") == 1
    assert scraped.value("convertd_plugin_up") == sum(plugin.error is None for plugin in plugins)
    assert scraped.value("convertd_workers") == 2
    assert scraped.value("convertd_redis_breaker_open") == 0
    assert scraped.value("process_start_time_seconds") > 0


def test_both_exposition_formats(scraped: Scraped) -> None:
    usual = http.get(scraped.url)
    assert usual.headers["Content-Type"].startswith("text/plain; version=")
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    modern = http.get(scraped.url, headers=accept)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    assert {f.name for f in parse_open_metrics(modern.text)} >= {"convertd_conversions", "convertd_build_info"}
    assert http.get(scraped.url.removesuffix("metrics")).status_code == 404
    assert http.get(f"{scraped.server.url}/metrics").status_code == 404


def test_no_text_of_clients_is_exposed(scraped: Scraped) -> None:
    server = scraped.server
    held = {"Authorization": f"Bearer cvd_live_{CANARY}"}
    http.get(f"{server.url}/{CANARY}?{CANARY}={CANARY}", headers={"X-Request-Id": CANARY, "User-Agent": CANARY})
    http.request("CANARY", f"{server.api}/account", headers=held)
    server.convert(sample("png"), CANARY, name=f"{CANARY}.{CANARY}", password=CANARY)
    server.convert(CANARY.encode(), "png", name=f"{CANARY}.png", headers={"Idempotency-Key": CANARY})
    server.request("POST", "/batch", json={"output_format": CANARY})
    server.request("GET", f"/files/{CANARY}")
    assert server.key not in scraped.text()
    assert CANARY not in scraped.text().lower()


def test_requests_with_new_values_add_no_series(scraped: Scraped) -> None:
    url, api, content = scraped.server.url, scraped.server.api, sample("png")
    with http.Client(headers=scraped.server.auth) as client:

        def send(number: int) -> None:
            client.get(f"{url}/path-{number}")
            form = {"output_format": f"format{number}"}
            assert client.post(f"{api}/convert", data=form, files={"file": ("a.png", content)}).status_code == 400

        send(0)
        before = scraped.text().count("\n")
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(send, range(1, 51)))
    assert scraped.value("convertd_http_requests_total", route="other") >= 51
    assert scraped.text().count("\n") == before


def test_a_metrics_port_in_use(servers: Servers, scraped: Scraped, tmp_path: Path) -> None:
    port = int(scraped.url.split(":")[2].split("/")[0])
    with servers.running(tmp_path / "data", metrics_port=port) as server:
        assert http.get(f"{server.url}/healthz").status_code == 200
    assert scraped.value("convertd_build_info") == 1


def test_the_readme_lists_all_metrics(scraped: Scraped) -> None:
    rows = re.findall(r"^\| `(convertd_\w+)` \| (.*?) ?\| ", _README, re.MULTILINE)
    documented = {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    scraped.server.convert(sample("png"), "jpeg")
    scraped.server.convert(b"no image at all")
    alone = Metrics([], cluster=True)
    alone.installation.set_sandbox_layers({"landlock": True})  # only set by `serve`
    assert alone.cluster is not None
    alone.cluster.update(Cluster(workers={"1": 1}))
    ClusterWorkerMetrics(worker := CollectorRegistry())
    found: dict[str, set[str]] = {}
    for family in (*alone.registry.collect(), *worker.collect(), *parse(scraped.text())):
        suffix = {"counter": "_total"}.get(family.type, "")
        name = family.name.removesuffix(suffix) + suffix
        found.setdefault(name, set()).update(*(set(seen.labels) - {"le"} for seen in family.samples))
    assert documented == {name: labels for name, labels in found.items() if name.startswith("convertd_")}


def test_the_metrics_of_a_worker_of_a_cluster() -> None:
    ClusterWorkerMetrics(worker := CollectorRegistry())
    installation = {"convertd_build_info", "convertd_plugin_up", "convertd_sandbox_layer", "convertd_ready"}
    jobs = {"convertd_cluster_worker_running", "convertd_cluster_worker_jobs"}
    assert {family.name for family in worker.collect()} == installation | jobs


def test_the_queue_and_disconnecting_clients(servers: Servers, data_dir: Path) -> None:
    form = httpx.Request("POST", "http://here", data={"output_format": "webp"}, files={"file": sample("png")})
    head = f"Content-Type: {form.headers['Content-Type']}\r\nContent-Length: {form.headers['Content-Length']}\r\n\r\n"
    with scraping(servers, data_dir, executor=EndlessExecutor(), workers=1) as found:

        def equals(name: str, value: float) -> bool:
            return found.value(name) == value

        first, second = found.server.connect(), found.server.connect()
        for connection, arrived in ((first, "convertd_workers_busy"), (second, "convertd_queue_depth")):
            connection.sendall(found.server.posting.encode() + head.encode() + form.read())
            assert eventually(partial(equals, arrived, 1))  # or the second might overtake the first
        assert found.value("convertd_http_requests_in_progress") == 2
        assert (found.value("convertd_workers_busy"), found.value("convertd_queue_oldest_seconds") > 0) == (1, True)
        cancelled = partial(found.rising, "convertd_conversions_total", outcome="cancelled")
        with found.rising("convertd_worker_restarts_total", cause="cancelled"), cancelled():
            first.close()
        assert found.value("convertd_queue_depth") == 0
        with cancelled():
            second.close()


def test_jobs_that_end_early(servers: Servers, data_dir: Path) -> None:
    errors = {"timeout": TimedOut("Late."), "oom": OutOfMemory("Killed."), "crash": WorkerCrashed("Crashed.")}
    with scraping(servers, data_dir, executor=FailingExecutor(*errors.values())) as found:
        for cause in errors:
            with (
                found.rising("convertd_worker_restarts_total", cause=cause),
                found.rising("convertd_conversions_total", outcome="failed"),
            ):
                found.server.convert(sample("png"))


def test_redis(servers: Servers, data_dir: Path, tmp_path: Path) -> None:
    with RedisServer(tmp_path) as redis, scraping(servers, data_dir, redis_url=redis.url) as found:
        http.get(f"{found.server.api}/formats")
        assert found.value("convertd_redis_breaker_open") == 0
        redis.kill()
        http.get(f"{found.server.api}/formats")
        assert found.value("convertd_redis_breaker_open") == 1


def test_metrics_are_not_for_web_pages(scraped: Scraped) -> None:
    found = {
        host: http.get(scraped.url, headers={"Host": host}).status_code for host in ("evil.example", "localhost:9464")
    }
    assert found == {"evil.example": 403, "localhost:9464": 200}


def test_metrics_are_served_at_the_address_of_the_settings(servers: Servers, data_dir: Path) -> None:
    port = free_port()
    with servers.running(data_dir, metrics_port=port, metrics_address="127.0.0.2"):
        assert "convertd_ready" in http.get(f"http://127.0.0.2:{port}/metrics").text
        with pytest.raises(httpx.ConnectError):
            http.get(f"http://127.0.0.1:{port}/metrics")
