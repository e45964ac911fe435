"""Sizes of drawings and screens as PNG, and the CPU time for them, next to other encoders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from shutil import copyfile
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from types import MappingProxyType
from typing import Any

from benchmarks.encoders import Encoder
from benchmarks.report import Report, Row
from engine import pipeline
from engine.registry import Registry

_COLUMNS = ("encoder", "bytes: convertd / encoder", "lowest", "highest", "CPU ms", "CPU ms: convertd", "CPU ratio")
_OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType({"pngquant": {"colors": 256}})
"""The options of convertd by the encoder to which it is compared."""


def compare(registry: Registry, files: Sequence[Path], encoders: Sequence[Encoder]) -> Report:
    """Returns a row per encoder: medians over the PNG files."""
    with TemporaryDirectory() as folder:
        sources = [_decode(registry, file, Path(folder, f"{number}.png")) for number, file in enumerate(files)]
        rows = tuple(_row(registry, sources, encoder) for encoder in encoders)
    return Report(f"PNG, medians over {len(files)}", _COLUMNS, rows)


def _decode(registry: Registry, file: Path, source: Path) -> tuple[Path, bytes]:
    """A copy of the file for other encoders, and its pixels as QOI, which has transparency."""
    copyfile(file, source)
    plan = registry.plan([registry.formats["png"]], "qoi")
    return source, pipeline.run(plan, [file.read_bytes()]).data


def _row(registry: Registry, sources: Sequence[tuple[Path, bytes]], encoder: Encoder) -> Row:
    plan = registry.plan([registry.formats["qoi"]], "png")
    sizes: list[float] = []
    times: list[tuple[float, float]] = []
    for source, pixels in sources:
        file, cpu = encoder.encode(source)
        before = process_time()
        own = pipeline.run(plan, [pixels], _OPTIONS.get(encoder.name, {})).data
        times.append((cpu, process_time() - before))
        sizes.append(len(own) / file.stat().st_size)
    theirs, ours = (1000 * median(column) for column in zip(*times, strict=True))
    ratio = median(own / other if other else nan for other, own in times)
    return encoder.name, median(sizes), min(sizes), max(sizes), theirs, ours, ratio
