"""Foresees the result of a conversion from the header of its input."""

import warnings
from collections.abc import Iterable
from typing import Any

from engine import media, pipeline
from engine.conversions import Conversion, EncodedFile
from engine.media import RASTER, Images, Raster
from engine.options import NO_OPTIONS, OptionValues
from engine.outcome import Outcome
from engine.planner import Plan
from engine.step_errors import step_errors

_MAX_PIXELS = 25_000_000  # Larger images are neither decoded nor encoded to find out what is lost.


def dry_run(plan: Plan, inputs: Iterable[bytes], options: OptionValues = NO_OPTIONS) -> Outcome:
    """Returns the outcome of a run of the plan, as far as the header of its input shows it.

    Raises ConversionError only. Images are not encoded, and decoded only where a loss depends on their pixels.
    Documents and vectors are converted to find out what is lost. The outcome has no size.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pipeline.check_options(plan, options)
        (payload,), files = pipeline.open_inputs(plan, inputs, options, [])
        options = {**options, **files}
        _, payload = pipeline.decode(plan, payload, options, [], lambda _payloads: None)
        count = media.files_needed(payload, plan.target) if pipeline.PAGES in options else 1
        part = payload if count == 1 else next(media.split(payload))
        found = _dry_run_file(plan, part, options)
    width, height = found.size or (None, None)
    return Outcome(
        plan.target.name,
        processed_size=0,
        warnings=pipeline.warning_records(caught),
        container="zip" if count > 1 else None,
        file_count=count,
        width=width,
        height=height,
        pages=found.count * count,
    )


def _dry_run_file(plan: Plan, payload: Any, options: OptionValues) -> Images:
    """Issues the warnings of the encoder and the steps after it. Returns the images of their result."""
    encoder, *others = plan.steps[plan.encoder_position :]
    assert isinstance(encoder, Conversion)
    capabilities = encoder.capabilities_for(options)
    payload = media.drawn_for(payload, capabilities)
    is_needed = encoder.in_dry_run or bool(others)
    runs_encoder = is_needed and isinstance(payload, Raster) and (payload.peak_pixels or 0) <= _MAX_PIXELS
    if isinstance(payload, Raster) and capabilities is not None and not runs_encoder:
        with step_errors(encoder):
            payload.dry_run(capabilities, _MAX_PIXELS)
        holds_all = capabilities.pages or (payload.animated and capabilities.animation_modes)
        has_pixels = plan.reader is not None and plan.reader.target == RASTER
        size = capabilities.stored_size(payload.sizes[0]) if payload.sizes and has_pixels else None
        return Images(payload.count if holds_all else 1, size)
    before = media.images(payload)
    data = pipeline.content_of(pipeline.run_step(encoder, payload, options, []))
    file = pipeline.follow(others, EncodedFile(data), options, [])
    if plan.reader is None:
        return Images(before.count if before and plan.target.paged else 1)
    given = options if file.secrets is None else file.secrets
    secrets = {one.name: given[one.name] for one in plan.reader.options.values() if one.secret and one.name in given}
    return media.images(pipeline.run_step(plan.reader, file.data, secrets, [])) or Images(1)
