"""Recognizes the text of pages by Tesseract, and adds it to them as a layer that is found but not seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import islice
from math import cos, radians, sin, sqrt
from operator import itemgetter
from os import cpu_count
from pathlib import Path
from statistics import fmean, median
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pikepdf
from numpy.typing import NDArray
from pikepdf import Name, NamePath, Object, Page, Pdf, PdfError, Stream
from PIL import Image, ImageFilter

from engine import FidelityWarning, StepFailed, check_size
from engine.mupdf import pymupdf
from plugins._pdf.name_trees import Ids
from plugins._pdf.objects import entries, saved
from plugins._pdf.pages.marks import Geometry, Mark, MarkWriter

_DPI = 300  # of pages that are no scans; finer scans show Tesseract no more
_MIN_DPI = 150  # to which coarser scans are enlarged: Tesseract misses letters of few pixels
_MAX_PAGE_PIXELS = 25_000_000
# What Tesseract finds out about the orientation: the degrees to turn, and its confidence.
_ORIENTATION = re.compile(rb"Rotate: (\d+)\s+Orientation confidence: ([\d.]+)")
_CERTAIN = 5  # that of photos is below 4, that of three lines of text above 6
_SCAN = 0.5  # of the area of a page, which its largest picture has at least
_PER_CORE = 4  # scans in memory
_UPRIGHT = 60  # percent; words of a lower mean confidence may be upside down
_ANGLES = np.arange(-15, 15.1, 0.6)  # degrees of lines that are searched
_NEAR = np.arange(-0.4, 0.5, 0.2)  # degrees from the best of them that are searched then
_MIN_SKEW = 0.3  # degrees, below which Tesseract follows the lines
_SKEW_SIDE = 1000  # pixels of the image that is searched
_SKEW_PIXELS = 20_000
_CONTRAST = 40  # levels between ink and paper
_LINES = 1.5  # how much clearer the rows of text are than those at other angles
_STRIP_SHARE = 1 / 16  # The language of a page is recognized in a strip of this share of its height.
_MIN_STRIP = 150  # pixels: some lines, also of a small image
_CERTAIN_WORD = 95  # percent of confidence; words of the language have more, most words in similar languages less
Commands: TypeAlias = Mapping[str, Sequence[str]]
"""Commands that start Tesseract, by the languages that they name. Of several, the first pages decide on one."""


class Scan(NamedTuple):
    """An image that may show text, in gray, and its dots per inch; 0: Tesseract goes by the size of the letters."""

    image: Image.Image
    dpi: int = 0


class Layer(NamedTuple):
    """A PDF of one page with only the text of a picture that has been turned counterclockwise by `angle` degrees."""

    data: bytes
    angle: float


class Recognizer:
    """Adds layers of text to pages of a document."""

    def __init__(self, document: Pdf, commands: Commands) -> None:
        self._document = document
        self._commands = commands
        self._writer = MarkWriter(document)
        self._fonts: Object | None = None  # All layers have the same fonts.

    def run(self, *, deskew: bool, force: bool) -> int:
        """Adds text to the pages that have none. With `force`, to all, where it replaces invisible text.

        Returns how many pages have new text.
        """
        added = 0
        data = saved(self._document, encryption=False, compress_streams=False)  # only to be read
        with pymupdf.open(stream=data, filetype="pdf") as shown:
            chosen = [index for index, page in enumerate(shown) if force or not page.get_text().strip()]
            layers = recognized((draw(shown[index]) for index in chosen), self._commands)
            for index, layer in zip(chosen, layers, strict=True):
                if layer is not None:
                    page = self._document.pages[index]
                    if force:
                        remove_invisible_text(self._document, page)
                    added += self._add_layer(page, layer, deskew=deskew)
        return added

    def _add_layer(self, page: Page, layer: Layer, *, deskew: bool) -> bool:
        """Adds the text of a layer to a page; with `deskew`, its lines are level then. Returns whether there is any."""
        with pikepdf.open(BytesIO(layer.data)) as made:
            text = made.pages[0]
            if not text.get("/Contents") or not text.resources.get("/Font"):
                return False
            if self._fonts is None:
                self._fonts = self._document.copy_foreign(made.make_indirect(text.resources.Font))
            del text.resources["/Font"]
            width, height = (float(edge) for edge in list(text.mediabox)[2:])
            form = self._document.copy_foreign(text.as_form_xobject())
        form.Resources.Font = self._fonts
        mark = Mark(form, width, height)
        place = Geometry.of(page).place(mark, "center", -layer.angle)
        self._writer.draw(page, mark, [place], under=True, tag="/Span")
        if deskew and (angle := (layer.angle + 45) % 90 - 45):
            self._writer.turn(page, angle)
        return True


def draw(page: pymupdf.Page) -> Scan:
    """A page as Tesseract reads it best: a scan in its own resolution, if it is neither too coarse nor too fine."""
    area = page.rect.get_area()
    found = max(page.get_image_info(), key=lambda one: pymupdf.Rect(one["bbox"]).get_area(), default=None)
    own = float(_DPI)
    if found and (covered := pymupdf.Rect(found["bbox"]).get_area()) >= _SCAN * area:
        own = 72 * sqrt(found["width"] * found["height"] / covered)
    dpi = max(1, min(int(72 * sqrt(_MAX_PAGE_PIXELS / area)), max(_MIN_DPI, min(_DPI, round(own)))))
    check_size(int(page.rect.width * dpi / 72), int(page.rect.height * dpi / 72))
    pixels = page.get_pixmap(dpi=dpi, colorspace=pymupdf.csGRAY, alpha=False)
    return Scan(Image.frombytes("L", (pixels.width, pixels.height), pixels.samples), dpi)


def recognized(scans: Iterable[Scan], commands: Commands) -> Iterator[Layer | None]:
    """The text of each scan, of as many at once as there are cores. None for one of one color.

    Issues a warning with the language if it is one of several.
    """
    cores = cpu_count() or 1
    remaining = iter(scans)
    command: Sequence[str] = ()
    with ThreadPoolExecutor(cores) as pool:
        while batch := [*islice(remaining, _PER_CORE * cores)]:
            command = command or _choose(batch, commands, pool)
            yield from pool.map(partial(_recognize, command=command), batch)


def _choose(scans: Sequence[Scan], commands: Commands, pool: ThreadPoolExecutor) -> Sequence[str]:
    """The command that reads the most characters, in words that are certain, in the strip of the scans with most text.

    Of equal ones, the first. Issues a warning if there are several, and such words.
    """
    if len(commands) == 1:
        return next(iter(commands.values()))
    strip = max(map(_densest, scans), key=itemgetter(0))[1]
    counts = [*pool.map(partial(_certain_characters, strip), commands.values())]
    language = [*commands][counts.index(max(counts))]
    if any(counts):
        FidelityWarning.issue("language_guessed", f"The text was read as {language}; `language` can name another one.")
    return commands[language]


def _densest(scan: Scan) -> tuple[int, Scan]:
    """The number of edges in the strip of a scan that has the most, and that strip, turned so that lines are level."""
    image = scan.image.rotate(skew(scan.image), Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    edges = np.abs(np.diff(np.asarray(image, np.int16), axis=1)) > _CONTRAST
    height = min(image.height, max(_MIN_STRIP, round(image.height * _STRIP_SHARE)))
    sums = np.cumsum(np.concatenate([[0], edges.sum(axis=1)]))
    counts = sums[height:] - sums[:-height]
    top = int(np.argmax(counts))
    return int(counts[top]), Scan(image.crop((0, top, image.width, top + height)), scan.dpi)


def _certain_characters(scan: Scan, command: Sequence[str]) -> int:
    """The number of characters in words that Tesseract is certain of."""
    words = _words(_start(scan, command, "stdout", "tsv").stdout.decode())
    return sum(len(word) for word, confidence in words if confidence >= _CERTAIN_WORD)


def _recognize(scan: Scan, command: Sequence[str]) -> Layer | None:
    lowest, highest = scan.image.getextrema()
    if lowest == highest:
        return None
    angle = skew(scan.image)
    found = list[tuple[float, Layer]]()
    for turned in (angle, angle + 180):  # Tesseract's own detection of pages that are upside down needs many words
        image = scan.image.rotate(turned, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
        confidence, text = _run(Scan(image, scan.dpi), command)
        found.append((confidence, Layer(text, turned)))
        if confidence >= _UPRIGHT:
            break
    return max(found, key=itemgetter(0))[1]


def orientation(scan: Scan, command: Sequence[str]) -> int | None:
    """By how many degrees clockwise a scan must be turned so that its text is upright. None if it is not certain.

    `command` starts Tesseract.
    """
    done = _start(scan, [*command, "-l", "osd", "--psm", "0"], "stdout")
    found = None if done.returncode else _ORIENTATION.search(done.stdout)
    return int(found[1]) if found and float(found[2]) >= _CERTAIN else None


def _run(scan: Scan, command: Sequence[str]) -> tuple[float, bytes]:
    """The mean confidence of the words that Tesseract finds, in percent, and a PDF with them."""
    with TemporaryDirectory() as folder:
        result = Path(folder, "page")
        if _start(scan, [*command, "-c", "textonly_pdf=1"], str(result), "pdf", "tsv").returncode:
            raise StepFailed("Tesseract failed.")
        confidences = [confidence for _, confidence in _words(result.with_suffix(".tsv").read_text("utf-8"))]
        return fmean(confidences or [0.0]), result.with_suffix(".pdf").read_bytes()


def _words(table: str) -> list[tuple[str, float]]:
    """The words of a table of Tesseract, each with its confidence in percent."""
    rows = [row.split("\t") for row in table.split("\n")[1:-1]]
    return [(row[-1], float(row[-2])) for row in rows if row[-1].strip()]


def _start(scan: Scan, command: Sequence[str], *outputs: str) -> subprocess.CompletedProcess[bytes]:
    """The result of Tesseract, with options in the command, on a scan."""
    with NamedTemporaryFile() as content:  # a pipe would take thousands of writes
        scan.image.save(content, "PPM")
        content.seek(0)
        return subprocess.run(
            [*command, "--dpi", str(scan.dpi), "stdin", *outputs],
            stdin=content,
            capture_output=True,
            env={"OMP_THREAD_LIMIT": "1"},  # several threads take five times as long as one
            check=False,
        )


def skew(image: Image.Image) -> float:
    """The degrees by which an image is turned counterclockwise so that its lines of text are level.

    They may be upside down then. 0 if no lines are found, or if they are nearly level.
    """
    small = image.reduce(max(1, round(max(image.size) / _SKEW_SIDE)))
    difference = np.abs(np.asarray(small, int) - np.asarray(small.filter(ImageFilter.BoxBlur(8)), int))
    points = np.argwhere(difference > _CONTRAST)
    down, across = points[:: len(points) // _SKEW_PIXELS + 1].T
    level, angle = _lines(down, across)
    upright, other = _lines(across, -down)
    if upright > _LINES * max(1, level):
        return other + 90
    return angle if level > _LINES else 0.0


def _lines(down: NDArray[Any], along: NDArray[Any]) -> tuple[float, float]:
    """How clearly points lie in rows after they are turned, and the angle; 0 for the least ones."""
    scores = [_clearness(down, along, angle) for angle in _ANGLES]
    near = _ANGLES[int(np.argmax(scores))] + _NEAR
    clearest, angle = max((_clearness(down, along, angle), float(angle)) for angle in near)
    return clearest / max(1, median(scores)), angle if abs(angle) > _MIN_SKEW else 0.0


def _clearness(down: NDArray[Any], along: NDArray[Any], angle: float) -> float:
    """The sum of squares of the numbers of points in each row, after they are turned counterclockwise."""
    rows = down * cos(radians(angle)) - along * sin(radians(angle))
    return float(np.square(np.bincount(np.round(rows - rows.min()).astype(int))).sum()) if len(rows) else 0.0


_INVISIBLE = 3  # text rendering mode
_SHOWING = frozenset({"Tj", "TJ", "'", '"'})


def remove_invisible_text(document: Pdf, page: pikepdf.Page) -> None:
    """Removes invisible text from the content of a page and from its forms. Damaged content stays."""
    if (content := _visible(page)) is not None:
        page.obj.Contents = document.make_stream(content)
    seen: Ids = set()
    holders: list[Any] = [page.obj]
    for holder in holders:  # the loop adds forms
        for _, form in entries(holder.get(NamePath.Resources.XObject)):
            if isinstance(form, Stream) and form.get("/Subtype") == Name.Form and form.objgen not in seen:
                seen.add(form.objgen)
                holders.append(form)
                if (content := _visible(form)) is not None:
                    form.write(content)


def _visible(holder: Any) -> bytes | None:
    """The content of a page or form without invisible text. None if it has none."""
    kept: list[Any] = []
    mode = 0
    outer = list[int]()
    count = 0
    with suppress(PdfError):
        for instruction in pikepdf.parse_content_stream(holder):
            count += 1
            match str(instruction.operator), list(instruction.operands):
                case "q", _:
                    outer.append(mode)
                case "Q", _ if outer:
                    mode = outer.pop()
                case "Tr", [new] if isinstance(new, int):
                    mode = new
                case shown, _ if mode == _INVISIBLE and shown in _SHOWING:
                    continue
            kept.append(instruction)
        return pikepdf.unparse_content_stream(kept) if len(kept) < count else None
    return None
