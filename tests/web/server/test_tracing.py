"""Traces, as a collector of OpenTelemetry receives them."""

import gzip
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.in_process import Servers, eventually
from tests.support.servers.receiver import Received, Receiver, Send, reply

_TRACE, _PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
_STAGES = {"upload", "queue", "decode", "convert", "encode", "check", "store"}


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """A collector that the variables name. It does not listen before its block."""
    found = Receiver(reply(200))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=tests")
    return found


def _requests(collector: Receiver) -> list[ExportTraceServiceRequest]:
    bodies = [
        gzip.decompress(one.body) if one.headers.get("content-encoding") == "gzip" else one.body
        for one in collector.requests
    ]
    return [ExportTraceServiceRequest.FromString(body) for body in bodies]


def _spans(collector: Receiver) -> list[Span]:
    """The spans received so far."""
    return [
        span
        for request in _requests(collector)
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def _facts(span: Span) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_a_request_continues_its_trace(servers: Servers, collector: Receiver, tmp_path: Path) -> None:
    with collector, servers.running(tmp_path) as server:
        done = server.convert(image(), headers={"traceparent": f"00-{_TRACE}-{_PARENT}-01"})
        refused = http.get(f"{server.api}/account")
    spans = {span.name: span for span in _spans(collector)}
    whole, failed = spans["POST /api/v1/convert"], spans["GET /api/v1/account"]
    stages = [span for span in _spans(collector) if span.parent_span_id == whole.span_id]

    assert {one.path for one in collector.requests} == {"/v1/traces"}
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (_TRACE, _PARENT)
    assert _facts(whole) == {
        "http.request.method": "POST",
        "http.route": "/api/v1/convert",
        "http.response.status_code": 200,
        "convertd.request_id": done.headers["X-Request-Id"],
        "convertd.input_format": "jpeg",
        "convertd.output_format": "png",
        "convertd.engine": "in_process",
        "convertd.credits": 1,
    }
    assert {span.name for span in stages} == _STAGES
    assert {span.trace_id.hex() for span in stages} == {_TRACE}
    ordered = sorted(stages, key=lambda span: span.start_time_unix_nano)
    assert [span.name for span in ordered if span.name in ("decode", "encode", "check")] == [
        "decode",
        "encode",
        "check",
    ]
    assert all(span.end_time_unix_nano <= whole.end_time_unix_nano for span in stages)
    assert failed.trace_id.hex() != _TRACE
    assert _facts(failed)["error.type"] == "invalid_api_key"
    assert _facts(failed)["convertd.request_id"] == refused.headers["X-Request-Id"]
    assert failed.status.code == Status.STATUS_CODE_UNSET
    (resource, *_) = _requests(collector)[0].resource_spans
    named = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (named["service.name"], named["deployment.environment"]) == ("convertd", "tests")


def test_a_job_continues_the_trace_of_its_request(servers: Servers, collector: Receiver, tmp_path: Path) -> None:
    with collector, servers.running(tmp_path) as server:
        wait = {"Prefer": "respond-async, wait=30"}
        done = server.convert(image(), headers={**wait, "traceparent": f"00-{_TRACE}-{_PARENT}-01"})
        failed = server.convert(image()[:300], headers=wait)
    spans = _spans(collector)
    whole, refused = (span for span in spans if span.name == "POST /api/v1/convert")
    job, broken = (span for span in spans if span.name == "job convert")
    stages = {span.name for span in spans if span.parent_span_id == job.span_id}

    assert (done.json()["data"]["status"], failed.json()["data"]["status"]) == ("completed", "failed")
    assert (whole.trace_id.hex(), whole.parent_span_id.hex()) == (_TRACE, _PARENT)
    assert (job.trace_id.hex(), job.parent_span_id) == (_TRACE, whole.span_id)
    assert (broken.trace_id, broken.parent_span_id) == (refused.trace_id, refused.span_id)
    assert refused.trace_id.hex() != _TRACE
    assert job.kind == Span.SPAN_KIND_CONSUMER
    assert stages == _STAGES - {"upload"}
    assert _facts(job)["convertd.request_id"] == done.headers["X-Request-Id"]
    assert (_facts(job)["convertd.output_format"], _facts(job)["convertd.credits"]) == ("png", 1)
    assert (_facts(broken)["error.type"], broken.status.code) == ("processing_failed", Status.STATUS_CODE_ERROR)
    assert "error.type" not in _facts(job)


def test_the_variables_decide(
    servers: Servers, collector: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "pictures")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    with collector, servers.running(tmp_path) as server:
        http.get(f"{server.url}/version")
        http.get(f"{server.url}/livez", headers={"traceparent": f"00-{_TRACE}-{_PARENT}-01"})

    assert [span.name for span in _spans(collector)] == ["GET /livez"]
    assert b"pictures" in collector.requests[0].body or b"pictures" in gzip.decompress(collector.requests[0].body)


def test_a_collector_that_does_not_answer_delays_no_request(
    servers: Servers, collector: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = Event()

    def wait(request: Received, send: Send) -> None:
        done.wait()
        reply(200)(request, send)

    collector.respond = wait
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "300")  # longer than a client of the tests waits
    with collector, servers.running(tmp_path) as server:
        try:
            assert server.convert(image()).status_code == 200
            assert eventually(lambda: bool(collector.requests))
            assert server.convert(image()).status_code == 200
        finally:
            done.set()


_PROGRAM = """
import logging, os, sys
from web.services.operation.request_tracking import RequestLog

logging.basicConfig(format="%(message)s")
collector = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:1"}
for variables in ({}, collector | {"OTEL_SDK_DISABLED": "true"}, collector | {"OTEL_TRACES_EXPORTER": "none"}):
    os.environ.update(variables)
    RequestLog(None, None)
    for name in variables:
        del os.environ[name]
print(*[name for name in sys.modules if name.startswith("opentelemetry.sdk")])
sys.modules["opentelemetry.exporter"] = None
os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = "http://localhost:1"
RequestLog(None, None)
"""


def test_nothing_is_imported_without_need_and_missing_packages_are_told() -> None:
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, env={}, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""
    assert done.stderr.splitlines() == [
        "no traces are sent: a collector is set without its packages; run: sh config/setup.sh otel"
    ]
