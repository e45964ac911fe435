"""Traces of requests and jobs by OpenTelemetry, which the standard environment variables turn on and configure.

They are recorded when they have ended, from what the server knows of them anyway. A thread sends the spans.
"""

import asyncio
import time
from collections.abc import Mapping
from importlib.metadata import version
from threading import Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.util.types import AttributeValue

from config.errors import PublicError
from web.api.errors import STATUS
from web.metrics.conversions import RequestContext

_CLOSE_TIMEOUT = 2.5  # seconds for the last spans, which a collector may not take
_SHOWN: Final = ("request_id", "input_format", "output_format", "engine", "warnings", "credits")


class Tracing:
    """Sends a span of each request and of each run of a job, with children for the stages of their conversions."""

    def __init__(self) -> None:
        default = Resource({SERVICE_NAME: "convertd", SERVICE_VERSION: version("convertd")})
        resource = default.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("convertd")

    def begin(
        self, context: RequestContext, headers: Mapping[str, str], *, method: str, route: str, seconds: float
    ) -> None:
        """Begins the span of a request that began `seconds` ago, so that a job can continue its trace."""
        context.span = self._start(f"{method} {route}", SpanKind.SERVER, headers, time.time() - seconds)
        inject(context.trace_headers, set_span_in_context(context.span))

    def record(
        self,
        context: RequestContext,
        error: PublicError | None,
        headers: Mapping[str, str],
        *,
        method: str,
        route: str,
        status: int,
        seconds: float,
    ) -> None:
        """Adds a request that has ended now and took `seconds`. Its span continues the trace of its `headers`."""
        begun = time.time() - seconds
        context.span = context.span or self._start(f"{method} {route}", SpanKind.SERVER, headers, begun)
        facts: dict[str, AttributeValue] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        _end(self._tracer, context, error, facts, failed=status >= 500)

    def record_job(self, context: RequestContext, error: PublicError | None, operation: str, seconds: float) -> None:
        """Adds a run of a job that has ended now and took `seconds`. Its span continues the trace of its request."""
        begun = time.time() - seconds
        context.span = self._start(f"job {operation}", SpanKind.CONSUMER, context.trace_headers, begun)
        _end(self._tracer, context, error, {}, failed=error is not None and STATUS[error.code] >= 500)

    def _start(self, name: str, kind: SpanKind, headers: Mapping[str, str], begun: float) -> Span:
        return self._tracer.start_span(name, context=extract(headers), kind=kind, start_time=_nanoseconds(begun))

    async def close(self) -> None:
        """Sends the waiting spans, for a short time."""
        closing = Thread(target=self._provider.shutdown, name="tracing", daemon=True)  # it may wait for 30 s
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_TIMEOUT)


def _end(
    tracer: Tracer,
    context: RequestContext,
    error: PublicError | None,
    facts: Mapping[str, AttributeValue],
    *,
    failed: bool,
) -> None:
    """Ends the span of a request with these facts, what is known of its conversions, and children for their stages."""
    span = context.span
    assert span is not None
    span.set_attributes(facts)
    span.set_attributes({f"convertd.{name}": value for name in _SHOWN if (value := getattr(context, name)) is not None})
    if error is not None:
        span.set_attribute("error.type", error.code)
    if failed:
        span.set_status(Status(StatusCode.ERROR))
    if span.is_recording():
        for stage in context.stages:
            begun = _nanoseconds(stage.ended - stage.seconds)
            tracer.start_span(stage.name, set_span_in_context(span), start_time=begun).end(_nanoseconds(stage.ended))
    span.end()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
