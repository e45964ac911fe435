"""Removes texts and areas from a PDF."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from engine import EncodedFile, FidelityWarning, InvalidOption, color, lazy_imports, tool
from engine.option_types import Background, Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import archive_claims, documents, form_fields, objects
    from plugins._pdf.pages import marks
    from plugins._pdf.redaction import areas, content, descriptions, matching, texts

MODULES = ("plugins._pdf.redaction.areas", "plugins._pdf.redaction.descriptions", "plugins._pdf.redaction.texts")
TEMPLATE = "documents"

_MAX_SIDE = 1_000_000  # points

Points = Annotated[float, Field(ge=-_MAX_SIDE, le=_MAX_SIDE)]
Length = Annotated[float, Field(gt=0, le=_MAX_SIDE)]


class Area(TypedDict):
    """An area of a page, in points from its upper left corner as shown."""

    page: Annotated[int, Field(ge=1)]
    x: Points
    y: Points
    width: Length
    height: Length


Texts = Annotated[
    list[Annotated[str, Field(max_length=1000, pattern=r"\S")]],
    Field(
        min_length=1,
        max_length=1000,
        examples=[["Jane Doe", "jane@example.org"]],
        description="Texts to remove, in any case and also as parts of words.",
    ),
]
Pattern = Annotated[
    str,
    Field(
        min_length=1,
        max_length=1000,
        examples=["[0-9]{3}-[0-9]{2}-[0-9]{4}"],
        description="A regular expression in the syntax of RE2; what it matches is removed.",
    ),
]
Boxes = Annotated[
    list[Area],
    Field(
        min_length=1,
        max_length=10_000,
        examples=[[{"page": 1, "x": 72, "y": 72, "width": 200, "height": 20}]],
        description="Areas to remove, in points from the upper left corner of the page as shown.",
    ),
]


@tool(
    "pdf-redact",
    PDF,
    title="Redact a PDF",
    words="black out censor remove sensitive",
    sources=(PDF,),
    isolated=True,
    encodes=True,
    memory=8,
    example=("text",),
)
def redact(
    data: bytes,
    *,
    text: Texts | None = None,
    pattern: Pattern | None = None,
    boxes: Boxes | None = None,
    color: Background = "black",
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Removes texts and areas from a PDF, from all that it has, and draws boxes where they were."""
    if text is None and pattern is None and boxes is None:
        raise documents.missing_option(("text", "pattern", "boxes"))
    matcher = matching.Matcher(text or [], pattern)
    document = documents.open_document(data, password)
    count = len(document.pages)
    marked = _by_page(document, boxes or [])
    form_fields.remove_signatures(document)
    form_fields.remove_xfa(document)
    archive_claims.remove_claim(document)  # The color of boxes may be another than PDF/A permits.
    objects.remove_private_data(document)
    areas.remove_annotations(document, marked)
    shown = {index: descriptions.amounts(document.pages[index]) for index in marked}
    document, removed = content.redact(document, password or "", matcher, marked)
    descriptions.remove_changed(document, shown)
    areas.fill(document, removed, _paint(color))
    texts.redact(document, matcher)
    _warn_missing(matcher, len(text or []))
    return EncodedFile(documents.save_document(document, sanitize=sanitize), pages=count)


def _by_page(document: pikepdf.Pdf, given: list[Area]) -> dict[int, list[tuple[float, float, float, float]]]:
    """The areas in the units of the content, by the index of the page. Raises InvalidOption for other pages."""
    found: dict[int, list[tuple[float, float, float, float]]] = {}
    count = len(document.pages)
    for area in given:
        number = area["page"]
        if number > count:
            message = f"boxes names page {number}; the PDF has {count}."
            raise InvalidOption(message, reason="out_of_range", param="boxes", details={"page_count": count})
        box = marks.Geometry.of(document.pages[number - 1]).area_in_content(
            area["x"], area["y"], area["width"], area["height"]
        )
        found.setdefault(number - 1, []).append(box)
    return found


def _paint(name: str) -> tuple[float, float, float]:
    red, green, blue, _ = color.parse(name)
    return red / 255, green / 255, blue / 255


def _warn_missing(matcher: matching.Matcher, texts: int) -> None:
    """Issues a warning of what was not found, by position: warnings must not repeat what is to be removed."""
    missing = [f"text {number + 1}" if number < texts else "pattern" for number in sorted(matcher.missing)]
    if missing:
        FidelityWarning.issue("option_ignored", f"Nothing was found and removed for {', '.join(missing)}.")
