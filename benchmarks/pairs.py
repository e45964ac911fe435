"""Conversions by the executor, compared with calls of libraries in this process and with programs."""

import asyncio
import os
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from math import nan
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

import pillow_heif
import rawpy
import typst
import weasyprint
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
    run_program,
    spread,
    throughput_ratio,
)
from benchmarks.report import Report, Row
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.registry import Registry, load_registry
from plugins._text import web_pages  # noqa: F401  # undoes what WeasyPrint sets for all images of the process

Library = Callable[[bytes], object]
"""The usual call for a conversion, with the content of the file."""

_COLUMNS = (
    "file", "output", "rival", "rival ms", "convertd ms", "ratio", "spread %", "rival CPU ms", "CPU ms", "CPU ratio",
)  # fmt: skip
_RESOLUTION = 150  # dpi
_TO_PDF = "--headless --convert-to pdf"


@dataclass(frozen=True)
class Pair:
    """A conversion of a file, or its change by a tool, and what it is compared with.

    `libraries` are by name. `programs` are commands that read the file, or one with the same content, in its folder.
    """

    file: str
    target: str
    libraries: Mapping[str, Library]
    programs: Sequence[str] = ()
    tool: str | None = None


def _pillow(encoder: str, **options: object) -> Mapping[str, Library]:
    """Decodes and encodes with Pillow."""
    return {"Pillow": lambda data: Image.open(BytesIO(data)).save(BytesIO(), encoder, **options)}


def _heic_to_jpeg(data: bytes) -> None:
    pillow_heif.open_heif(BytesIO(data)).to_pillow().save(BytesIO(), "JPEG", quality=80)


def _raw_to_jpeg(data: bytes) -> None:
    with rawpy.imread(BytesIO(data)) as raw:
        Image.fromarray(raw.postprocess(use_camera_wb=True)).save(BytesIO(), "JPEG", quality=80)


def _resvg(data: bytes) -> None:
    render(usvg.Tree.from_str(data.decode(), usvg.Options.default()), (1, 0, 0, 0, 1, 0))


def _typst(data: bytes) -> None:
    page = b"#set page(width: auto, height: auto, margin: 0pt)\n#image(bytes(sys.inputs.svg))"
    typst.compile(page, format="pdf", sys_inputs={"svg": data.decode()})


def _pages_to_png(data: bytes) -> None:
    with pymupdf.open("pdf", data) as document:
        for page in document:
            page.get_pixmap(dpi=_RESOLUTION).tobytes("png")


def _pages_to_text(data: bytes) -> None:
    with pymupdf.open("pdf", data) as document:
        "\f".join(page.get_text() for page in document).encode()


def _web_page(data: bytes) -> None:
    weasyprint.HTML(string=data.decode()).write_pdf()


PAIRS: Sequence[Pair] = (
    Pair("photo.heic", "jpeg", {"pillow-heif": _heic_to_jpeg}, ["heif-convert -q 80 photo.heic out.jpg"]),
    Pair("photo.jpg", "jpeg", _pillow("JPEG", quality="keep"), ["vips copy photo.jpg out.jpg[Q=88]"]),
    Pair("photo.jpg", "webp", _pillow("WEBP", quality=87), ["vips copy photo.jpg out.webp[Q=87]"]),
    Pair("photo.jpg", "png", _pillow("PNG"), ["vips copy photo.jpg out.png"]),
    Pair("huge.jpg", "avif", _pillow("AVIF", quality=70), ["vips copy huge.jpg out.avif[Q=70]"]),
    Pair("photo.dng", "jpeg", {"rawpy": _raw_to_jpeg}),
    Pair("photo.psd", "jpeg", _pillow("JPEG", quality=80)),
    Pair("drawing.svg", "png", {"resvg": _resvg}, ["resvg drawing.svg out.png", "rsvg-convert -o out.png drawing.svg"]),
    Pair("drawing.svg", "pdf", {"Typst": _typst}),
    Pair("pages.pdf", "png", {"PyMuPDF": _pages_to_png}, [f"pdftoppm -png -r {_RESOLUTION} pages.pdf page"]),
    Pair("pages.pdf", "txt", {"PyMuPDF": _pages_to_text}, ["pdftotext pages.pdf out.txt"]),
    Pair("text.rtf", "pdf", {}, [f"soffice -env:UserInstallation=file:///{{folder}}/profile {_TO_PDF} text.rtf"]),
    Pair("text.html", "pdf", {"WeasyPrint": _web_page}),
    Pair("clip.mp4", "gif", {}, ["ffmpeg -y -i clip.mp4 out.gif"]),
    Pair("clip.mp4", "webp", {}, ["ffmpeg -y -i clip.mp4 -loop 0 out.webp"]),
    Pair("scan.pdf", "pdf", {}, ["tesseract scan.png out pdf"], tool="pdf-ocr"),
)
"""The conversions that people ask for most, of photos, drawings, documents, clips and scans."""


def measure(rounds: int, seconds: float, *, every: bool) -> list[Report]:
    """Returns the times of PAIRS, or of `every` pair of formats with an image, for runs of `seconds`."""
    registry = load_registry()
    if every:
        inputs = workloads.inputs(registry)
        found = ((plan.source.name, plan.target.name) for plan in registry.catalogue())
        pairs: Iterable[Pair] = (Pair(source, target, {}) for source, target in found if source in inputs)
    else:
        inputs = workloads.files(registry)
        pairs = PAIRS
    with TemporaryDirectory() as folder:
        for name, content in inputs.items():
            (Path(folder) / name).write_bytes(content)
        rows = asyncio.run(run(registry, pairs, Path(folder), rounds, seconds))
    return [Report(f"Conversions ({rounds} x {seconds:g} s)", _COLUMNS, tuple(rows))]


async def run(registry: Registry, pairs: Iterable[Pair], folder: Path, rounds: int, seconds: float) -> list[Row]:
    """Measures the pairs, whose files are in a folder. Returns a row for each rival that is installed."""
    executor = LocalExecutor(os.cpu_count() or 1)
    await executor.start()
    rows: list[Row] = []
    for pair in pairs:
        source = folder / pair.file
        content = source.read_bytes()
        plan = registry.plan([registry.identify_content(content, pair.file)], pair.target, pair.tool)
        variants: dict[str, Variant] = {"": partial(repeat, partial(run_job, executor, Task.of(plan), source), seconds)}
        for name, call in pair.libraries.items():
            variants[name] = partial(repeat, partial(_call, call, content), seconds)
        for command in pair.programs:
            program, *arguments = shlex.split(command.format(folder=folder))
            if which(program):
                variants[program] = partial(_repeat_program, [program, *arguments], folder, seconds)
        own, *rivals = (await interleaved(variants, rounds)).items()
        rows += [_row(pair, own[1], *rival) for rival in rivals or [("", [])]]
    await executor.close()
    return rows


async def _call(library: Library, content: bytes) -> None:
    library(content)


async def _repeat_program(command: Sequence[str], folder: Path, seconds: float) -> Run:
    """Runs a program one time after the other, once at least, after a warm-up. Raises CalledProcessError."""
    await asyncio.to_thread(run_program, command, folder)
    times: list[tuple[float, float]] = []
    while sum(elapsed for elapsed, _ in times) < seconds:
        times.append(await asyncio.to_thread(run_program, command, folder))
    latencies, cpu = zip(*times, strict=True)
    return Run(latencies, len(times) / sum(latencies), sum(cpu) / len(times))


def _row(pair: Pair, own: list[Run], name: str, rival: list[Run]) -> Row:
    """Times per conversion: medians over the rounds. The spread is measured for the executor."""
    head = pair.file, pair.tool or pair.target, name
    if not rival:
        return *head, nan, p50_ms(own), nan, spread(own), nan, cpu_ms(own), nan
    times = (p50_ms(rival), p50_ms(own), throughput_ratio(rival, own), spread(own))
    return *head, *times, cpu_ms(rival), cpu_ms(own), cpu_ratio(own, rival)
