"""Recognizes the text of scans, by Tesseract, and adds it to them as a layer of text."""

from __future__ import annotations

import subprocess
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, Field

from engine import RASTER, AnyTool, EncodedFile, InvalidOption, Requirement, hookimpl, lazy_imports, split_list, tool
from engine.option_types import Password, Sanitize
from plugins import _programs
from plugins.formats.pdf import PDF

with lazy_imports():
    from plugins._pdf import documents
    from plugins._pdf.text import text_layer

MODULES = ("plugins._pdf.documents", "plugins._pdf.text.text_layer")
TEMPLATE = "documents"

PROGRAMS = _programs.find("tesseract")
"""The path of Tesseract, if it is installed."""
TESSERACT = Requirement(
    "Tesseract",
    "recognizing the text of scans",
    "apt-get install tesseract-ocr",
    present=bool(PROGRAMS),
    tool="pdf-ocr",
)
_MAX_CHOICES = 8  # languages: each takes a share of the time of a page
_NO_LANGUAGES = frozenset({"equ", "osd"})  # data of Tesseract for formulas, and for the orientation of pages


@cache
def _installed() -> tuple[str, ...]:
    """The codes of the languages that Tesseract has data for."""
    listed = subprocess.run([*PROGRAMS, "--list-langs"], capture_output=True, text=True, check=True).stdout
    return tuple(code for code in listed.splitlines()[1:] if code not in _NO_LANGUAGES)


def _codes(text: str) -> list[str]:
    return [code for item in split_list(text.replace("+", ",")) if (code := item.strip())]


def _check_languages(text: str) -> str:
    unknown = [code for code in _codes(text) if code not in _installed()]
    if unknown or not _codes(text):
        message = f"language must be a list of {', '.join(_installed())}."
        raise InvalidOption(message, reason="unknown", param="language", details={"available": [*_installed()]})
    return text


def commands(language: str | None) -> dict[str, list[str]]:
    """The command that starts Tesseract with the languages of an option, by their names.

    Without the option, one for each language that is installed, English first; only for English if they are too many.
    """
    if language:
        names = ["+".join(_codes(language))]
    else:
        names = sorted((code for code in _installed() if "/" not in code), key=lambda code: code != "eng")
        names = names if 0 < len(names) <= _MAX_CHOICES else ["eng"]
    return {name: [*PROGRAMS, "-l", name] for name in names}


Language = Annotated[
    str,
    Field(
        max_length=200,
        examples=["deu,eng"],
        description="Languages of the text by their codes in Tesseract, the most frequent one first. Without it, the "
        "language of the first pages is recognized, if two to eight are installed.",
    ),
    AfterValidator(_check_languages),
]
Deskew = Annotated[bool, Field(description="Turns the content of recognized pages so that their lines are level.")]
Force = Annotated[bool, Field(description="Recognizes pages that have text, too; their invisible text goes.")]


@tool(
    "pdf-ocr",
    PDF,
    title="OCR",
    words="recognize text scan searchable tesseract",
    sources=(PDF,),
    decoded_to=RASTER,
    programs=PROGRAMS,
    encodes=True,
    opens_with={"metadata": "all"},  # keeps JPEG files as they are
)
def recognize(
    data: bytes,
    *,
    language: Language | None = None,
    deskew: Deskew = False,
    force: Force = False,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Recognizes the text of scans, so that it can be searched and copied; pages that have text stay as they are."""
    document = documents.open_document(data, password)
    count = len(document.pages)
    recognizer = text_layer.Recognizer(document, commands(language))
    changed = recognizer.run(deskew=deskew, force=force)
    result = documents.save_document(document, sanitize=sanitize)
    if not (changed or sanitize):
        result = documents.keep_original(data, result, "its pages have text, or none was found")
    return EncodedFile(result, pages=count)


@hookimpl
def tools() -> list[AnyTool]:
    return [recognize] if TESSERACT.present else []
