"""Sizes of compressed PDFs and how similar their pages stay, next to Ghostscript and qpdf."""

from __future__ import annotations

import subprocess
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from math import isnan, nan
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pikepdf
from numpy.typing import NDArray

from benchmarks.report import COLUMNS, Report, Row, at_least
from engine import ConversionError, pipeline
from engine.mupdf import pymupdf
from engine.registry import load_registry

SETTINGS = tuple(
    (quality, dpi)
    for dpi, qualities in {
        100: (40,),
        120: (50,),
        130: (60,),
        150: (50, 55, 60, 65, 70, 75, 80, 85, 88),
        200: (80, 85, 90),
        300: (85, 90, 95),
        1200: (100,),
    }.items()
    for quality in qualities
)
"""Qualities and resolutions of convertd, from small files to similar ones."""

_DEFAULT = (75, 150)
_SHARE = 0.8  # the share of files whose result by convertd has to be the smallest
_DPI, _MAX_PAGES = 150, 2
_WINDOW = 8  # pixels per side of the parts that are compared
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2  # the constants of the similarity
_TOLERANCE = 0.0005  # SSIM
_BROKEN = 0.5  # the similarity below which a file shows something else
_GHOSTSCRIPT = ("gs", "-q", "-dSAFER", "-sDEVICE=pdfwrite", "-dPDFSETTINGS=/ebook", "-dAutoRotatePages=/None")
_QPDF = ("--object-streams=generate", "--recompress-flate", "--compression-level=9", "--optimize-images")
_OF_EACH = [column for name in ("convertd", "Ghostscript", "qpdf") for column in (f"bytes: {name}", "SSIM", "s")]
_COLUMNS = ("file", "bytes", *_OF_EACH, "convertd / Ghostscript", "convertd / qpdf", "smallest")

Levels = NDArray[np.float64]
"""The levels of a color by row and column, as numbers of 0 to 255."""
Pages = list[tuple[Levels, ...]]
"""The levels of red, green and blue of pages, by row and column."""


@dataclass(frozen=True)
class Compressed:
    """A compressed file: its size in bytes, the similarity of its pages from 0 to 1, and the seconds that it took.

    A program that fails, or whose result shows something else, has the size and the seconds NaN, and the similarity 0.
    """

    size: float
    similarity: float
    seconds: float


_FAILED = Compressed(nan, 0.0, nan)


def measure(files: Sequence[Path]) -> list[Report]:
    """Returns a row per file, and the requirement."""
    return reports([compare(file) for file in files])


def reports(rows: Sequence[Row]) -> list[Report]:
    """Returns the table and the requirement of files that `compare` measured."""
    smallest = sum(row[-1] == "yes" for row in rows)
    title = "Compressed PDFs: sizes at the default settings, and relative to others at their similarity"
    requirement = at_least(f"files of {len(rows)} of which convertd's are the smallest", smallest, _SHARE * len(rows))
    return [Report(title, _COLUMNS, tuple(rows)), Report("Requirements", COLUMNS, (requirement,))]


def similarity(first: Levels, second: Levels) -> float:
    """The mean structural similarity (SSIM) of two images; 0 for different sizes."""
    if first.shape != second.shape:
        return 0.0
    mean, other_mean = _averages(first), _averages(second)
    variances = _averages(first**2) - mean**2 + _averages(second**2) - other_mean**2
    covariance = _averages(first * second) - mean * other_mean
    brightness = (2 * mean * other_mean + _C1) / (mean**2 + other_mean**2 + _C1)
    return float((brightness * (2 * covariance + _C2) / (variances + _C2)).mean())


def _averages(levels: Levels) -> Levels:
    """The averages of all windows."""
    sums = np.pad(levels, ((1, 0), (1, 0))).cumsum(0).cumsum(1)
    windows = sums[_WINDOW:, _WINDOW:] - sums[:-_WINDOW, _WINDOW:] - sums[_WINDOW:, :-_WINDOW]
    return np.asarray((windows + sums[:-_WINDOW, :-_WINDOW]) / _WINDOW**2, np.float64)


def compare(file: Path) -> Row:
    """Returns the row of a file."""
    content = file.read_bytes()
    pages = _draw(content)
    known: dict[bytes, float] = {}
    own = cache(lambda setting: _measure(pages, partial(_convertd, content, *setting), known))
    others = [_measure(pages, partial(program, file), known) for program in (_ghostscript, _qpdf)]
    ratios = [_size_at(own, other) / other.size for other in others]
    is_smallest = all(ratio <= 1 or isnan(other.size) for ratio, other in zip(ratios, others, strict=True))
    compared = (own(_DEFAULT), *others)
    cells = [cell for one in compared for cell in (one.size, f"{one.similarity:.4f}", one.seconds)]
    return file.name, len(content), *cells, *ratios, "yes" if is_smallest else "no"


def _size_at(own: Callable[[tuple[int, int]], Compressed], other: Compressed) -> float:
    """The size at the first of the settings with at least the similarity of another one; NaN if there is none."""
    if isnan(other.size):
        return nan
    needed = other.similarity - _TOLERANCE
    index = bisect_left(SETTINGS, needed, key=lambda setting: own(setting).similarity)
    return own(SETTINGS[index]).size if index < len(SETTINGS) else nan


def _measure(pages: Pages, compress: Callable[[], bytes], known: dict[bytes, float]) -> Compressed:
    """Runs a program. `known` are the similarities of files, to which it adds."""
    started = perf_counter()
    try:
        data = compress()
    except (OSError, subprocess.SubprocessError, ConversionError, RuntimeError, pikepdf.PdfError):
        return _FAILED
    seconds = perf_counter() - started
    if data not in known:
        pairs = zip(pages, _draw(data), strict=False)
        similarities = [similarity(*colors) for pair in pairs for colors in zip(*pair, strict=True)]
        known[data] = fmean(similarities) if similarities else 0.0
    return Compressed(len(data), known[data], seconds) if known[data] >= _BROKEN else _FAILED


def _draw(content: bytes) -> Pages:
    """At most _MAX_PAGES pages, evenly from the whole document."""
    with pymupdf.open(stream=content, filetype="pdf") as document:
        step = -(-document.page_count // _MAX_PAGES)
        return [_levels(document[index]) for index in range(0, document.page_count, step)]


def _levels(page: pymupdf.Page) -> tuple[Levels, ...]:
    drawn = page.get_pixmap(dpi=_DPI)
    samples = np.frombuffer(drawn.samples, np.uint8).reshape(drawn.height, drawn.width, -1)
    return tuple(np.asarray(samples[..., band], np.float64) for band in range(samples.shape[2]))


def _convertd(content: bytes, quality: int, dpi: int) -> bytes:
    registry = load_registry()
    plan = registry.plan([registry.formats["pdf"]], "pdf", "pdf-compress")
    return pipeline.run(plan, [content], {"quality": quality, "dpi": dpi}).data


def _ghostscript(file: Path) -> bytes:
    with TemporaryDirectory() as folder:
        result = Path(folder, "result.pdf")
        subprocess.run([*_GHOSTSCRIPT, "-o", result, file], check=True, capture_output=True, timeout=600)
        return result.read_bytes()


def _qpdf(file: Path) -> bytes:
    with TemporaryDirectory() as folder:
        result = Path(folder, "result.pdf")
        pikepdf.Job(["qpdf", *_QPDF, str(file), str(result)]).run()
        return result.read_bytes()
