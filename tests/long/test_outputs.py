"""Several results of one upload on photos and the corpus: CPU time, and the format that `auto` chooses."""

import os
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import Any

import pytest

from engine import ConversionError, pipeline
from engine.executor import TaskOutput, worker
from engine.executor.several import plan_outputs
from engine.media import ImageSource, Raster
from engine.registry import load_registry
from tests.support.samples.corpus import Entry, load_corpus

pytestmark = [pytest.mark.long, pytest.mark.skipif(not load_corpus(), reason="there is no corpus")]

_REGISTRY = load_registry()
_SIZES = (320, 640, 960, 1280, 1600, 1920)
_FORMATS = ("avif", "webp", "jpeg", "png")


def _run(path: Path, outputs: Sequence[TaskOutput], folder: Path) -> Any:
    files = [os.open(path, os.O_RDONLY), os.open(folder / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)]
    planned = plan_outputs(_REGISTRY, [_REGISTRY.identify(path).name], outputs)
    return worker.convert_outputs(_REGISTRY, planned, files, lambda _memory: None, "photo").outcome


@pytest.mark.parametrize("target", ["webp", "jpeg", "avif"])
def test_six_sizes_take_the_time_of_one_decode_and_the_encodes(target: str, tmp_path: Path) -> None:
    path = next(
        one.path for one in load_corpus() if one.sound and one.format == "JPEG" and (one.size or (0,))[0] >= 4000
    )
    outputs = [TaskOutput((target,), {"width": width}, "") for width in _SIZES]
    _run(path, outputs, tmp_path)  # libraries initialize themselves

    def together() -> float:
        started = process_time()
        _run(path, outputs, tmp_path)
        return process_time() - started

    def apart() -> float:
        started = process_time()
        plan = _REGISTRY.plan([_REGISTRY.identify(path)], target, options={"width": 1})
        raster = pipeline.open_file(plan.conversions[:1], path.read_bytes())
        frames, _ = raster.read_ahead()
        for width in _SIZES:
            payload: Any = Raster(frames, sizes=raster.sizes, source=ImageSource(lossy=True))
            for step in plan.steps[1:]:
                payload = pipeline.run_step(step, payload, {"width": width}, [])
        return process_time() - started

    ratio = min(together() for _ in range(3)) / min(apart() for _ in range(3))
    print(f"{target}: {ratio:.2f} of the CPU time of one decode and {len(_SIZES)} encodes")
    assert ratio <= 1.35


def _kept(entry: Entry, target: str, folder: Path) -> tuple[int, int] | None:
    """How many of transparency, animation and depth a result lacks, and its size; None if the conversion fails."""
    lost = {"alpha_flattened", "alpha_thresholded", "frames_dropped", "timing_dropped", "depth_reduced"}
    try:
        outcome = _run(entry.path, [TaskOutput((target,), {})], folder)
    except ConversionError:
        return None
    codes = {warning.code for warning in outcome.warnings}
    return len(lost & codes), outcome.processed_size


def test_auto_chooses_the_smallest_file_that_keeps_most(tmp_path: Path) -> None:
    images = [one for one in load_corpus() if one.sound and _is_image(one)][:40]
    assert len(images) == 40
    wrong, chosen = [], list[str]()
    for entry in images:
        alone = {name: found for name in _FORMATS if (found := _kept(entry, name, tmp_path)) is not None}
        outcome = _run(entry.path, [TaskOutput(_FORMATS, {})], tmp_path)
        chosen.append(outcome.output_format)
        if alone[outcome.output_format] != min(alone.values()) or outcome.processed_size != min(alone.values())[1]:
            wrong.append((entry.name, outcome.output_format, alone))
    print({name: chosen.count(name) for name in _FORMATS})
    assert wrong == []


def _is_image(entry: Entry) -> bool:
    try:
        source = _REGISTRY.identify(entry.path)
    except ConversionError:
        return False
    return (
        source.media_type.startswith("image/") and source.name not in ("svg", "eps") and (entry.size or (0,))[0] < 1500
    )
