"""Software to compare with, which is installed into folders of its own, and loops of the usual call of libraries."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions
from pathlib import Path

from benchmarks.measure import Run, Variant
from benchmarks.processes import WORKERS
from benchmarks.workloads import DELETION, DRAWING, EMBEDDING, MERGE, PAGE, PHOTO, THUMBNAIL, Workload

_INSTALLED = "installed"  # lists the packages; exists when the environment is complete
_TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class Environment:
    """Packages in a folder of their own: of npm, or in a virtual environment of Python."""

    name: str
    packages: tuple[str, ...]
    uses_npm: bool = False

    def install(self, cache: Path) -> Path:
        """Returns the folder below `cache`. Does nothing if it is complete. Raises OSError and SubprocessError."""
        folder = cache / self.name
        wanted = "\n".join(self.packages)
        marker = folder / _INSTALLED
        if not marker.is_file() or marker.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if self.uses_npm:
                _install(["npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *self.packages])
            else:
                _install([sys.executable, "-m", "venv", folder])
                _install([folder / "bin" / "pip", "install", *self.packages])
            marker.write_text(wanted)
        return folder

    def version(self, folder: Path, package: str) -> str:
        """Returns the name and version of an installed package; for npm, `package` is a path below node_modules."""
        if self.uses_npm:
            manifest = json.loads((folder / "node_modules" / package / "package.json").read_text())
            return f"{manifest['name']} {manifest['version']}"
        (library,) = (folder / "lib").glob("python*/site-packages")
        found = next(found for found in distributions(path=[str(library)]) if found.name.lower() == package)
        return f"{package} {found.version}"


NODE = Environment("node", ("fastify@5.12.8", "@fastify/multipart@10.1.9", "sharp@0.35.5", "ipx@3.1.1"), uses_npm=True)
THUMBOR = Environment("thumbor", ("thumbor==7.8.0", "pillow==12.3.0"))
PYVIPS = Environment(
    "starlette", ("starlette==1.10.0", "uvicorn[standard]==0.54.0", "python-multipart==0.0.34", "pyvips[binary]==3.2.0")
)


def reason(error: Exception) -> str:
    """Returns the first error that an installation printed, or else the last line of the message."""
    lines = error.stderr.splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    errors = (line for line in lines if line.lower().startswith(("error", "npm error")))
    return next(errors, str(error).strip().rpartition("\n")[2])


def _install(command: Sequence[str | Path]) -> None:
    """Runs a command. Raises OSError, CalledProcessError and TimeoutExpired."""
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT)


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
_INSERTION = "document.insert_pdf(pymupdf.open(stream=content)); document.tobytes()"
MUPDF_MERGE = Library("PyMuPDF", MERGE, _MUPDF.format(_INSERTION))

LIBRARIES = (PILLOW, LIBVIPS, RESVG, MUPDF_PAGE, MUPDF_EMBEDDING, MUPDF_DELETION, MUPDF_MERGE)
