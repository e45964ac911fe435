"""Recognizes the text of pages by Tesseract, and adds it to them as a layer that is found but not seen."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from io import BytesIO
from math import atan2, degrees, sqrt
from statistics import median_low
from typing import Any

import pikepdf
from pikepdf import Dictionary, Name, Object, Page, Pdf, PdfError, Stream

from engine import StepFailed, check_size
from engine.mupdf import pymupdf
from plugins._pdf.name_trees import Ids
from plugins._pdf.objects import saved
from plugins._pdf.pages.marks import Mark, MarkWriter

_DPI = 300  # Tesseract is made for it
_MAX_PAGE_PIXELS = 25_000_000
# What Tesseract finds out about the orientation: the degrees to turn, and its confidence.
_ORIENTATION = re.compile(rb"Rotate: (\d+)\s+Orientation confidence: ([\d.]+)")
_CERTAIN = 5  # that of photos is below 4, that of three lines of text above 6
_WHOLE_PAGE = (1.0, 0.0, 0.0, 1.0, 0.0, 0.0)  # the matrix of a layer, which has the size of its page


class Recognizer:
    """Adds layers of text to pages of a document. `command` starts Tesseract with its languages."""

    def __init__(self, document: Pdf, command: Sequence[str]) -> None:
        self._document = document
        self._command = command
        self._writer = MarkWriter(document)
        self._fonts: Object | None = None  # All layers have the same fonts.

    def run(self, *, deskew: bool, force: bool) -> int:
        """Adds text to the pages that have none. With `force`, to all, where it replaces invisible text.

        Returns how many pages have new text.
        """
        added = 0
        with pymupdf.open(stream=saved(self._document, encryption=False), filetype="pdf") as shown:
            for page, drawn in zip(list(self._document.pages), shown, strict=True):
                layer = recognized(drawn, self._command) if force or not drawn.get_text().strip() else None
                if layer is not None:
                    if force:
                        remove_invisible_text(self._document, page)
                    added += self._add_layer(page, layer, deskew=deskew)
        return added

    def _add_layer(self, page: Page, layer: bytes, *, deskew: bool) -> bool:
        """Adds the text of a layer to a page; with `deskew`, its lines are level then. Returns whether there is any."""
        angles = _angles(layer)
        if not angles:
            return False
        with pikepdf.open(BytesIO(layer)) as made:
            text = made.pages[0]
            if self._fonts is None:
                self._fonts = self._document.copy_foreign(made.make_indirect(text.resources.Font))
            del text.resources["/Font"]
            width, height = (float(edge) for edge in list(text.mediabox)[2:])
            form = self._document.copy_foreign(text.as_form_xobject())
        form.Resources.Font = self._fonts
        self._writer.draw(page, Mark(form, width, height), [_WHOLE_PAGE], under=True, tag="/Span")
        if deskew and (angle := median_low(angles)):
            self._writer.turn(page, angle)
        return True


def recognized(page: pymupdf.Page, command: Sequence[str]) -> bytes | None:
    """A PDF of one page with only the invisible text of a page. None for an empty page.

    `command` starts Tesseract with its languages.
    """
    # 1: finds out which side is up, too
    done = _run(page, [*command, "--psm", "1", "-c", "textonly_pdf=1"], "pdf")
    if done is not None and done.returncode:
        raise StepFailed("Tesseract failed.")
    return None if done is None else done.stdout


def orientation(page: pymupdf.Page, command: Sequence[str]) -> int | None:
    """By how many degrees clockwise a page must be turned so that its text is upright. None if it is not certain.

    `command` starts Tesseract.
    """
    done = _run(page, [*command, "-l", "osd", "--psm", "0"])
    found = None if done is None or done.returncode else _ORIENTATION.search(done.stdout)
    return int(found[1]) if found and float(found[2]) >= _CERTAIN else None


def _run(page: pymupdf.Page, command: Sequence[str], *outputs: str) -> subprocess.CompletedProcess[bytes] | None:
    """The result of Tesseract on the pixels of a page. None for a page of one color."""
    dpi = max(1, min(_DPI, int(72 * sqrt(_MAX_PAGE_PIXELS / page.rect.get_area()))))
    check_size(int(page.rect.width * dpi / 72), int(page.rect.height * dpi / 72))
    pixels = page.get_pixmap(dpi=dpi, colorspace=pymupdf.csGRAY, alpha=False)
    image: bytes = pixels.tobytes("pgm")
    if image.endswith(image[-1:] * (pixels.width * pixels.height)):
        return None
    arguments = [*command, "--dpi", str(dpi), "stdin", "stdout", *outputs]
    environment = {"OMP_THREAD_LIMIT": "1"}  # several threads take five times as long as one
    return subprocess.run(arguments, input=image, capture_output=True, env=environment, check=False)


def _angles(layer: bytes) -> list[float]:
    """The angle of the line of each character, in degrees clockwise from level or upright."""
    with pymupdf.open(stream=layer, filetype="pdf") as text:
        blocks = text[0].get_text("dict")["blocks"]
    angles: list[float] = []
    for line in (line for block in blocks for line in block["lines"]):
        across, down = line["dir"]
        written = sum(len(span["text"].strip()) for span in line["spans"])
        angles += [(degrees(atan2(down, across)) + 45) % 90 - 45] * written
    return angles


_INVISIBLE = 3  # text rendering mode
_SHOWING = frozenset({"Tj", "TJ", "'", '"'})


def remove_invisible_text(document: Pdf, page: pikepdf.Page) -> None:
    """Removes invisible text from the content of a page and from its forms. Damaged content stays."""
    if (content := _visible(page)) is not None:
        page.obj.Contents = document.make_stream(content)
    seen: Ids = set()
    holders: list[Any] = [page.obj]
    for holder in holders:  # the loop adds forms
        for _, form in ((holder.get("/Resources") or Dictionary()).get("/XObject") or Dictionary()).items():
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
