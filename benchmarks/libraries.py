"""Libraries without a server: processes that repeat the usual call for a workload."""

import asyncio
import json
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.environments import PYVIPS, Environment
from benchmarks.measure import Run, Variant
from benchmarks.processes import WORKERS
from benchmarks.workloads import DELETION, DRAWING, EMBEDDING, MERGE, PAGE, PHOTO, THUMBNAIL, Workload

# Calls `convert` of the program before it with a file until the seconds are over. Prints the seconds of each call, and
# the CPU seconds of all.
_LOOP = """
import json, sys
from time import perf_counter, process_time

with open(sys.argv[1], "rb") as file:
    content = file.read()
convert(content)
latencies, cpu = [], process_time()
while sum(latencies) < float(sys.argv[2]):
    started = perf_counter()
    convert(content)
    latencies.append(perf_counter() - started)
print(json.dumps([latencies, process_time() - cpu]))
"""
_PILLOW = """
from io import BytesIO
from PIL import Image

def convert(content):
    Image.open(BytesIO(content)).save(BytesIO(), "WEBP", quality=80)
"""
_LIBVIPS = """
import os
os.environ["VIPS_CONCURRENCY"] = "1"
import pyvips
pyvips.cache_set_max(0)

def convert(content):
    pyvips.Image.thumbnail_buffer(content, 800).jpegsave_buffer(Q=85, keep="none")
"""
_RESVG = """
from resvg import render, usvg

def convert(content):
    render(usvg.Tree.from_str(content.decode(), usvg.Options.default()), (1, 0, 0, 0, 1, 0))
"""
_MUPDF = """
from engine.mupdf import pymupdf

def convert(content):
    with pymupdf.open(stream=content) as document:
        {}
"""


@dataclass(frozen=True)
class Library:
    """A library with its call for one workload: a program that defines the function `convert`.

    Its packages are in `environment`, by default in the one of convertd.
    """

    name: str
    workload: Workload
    program: str
    environment: Environment | None = None

    @property
    def title(self) -> str:
        """The name of the variant."""
        return f"{WORKERS} {self.name} loops"

    def variant(self, folder: Path, seconds: float, cache: Path | None = None) -> Variant:
        """Returns a variant with the input file in `folder`. Installs the environment below `cache`.

        Raises OSError and SubprocessError.
        """
        python = sys.executable
        if self.environment is not None and cache is not None:
            python = str(self.environment.install(cache) / "bin" / "python")
        command = (python, "-c", self.program + _LOOP, str(folder / self.workload.file), str(seconds))
        return partial(_run, command)


async def _run(command: tuple[str, ...]) -> Run:
    """Runs the command WORKERS times side by side."""
    results = await asyncio.gather(*(_output(command) for _ in range(WORKERS)))
    loops = [json.loads(result) for result in results]
    latencies = tuple(latency for found, _ in loops for latency in found)
    throughput = sum(len(found) / sum(found) for found, _ in loops)
    return Run(latencies, throughput, sum(cpu for _, cpu in loops) / len(latencies))


async def _output(command: tuple[str, ...]) -> bytes:
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        return (await process.communicate())[0]
    finally:
        if process.returncode is None:  # cancelled
            process.kill()
            await process.wait()


PILLOW = Library("Pillow", PHOTO, _PILLOW)
LIBVIPS = Library("libvips", THUMBNAIL, _LIBVIPS, PYVIPS)
RESVG = Library("resvg", DRAWING, _RESVG)
MUPDF_PAGE = Library("PyMuPDF", PAGE, _MUPDF.format("document[0].get_pixmap(dpi=150).tobytes('png')"))
MUPDF_EMBEDDING = Library("PyMuPDF", EMBEDDING, _MUPDF.format("document.convert_to_pdf()"))
MUPDF_DELETION = Library("PyMuPDF", DELETION, _MUPDF.format("document.delete_page(1); document.tobytes(garbage=3)"))
MUPDF_MERGE = Library(
    *("PyMuPDF", MERGE, _MUPDF.format("document.insert_pdf(pymupdf.open(stream=content)); document.tobytes()"))
)

LIBRARIES = (PILLOW, LIBVIPS, RESVG, MUPDF_PAGE, MUPDF_EMBEDDING, MUPDF_DELETION, MUPDF_MERGE)
