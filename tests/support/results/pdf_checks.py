"""What independent readers say about a PDF, and how its pages look."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pypdfium2
from numpy.typing import NDArray

from engine.mupdf import pymupdf

_DPI = 20  # at which pages are drawn to find complaints


def complaints(data: bytes, password: str = "") -> set[str]:
    """What qpdf, poppler and MuPDF complain about when they read all objects and draw the pages."""
    with TemporaryDirectory() as folder:
        file = Path(folder, "file.pdf")
        file.write_bytes(data)
        checked = ["qpdf", f"--password={password}", "--check", str(file)]
        drawn = ["pdftoppm", "-r", str(_DPI), "-upw", password, str(file), f"{folder}/page"]
        runs = [subprocess.run(command, capture_output=True, text=True, check=False) for command in (checked, drawn)]
    found = {line for program in runs for line in program.stderr.replace(folder, "").splitlines()}
    pymupdf.TOOLS.mupdf_warnings()  # resets them
    with pymupdf.open(stream=data, filetype="pdf") as document:
        document.authenticate(password)
        found |= {"MuPDF repaired it"} if document.is_repaired else set()
        for page in document:
            page.get_pixmap(dpi=_DPI)
    return found | set(pymupdf.TOOLS.mupdf_warnings().splitlines())


def drawn_pages(
    data: bytes, password: str | None = None, *, scale: float = 0.5, turned: int = 0, mode: str = "L"
) -> list[NDArray[np.float64]]:
    """The samples of each page as PDFium draws it, in Pillow's mode, turned clockwise by so many degrees."""
    document = pypdfium2.PdfDocument(data, password=password)
    pages = [page.render(scale=scale, rotation=turned).to_pil().convert(mode) for page in document]
    return [np.asarray(page, np.float64) for page in pages]
