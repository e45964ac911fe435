"""A result is opened again before it counts, as others will open it, but no further than its headers."""

from __future__ import annotations

import warnings
from typing import Any

from engine.conversions import FidelityWarning
from engine.decode_limits import Size
from engine.errors import StepFailed
from engine.media import DOCUMENT, Raster
from engine.options import Options
from engine.pipeline import PipelineResult
from engine.planner import Plan
from engine.registry import Registry


def verify(registry: Registry, plan: Plan, result: PipelineResult, options: Options) -> None:
    """Raises StepFailed for a result that is cut, that its own format's reader cannot open or finds damaged, or
    that holds other pictures than the last step was given."""
    target = plan.target
    if registry.identify_content(result.data, f"result.{target.extensions[0]}") != target:
        raise StepFailed(f"The result is no {target}.")
    if target.is_complete and not target.is_complete(result.data):
        raise StepFailed(f"The result is no whole {target}.")
    if plan.reader is None:
        return
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore")
            warnings.filterwarnings("error", category=FidelityWarning)
            found = _pictures(plan.reader(result.data, options))
    except Exception as error:
        raise StepFailed(f"The result is no readable {target}.") from error
    written = _written(result.last, paged=target.paged) if result.pages is None else (result.pages, None)
    if found is None or written is None:
        return
    # Encoders of animations leave out a frame that shows what the one before it shows.
    merging = isinstance(result.last, Raster) and result.last.animated
    same_count = 1 <= found[0] <= written[0] if merging else found[0] == written[0]
    if not same_count or (found[1] and written[1] and found[1] != written[1]):
        raise StepFailed(f"The {target} does not hold what was written to it.")


def _pictures(payload: Any) -> tuple[int, Size | None] | None:
    """How many pictures or pages an opened file has, and the size of the first as its header tells it."""
    if isinstance(payload, Raster):
        return payload.count, payload.sizes[0] if payload.sizes else None
    return (payload.page_count, None) if DOCUMENT.holds(payload) else None


def _written(payload: Any, *, paged: bool) -> tuple[int, Size | None] | None:
    """The same of what an encoder took; None for bytes, of which only the reader knows."""
    if isinstance(payload, Raster):
        return (len(payload.decoded_sizes), payload.decoded_sizes[0]) if payload.decoded_sizes else None
    return (payload.page_count if paged else 1, None) if DOCUMENT.holds(payload) else None
