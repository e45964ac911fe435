"""Conversions by the executor, compared with the call of the codec that they replace, in this process."""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from io import BytesIO
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import pillow_heif
import rawpy
import typst
from PIL import Image
from resvg import render, usvg

from benchmarks import workloads
from benchmarks.measure import (
    Run,
    Variant,
    cpu_ms,
    cpu_ratio,
    interleaved,
    p50_ms,
    repeat,
    run_job,
    spread,
    throughput_ratio,
)
from benchmarks.report import Report, Row
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.planner import Plan
from engine.registry import load_registry

Codec = Callable[..., object]

_COLUMNS = ("input", "output", "codec ms", "convertd ms", "ratio", "spread %", "codec CPU ms", "CPU ms", "CPU ratio")
_RESOLUTION = 150  # dpi


def _pillow(encoder: str, **parameters: object) -> Codec:
    """Decodes and encodes with Pillow."""
    return lambda data, **options: Image.open(BytesIO(data)).save(BytesIO(), encoder, **parameters, **options)


def _heic_to_jpeg(data: bytes, quality: int) -> None:
    pillow_heif.open_heif(BytesIO(data)).to_pillow().save(BytesIO(), "JPEG", quality=quality)


def _jpeg_to_heic(data: bytes, quality: int) -> None:
    pillow_heif.from_pillow(Image.open(BytesIO(data))).save(BytesIO(), quality=quality)


def _raw_to_jpeg(data: bytes, quality: int) -> None:
    with rawpy.imread(BytesIO(data)) as raw:
        Image.fromarray(raw.postprocess(use_camera_wb=True)).save(BytesIO(), "JPEG", quality=quality)


def _pdf_to_png(data: bytes) -> None:
    with pymupdf.open("pdf", data) as document:
        document[0].get_pixmap(dpi=_RESOLUTION).tobytes("png")


def _resvg(data: bytes) -> None:
    render(usvg.Tree.from_str(data.decode(), usvg.Options.default()), (1, 0, 0, 0, 1, 0))


def _typst(data: bytes) -> None:
    page = b"#set page(width: auto, height: auto, margin: 0pt)\n#image(bytes(sys.inputs.svg))"
    typst.compile(page, format="pdf", sys_inputs={"svg": data.decode()})


_TO_JPEG = _pillow("JPEG")
CODECS: Mapping[tuple[str, str], Codec] = MappingProxyType(
    {
        ("jpeg", "webp"): _pillow("WEBP"),
        ("jpeg", "jpeg"): _TO_JPEG,
        ("jpeg", "avif"): _pillow("AVIF"),
        ("jpeg", "heic"): _jpeg_to_heic,
        ("jpeg", "png"): _pillow("PNG"),
        ("jpeg", "tiff"): _pillow("TIFF", compression="tiff_lzw"),
        ("jpeg", "gif"): _pillow("GIF"),
        ("png", "webp"): _pillow("WEBP"),
        **{(name, "jpeg"): _TO_JPEG for name in ("png", "webp", "avif", "tiff", "bmp", "psd")},
        ("heic", "jpeg"): _heic_to_jpeg,
        ("dng", "jpeg"): _raw_to_jpeg,
        ("svg", "png"): _resvg,
        ("svg", "pdf"): _typst,
        ("pdf", "png"): _pdf_to_png,
    }
)
"""The usual call for a conversion, by input and output format. Calls for lossy formats take a `quality`."""


def measure(rounds: int, seconds: float, *, every: bool) -> list[Report]:
    """Returns the times of the pairs in CODECS, or of `every` pair, for runs of `seconds`."""
    registry = load_registry()
    inputs = workloads.inputs(registry)
    plans = {
        (plan.source.name, plan.target.name): plan
        for plan in registry.catalogue()
        if plan.source.name in inputs and (every or (plan.source.name, plan.target.name) in CODECS)
    }
    with TemporaryDirectory() as folder:
        rows = asyncio.run(_measure(plans, inputs, Path(folder), rounds, seconds))
    return [Report(f"Conversions of a 2 megapixel image ({rounds} x {seconds:g} s)", _COLUMNS, tuple(rows))]


async def _measure(
    plans: Mapping[tuple[str, str], Plan], inputs: Mapping[str, bytes], folder: Path, rounds: int, seconds: float
) -> list[Row]:
    executor = LocalExecutor(1)
    await executor.start()
    rows: list[Row] = []
    for pair, plan in plans.items():
        source = folder / pair[0]
        source.write_bytes(inputs[pair[0]])
        convert = partial(run_job, executor, Task.of(plan), source)
        variants: dict[str, Variant] = {"convertd": partial(repeat, convert, seconds)}
        if pair in CODECS:
            variants["codec"] = partial(repeat, partial(call_codec, plan, inputs[pair[0]]), seconds)
        rows.append(_row(pair, await interleaved(variants, rounds)))
    await executor.close()
    return rows


async def call_codec(plan: Plan, data: bytes) -> None:
    """Calls the codec of the plan's formats, with the default quality of convertd: that of the input if it has one."""
    options = {"quality": plan.options["quality"].default or "keep"} if plan.target.lossy else {}
    CODECS[plan.source.name, plan.target.name](data, **options)


def _row(pair: tuple[str, str], runs: Mapping[str, list[Run]]) -> Row:
    """Times per conversion: medians over the rounds. The spread is measured for the executor."""
    own = runs["convertd"]
    codec = runs.get("codec")
    if codec is None:
        return *pair, nan, p50_ms(own), nan, spread(own), nan, cpu_ms(own), nan
    times = (p50_ms(codec), p50_ms(own), throughput_ratio(codec, own), spread(own))
    return *pair, *times, cpu_ms(codec), cpu_ms(own), cpu_ratio(own, codec)
