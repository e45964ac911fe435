"""Describes a PDF as JSON."""

from __future__ import annotations

import json
from typing import Any

from engine import EncodedFile, ToolResult, lazy_imports, tool
from engine.option_types import Password
from plugins.formats.json import JSON
from plugins.formats.pdf import PDF
from plugins.tools.pdf_protect import PERMISSIONS

with lazy_imports():
    import pikepdf

    from plugins._pdf import attachments, documents, facts, fields, outlines
    from plugins._pdf.pages import marks

MODULES = ("plugins._pdf.documents", "plugins._pdf.facts", "plugins._pdf.attachments", "plugins._pdf.outlines")
TEMPLATE = "documents"


@tool(
    "pdf-info",
    PDF,
    title="Describe a PDF",
    words="inspect properties fonts details",
    sources=(PDF,),
    target=JSON,
    isolated=True,
    encodes=True,
)
def info(data: bytes, *, password: Password | None = None) -> ToolResult[bytes]:
    """Lists pages, fonts, images, attachments, outline, form fields and more of a PDF as JSON."""
    document = documents.open_document(data, password)
    found = fields.read_fields(document)
    described = {
        "pages": len(document.pages),
        "page_sizes": [_size(page) for page in document.pages],
        "fonts": facts.fonts(document),
        "images": [*facts.images(document)],
        "encryption": facts.encryption(document, PERMISSIONS),
        "signatures": [*facts.signatures(found)],
        "attachments": [_attachment(one) for one in attachments.read_attachments(document)],
        "outline": outlines.read_outline(document),
        "form_fields": _fields(document, found),
        "standard": facts.standard(document),
    }
    file = EncodedFile(json.dumps(described, ensure_ascii=False, default=float).encode())
    return ToolResult(file, facts={"original_page_count": len(document.pages)})


def _size(page: pikepdf.Page) -> dict[str, float]:
    """Width and height of a page as it is shown, in points, and its rotation in degrees clockwise."""
    geometry = marks.Geometry.of(page)
    return {"width": round(geometry.width, 2), "height": round(geometry.height, 2), "rotation": page.rotation % 360}


def _area(page: pikepdf.Page, widget: pikepdf.Object) -> dict[str, float] | None:
    """Where a page shows a widget: `x` and `y` of its upper left corner, `width` and `height`, in points."""
    try:
        area = marks.Geometry.of(page).area_as_shown(marks.sorted_edges(widget.get("/Rect")))
    except TypeError:
        return None
    return {name: round(value, 2) for name, value in zip(("x", "y", "width", "height"), area, strict=True)}


def _attachment(one: attachments.Attachment) -> dict[str, Any]:
    size = one.stream.get(pikepdf.NamePath.Params.Size)
    given = {"name": one.name, "description": one.description, "media_type": one.media_type, "page": one.page}
    return {**given, "size": size if isinstance(size, int) else len(one.stream.read_bytes())}


def _fields(document: pikepdf.Pdf, found: list[fields.Field]) -> list[dict[str, Any]]:
    """The form fields, each with the place of its first widget, as `pdf-form` fills them."""
    pages = fields.widget_pages(document)
    described = []
    for field in found:
        widget = field.widgets[0]
        number, page = pages.get(widget.objgen, (None, None))
        described.append(
            {
                "name": field.name,
                "type": field.kind,
                "label": fields.text_of(field.holder["/TU"]) if "/TU" in field.holder else None,
                "value": field.value,
                "options": field.options,
                "page": number,
                "box": None if page is None else _area(page, widget),
                "required": bool(field.flags & fields.REQUIRED),
                "read_only": bool(field.flags & fields.READ_ONLY),
                "max_length": field.max_length if field.kind == "text" else None,
            }
        )
    return described
