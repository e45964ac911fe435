"""DjVu, read by DjVuLibre. Its layer of text is left out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from engine import (
    DOCUMENT,
    AnyConversion,
    Content,
    CorruptInput,
    FileFormat,
    Loss,
    Requirement,
    Signature,
    any_of,
    conversion,
    hookimpl,
)
from engine.option_types import Pages
from plugins import _programs
from plugins._pdf.pages import reading
from plugins._pdf.pages.reading import read_pages

if TYPE_CHECKING:
    import pymupdf

MODULES = reading.MODULES
TEMPLATE = "documents"
_MAGIC = b"AT&TFORM"
_HEADER = 12  # bytes that the size in them does not count


def _is_complete(content: Content) -> bool:
    return len(content) >= _HEADER + int.from_bytes(content[8:12], "big")


DJVU = FileFormat(
    "djvu",
    media_type="image/vnd.djvu",
    extensions=("djvu", "djv"),
    sniff=any_of(Signature((0, _MAGIC), (12, b"DJVU")), Signature((0, _MAGIC), (12, b"DJVM"))),
    is_complete=_is_complete,
    must_be_complete=True,
)

PROGRAMS = _programs.find("ddjvu")
"""The path of ddjvu, if it is installed."""
DJVULIBRE = Requirement("DjVuLibre", "reading DjVu", "apt-get install djvulibre-bin", present=bool(PROGRAMS))


@conversion(DJVU, DOCUMENT, loss=Loss.STRUCTURE, cost=10, programs=PROGRAMS, isolated=True)
def read(data: bytes, *, pages: Pages | None = None) -> pymupdf.Document:
    with TemporaryDirectory() as folder:
        source = Path(folder, "in.djvu")
        result = Path(folder, "out.pdf")
        source.write_bytes(data)
        process = subprocess.run(
            [*PROGRAMS, "-format=pdf", str(source), str(result)],
            env={"TMPDIR": folder, "HOME": folder},  # Without HOME, it would ask a service for the user's.
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        # Damaged pages are written as far as they can be decoded, with the exit code 10.
        if process.returncode or not result.exists() or not result.stat().st_size:
            raise CorruptInput("The pages cannot be decoded.")
        return read_pages(result.read_bytes(), pages=pages)


@hookimpl
def conversions() -> list[AnyConversion]:
    return [read] if DJVULIBRE.present else []
