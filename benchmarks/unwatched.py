"""A service that is not watched, to know what watching it costs."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields

from prometheus_client import CollectorRegistry

from web.metrics import Metrics


@contextmanager
def unwatched(metrics: Metrics) -> Iterator[None]:
    """While this lasts, the metrics take note of nothing, and nothing is logged."""
    parts = [getattr(metrics, field.name) for field in fields(metrics)]
    before = logging.root.manager.disable
    logging.disable()
    try:
        with _deaf([part for part in parts if not isinstance(part, CollectorRegistry)]):
            yield
    finally:
        logging.disable(before)


@contextmanager
def _deaf(parts: list[object]) -> Iterator[None]:
    names = [(part, name) for part in parts for name in vars(type(part)) if not name.startswith("_")]
    for part, name in names:
        setattr(part, name, lambda *_args, **_told: nullcontext())
    try:
        yield
    finally:
        for part, name in names:
            delattr(part, name)
