"""Contents of pages within others: forms, patterns, soft masks, glyphs and appearances, which share resources."""

from collections.abc import Callable
from functools import partial
from typing import Any

from pikepdf import Dictionary, Name, Object, Pdf

from tests.support.samples.pdf_documents import Extra, annotate


def contents(kind: str) -> Extra:
    """Contents of pages, by a key of `KINDS`, that have the same resources; each draws another one of them.

    The resource of the second page has the text "SECRET", those of the others have "PUBLIC".
    """
    draw, text = KINDS[kind]

    def add(made: Pdf) -> None:
        keys: dict[str, Any] = {"Type": Name.XObject, "Subtype": Name.Form, "BBox": [0, 0, 9, 9]}
        texts = [b"(SECRET)" if index == 1 else b"(PUBLIC)" for index in range(len(made.pages))]
        drawn = {f"/X{index}": made.make_stream(text, **keys) for index, text in enumerate(texts)}
        shared = made.make_indirect(Dictionary(XObject=Dictionary(drawn)))
        for index in range(len(made.pages)):
            draw(made, index, made.make_stream(text % index, **keys, Resources=shared))

    return add


def _draw_form(made: Pdf, index: int, content: Object) -> None:
    made.pages[index].obj.Resources.XObject = Dictionary(Fo=content)
    made.pages[index].contents_add(b"/Fo Do")


def _draw_form_in_form(made: Pdf, index: int, content: Object) -> None:
    keys: dict[str, Any] = {"Type": Name.XObject, "Subtype": Name.Form, "BBox": [0, 0, 9, 9]}
    resources = Dictionary(XObject=Dictionary(Fo=content))
    _draw_form(made, index, made.make_stream(b"/Fo Do", **keys, Resources=resources))


def _draw_form_with_resources_of_page(made: Pdf, index: int, content: Object, own: Object | None = None) -> None:
    """A form that names what only the resources of its page have."""
    page = made.pages[index].obj
    page.Resources.XObject = Dictionary({"/Fo": content, **dict(content.Resources.XObject.items())})
    made.pages[index].contents_add(b"/Fo Do")
    del content["/Resources"]
    if own is not None:
        content.Resources = own


def _draw_pattern(made: Pdf, index: int, content: Object) -> None:
    for key in ("/Type", "/Subtype"):
        del content[key]
    content.PatternType, content.PaintType, content.TilingType, content.XStep, content.YStep = 1, 1, 1, 9, 9
    made.pages[index].obj.Resources.Pattern = Dictionary(Pa=content)
    made.pages[index].contents_add(b"/Pattern cs /Pa scn 0 0 9 9 re f")


def _draw_mask(made: Pdf, index: int, content: Object) -> None:
    content.Group = Dictionary(S=Name.Transparency, CS=Name.DeviceGray)
    state = Dictionary(SMask=Dictionary(S=Name.Luminosity, G=content))
    made.pages[index].obj.Resources.ExtGState = Dictionary(Gs=made.make_indirect(state))
    made.pages[index].contents_add(b"/Gs gs")


def _draw_shading(made: Pdf, index: int, content: Object) -> None:
    """A pattern that is a gradient with a soft mask."""
    shading = Dictionary(ShadingType=1, ColorSpace=Name.DeviceGray)
    mask = Dictionary(SMask=Dictionary(S=Name.Luminosity, G=content))
    made.pages[index].obj.Resources.Pattern = Dictionary(Pa=Dictionary(PatternType=2, Shading=shading, ExtGState=mask))
    made.pages[index].contents_add(b"/Pattern cs /Pa scn 0 0 9 9 re f")


def _draw_glyph(made: Pdf, index: int, content: Object) -> None:
    keys: dict[str, Any] = {"Type": Name.Font, "Subtype": Name.Type3, "FontBBox": [0, 0, 9, 9]}
    encoding = Dictionary(Type=Name.Encoding, Differences=[97, Name.a])
    font = Dictionary(**keys, FontMatrix=[1, 0, 0, 1, 0, 0], FirstChar=97, LastChar=97, Widths=[9], Encoding=encoding)
    font.CharProcs, font.Resources = Dictionary(a=made.make_stream(content.read_bytes())), content.Resources
    made.pages[index].obj.Resources.Font.F3 = made.make_indirect(font)
    made.pages[index].contents_add(b"BT /F3 9 Tf (a) Tj ET")


def _draw_look(made: Pdf, index: int, content: Object) -> None:
    look = Dictionary(Type=Name.Annot, Subtype=Name.Square, Rect=[0, 0, 9, 9], AP=Dictionary(N=Dictionary(On=content)))
    annotate(made, index, look)


KINDS: dict[str, tuple[Callable[[Pdf, int, Object], None], bytes]] = {
    "form": (_draw_form, b"/X%d Do"),
    "form in a form": (_draw_form_in_form, b"/X%d Do"),
    "form with resources of the page": (_draw_form_with_resources_of_page, b"/X%d Do"),
    "form with some resources of the page": (partial(_draw_form_with_resources_of_page, own=Dictionary()), b"/X%d Do"),
    "pattern": (_draw_pattern, b"/X%d Do"),
    "soft mask": (_draw_mask, b"/X%d Do"),
    "soft mask of a pattern": (_draw_shading, b"/X%d Do"),
    "font": (_draw_glyph, b"/X%d Do"),
    "appearance": (_draw_look, b"/X%d Do"),
    "escaped name": (_draw_form, b"/#58%d Do"),
}
"""How each kind is drawn on a page, and what it draws."""
