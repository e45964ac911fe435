"""CPU time of converting a photo of 24 megapixels to a small picture, compared with converting it whole."""

from __future__ import annotations

from io import BytesIO
from statistics import median
from time import process_time

from PIL import Image

from benchmarks import samples
from benchmarks.report import Report, Row
from engine import OptionValues, pipeline
from engine.registry import Registry, load_registry

_SIZE, _WIDTH = (6000, 4000), 320  # pixels


def measure(rounds: int) -> Report:
    """Returns medians over the rounds, in milliseconds of CPU. Whole and small conversions alternate."""
    registry = load_registry()
    photo = samples.photo(_SIZE)
    rows: list[Row] = []
    for kind, progressive in (("baseline", False), ("progressive", True)):
        data = _encode(photo, progressive=progressive)
        for target in ("webp", "jpeg", "png"):
            times = [
                (_time(registry, data, target, {}), _time(registry, data, target, {"width": _WIDTH}))
                for _ in range(rounds)
            ]
            whole, small = (median(column) * 1000 for column in zip(*times, strict=True))
            rows.append((kind, target, whole, small, 100 * small / whole))
    return Report(
        f"JPEG of 24 megapixels to {_WIDTH} pixels, median of {rounds}",
        ("input", "output", "whole ms", "small ms", "share %"),
        tuple(rows),
    )


def _encode(photo: Image.Image, *, progressive: bool) -> bytes:
    file = BytesIO()
    photo.save(file, "JPEG", quality=90, progressive=progressive)
    return file.getvalue()


def _time(registry: Registry, data: bytes, target: str, options: OptionValues) -> float:
    plan = registry.plan([registry.formats["jpeg"]], target, options=options)
    started = process_time()
    pipeline.run(plan, [data], options)
    return process_time() - started
