"""Traces of requests by OpenTelemetry, which the standard environment variables turn on and configure.

A request is recorded when it has ended, from what the server knows of it anyway. A thread sends the spans.
"""

import asyncio
import time
from collections.abc import Mapping
from importlib.metadata import version
from threading import Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.util.types import AttributeValue

from config.errors import PublicError
from web.metrics.conversions import RequestContext

_CLOSE_TIMEOUT = 2.5  # seconds for the last spans, which a collector may not take
_SHOWN: Final = ("request_id", "input_format", "output_format", "engine", "warnings", "credits")


class Tracing:
    """Sends a span of each request, with children for the stages of its conversions."""

    def __init__(self) -> None:
        default = Resource({SERVICE_NAME: "convertd", SERVICE_VERSION: version("convertd")})
        resource = default.merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("convertd")

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
        ended = time.time()
        facts: dict[str, AttributeValue] = {
            "http.request.method": method,
            "http.route": route,
            "http.response.status_code": status,
        }
        facts |= {f"convertd.{name}": value for name in _SHOWN if (value := getattr(context, name)) is not None}
        facts |= {"error.type": error.code} if error is not None else {}
        span = self._tracer.start_span(
            f"{method} {route}",
            context=extract(headers),
            kind=SpanKind.SERVER,
            attributes=facts,
            start_time=_nanoseconds(ended - seconds),
        )
        if span.is_recording():
            parent = set_span_in_context(span)
            for stage in context.stages:
                begin = _nanoseconds(stage.ended - stage.seconds)
                child = self._tracer.start_span(stage.name, context=parent, start_time=begin)
                child.end(_nanoseconds(stage.ended))
            if status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(ended))

    async def close(self) -> None:
        """Sends the waiting spans, for a short time."""
        closing = Thread(target=self._provider.shutdown, name="tracing", daemon=True)  # it may wait for 30 s
        closing.start()
        await asyncio.to_thread(closing.join, _CLOSE_TIMEOUT)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
