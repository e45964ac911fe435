"""Areas of pages: the annotations and form fields that they touch, and their fill."""

from __future__ import annotations

from pikepdf import Array, Dictionary, Object, Pdf

from plugins._pdf.form_fields import form_of, walk_fields, without_fields
from plugins._pdf.name_trees import Ids, as_list
from plugins._pdf.objects import annotations_of
from plugins._pdf.pages.marks import Box, Color, sorted_edges
from plugins._pdf.redaction.content import Areas


def remove_annotations(document: Pdf, areas: Areas) -> None:
    """Removes the annotations that areas touch, with answers to them, and form fields of which they touch a widget."""
    removed: Ids = set()
    for index, page in enumerate(document.pages):
        if index in areas:
            found = annotations_of(page.obj)
            page.obj.Annots = Array([one if one.is_indirect else document.make_indirect(one) for one in found])
            touched = (one for one in as_list(page.obj.Annots) if any(_touches(one, box) for box in areas[index]))
            removed.update(one.objgen for one in touched)
    form = form_of(document)
    fields = [field for field, _ in walk_fields(form) if field.is_indirect]
    hit = {_field_of(field).objgen for field in fields if field.objgen in removed}
    removed |= {field.objgen for field in fields if _field_of(field).objgen in hit}
    form.Fields = Array(without_fields(as_list(form.get("/Fields")), removed, set()))
    for page in document.pages:
        if removed and "/Annots" in page.obj:
            page.obj.Annots = Array([one for one in as_list(page.obj.Annots) if not _goes(one, removed)])


def _field_of(widget: Object) -> Object:
    """The field that a widget shows, which can be the widget itself."""
    parent = widget.get("/Parent")
    return widget if "/T" in widget or not isinstance(parent, Dictionary) else parent


def _goes(annotation: Object, removed: Ids) -> bool:
    """Whether an annotation is removed, or belongs to one that is: its window or an answer to it."""
    above = [annotation.get(key) for key in ("/Parent", "/IRT")]
    return any(isinstance(one, Dictionary) and one.objgen in removed for one in (annotation, *above))


def _touches(annotation: Object, box: Box) -> bool:
    try:
        left, bottom, right, top = sorted_edges(annotation.Rect)
    except (AttributeError, TypeError, ValueError):
        return True  # where it is drawn is not known
    return bool(left < box[2] and box[0] < right and bottom < box[3] and box[1] < top)


def fill(document: Pdf, areas: Areas, color: Color) -> None:
    """Draws areas on their pages."""
    for index, boxes in areas.items():
        drawn = "".join(f"{x0:.3f} {y0:.3f} {x1 - x0:.3f} {y1 - y0:.3f} re\n" for x0, y0, x1, y1 in boxes)
        content = f"q {' '.join(f'{value:.4f}' for value in color)} rg\n{drawn}f Q\n"
        document.pages[index].contents_add(document.make_stream(content.encode()))
