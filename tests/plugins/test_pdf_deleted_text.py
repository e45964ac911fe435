"""A deleted page leaves no text in the file, whatever refers to it: in no stream, decompressed, and in no string."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from tests.support.results.conversions import convert, run_tool
from tests.support.samples.pdf_documents import (
    KINDS,
    Extra,
    all_texts,
    annotate,
    at,
    contents,
    document,
    field,
    link,
    named,
    opened,
    outline,
    page_texts,
    tagged,
)

_SECRET, _PUBLIC = "SECRET", "PUBLIC"
_DELETED = 1  # the index of the page, which is between two others


def _on_root(key: str, value: Callable[[Pdf], Any]) -> Extra:
    def add(made: Pdf) -> None:
        made.Root[key] = value(made)

    return add


def _on_page(key: str, value: Callable[[Pdf], Any], index: int = _DELETED) -> Extra:
    def add(made: Pdf) -> None:
        made.pages[index].obj[key] = value(made)

    return add


def _all(*extras: Extra) -> Extra:
    def add(made: Pdf) -> None:
        for extra in extras:
            extra(made)

    return add


def _stream(made: Pdf, **keys: Any) -> Object:
    return made.make_stream(b"(SECRET)", **keys)


def _private(made: Pdf) -> Object:
    return Dictionary(Program=Dictionary(LastModified=String("D:2026"), Private=_stream(made)))


def _articles(made: Pdf) -> None:
    """An article on the deleted page alone, to which an action leads, and one that goes on."""
    only = made.make_indirect(Dictionary(Type=Name.Thread, I=Dictionary(Title=String(_SECRET))))
    bead = made.make_indirect(Dictionary(P=made.pages[_DELETED].obj, T=only, Secret=String(_SECRET)))
    bead.N = bead.V = only.F = bead
    other = made.make_indirect(Dictionary(Type=Name.Thread, I=Dictionary(Title=String(_PUBLIC))))
    first, second = (made.make_indirect(Dictionary(P=made.pages[index].obj)) for index in (_DELETED, 0))
    other.F, first.N, first.V, second.N, second.V = first, second, second, first, first
    made.Root.Threads = Array([only, other])
    link(0, A=Dictionary(S=Name.Thread, D=only, B=bead))(made)


def _structure(change: Callable[[Pdf, Object], None]) -> Extra:
    """Paragraphs of all pages in a section, and a change of the paragraph of the deleted page."""

    def add(made: Pdf) -> None:
        tagged(made)
        root = made.Root.StructTreeRoot
        section = made.make_indirect(Dictionary(S=Name.Sect, P=root, K=root.K, ActualText=String(_SECRET)))
        for paragraph in section.K:
            paragraph.P = section
        root.K = Array([section])
        change(made, section.K[_DELETED])

    return add


def _set(**keys: Any) -> Callable[[Pdf, Object], None]:
    def change(_: Pdf, paragraph: Object) -> None:
        for key, value in keys.items():
            paragraph[f"/{key}"] = value

    return change


def _of_link(made: Pdf, paragraph: Object) -> None:
    """An element of the page before, for a link to the deleted page."""
    _link(made)
    page = made.pages[0].obj
    content = Dictionary(Type=Name.OBJR, Pg=page, Obj=page.Annots[0])
    element = Dictionary(S=Name.Link, P=paragraph.P, K=content, Alt=String(_SECRET))
    paragraph.P.K.append(made.make_indirect(element))


def _without_content(made: Pdf, paragraph: Object) -> None:
    del paragraph["/K"]
    paragraph.ActualText = String(_SECRET)


def _figure_within(made: Pdf, paragraph: Object) -> None:
    paragraph.K = Array([0, made.make_indirect(Dictionary(S=Name.Figure, P=paragraph, Alt=String(_SECRET)))])


def _referred(made: Pdf, paragraph: Object) -> None:
    paragraph.Alt = String(_SECRET)
    paragraph.P.K[0].Ref = Array([paragraph])
    paragraph.ID = String(_SECRET)
    made.Root.StructTreeRoot.IDTree = Dictionary(Names=Array([String(_SECRET), paragraph]))


def _spanning(made: Pdf, paragraph: Object) -> None:
    """A paragraph that starts on the page before, in a table whose summary repeats its text."""
    other = Dictionary(Type=Name.MCR, Pg=made.pages[0].obj, MCID=7)
    paragraph.K = Array([other, 0])
    for key in ("/ActualText", "/Alt", "/E", "/T", "/Phoneme"):
        paragraph[key] = String(_SECRET)
    paragraph.A = Array([Dictionary(O=Name.Table, Summary=String(_SECRET)), 0])


def _field_with_kids(made: Pdf) -> None:
    field(_DELETED, "name", String(_SECRET), Opt=Array([String(_SECRET)]))(made)
    widget = made.Root.AcroForm.Fields[0]
    parent = made.make_indirect(Dictionary(T=String(_SECRET), V=String(_SECRET), Kids=Array([widget])))
    widget.Parent = parent
    made.Root.AcroForm.Fields = Array([parent])


def _xfa(made: Pdf) -> None:
    field(0, "name", String(_PUBLIC))(made)
    made.Root.AcroForm.XFA = Array([String("datasets"), _stream(made)])


def _annotations(made: Pdf) -> None:
    """An annotation of the deleted page, to which one of another page refers."""
    note = annotate(
        made, _DELETED, Dictionary(Type=Name.Annot, Subtype=Name.Text, Rect=[1, 1, 9, 9], Contents=String(_SECRET))
    )
    note.Popup = annotate(made, 0, Dictionary(Type=Name.Annot, Subtype=Name.Popup, Rect=[1, 1, 9, 9], Parent=note))
    annotate(made, 0, Dictionary(Type=Name.Annot, Subtype=Name.Text, Rect=[1, 1, 9, 9], IRT=note))


def _link(made: Pdf) -> None:
    link(0, Dest=at(made, _DELETED), Contents=String(_SECRET))(made)


def _link_that_others_refer_to(made: Pdf) -> None:
    _link(made)
    made.Root.Unknown = Array([made.pages[0].obj.Annots[0]])


def _field_that_others_refer_to(made: Pdf) -> None:
    _field_with_kids(made)
    link(0, A=Dictionary(S=Name.ResetForm, Fields=Array([made.Root.AcroForm.Fields[0]])))(made)


def _shared_resources(made: Pdf) -> None:
    """One dictionary of all pages, with what only the deleted one draws."""
    shared = made.make_indirect(made.pages[0].obj.Resources)
    form = _stream(made, Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 9, 9])
    tile = _stream(made, PatternType=1, PaintType=1, TilingType=1, BBox=[0, 0, 9, 9], XStep=9, YStep=9)
    tile.Resources = Dictionary()
    shared.XObject = Dictionary(Fo=form)
    shared.ExtGState = Dictionary(Gs=made.make_indirect(Dictionary(SMask=Dictionary(S=Name.Luminosity, G=form))))
    shared.Pattern = Dictionary(Pa=tile)
    shared.Properties = Dictionary(
        Pr=Dictionary(ActualText=String(_SECRET)), Kept=Dictionary(ActualText=String(_PUBLIC))
    )
    for page in made.pages:
        page.obj.Resources = shared
        page.contents_add(b"/Span /K#65pt BDC EMC")
    made.pages[_DELETED].contents_add(b"/Fo Do /Gs gs /Pattern cs /P#61 scn /Span /Pr BDC 0 0 9 9 re f EMC")


def _fonts(made: Pdf) -> None:
    """Fonts that all pages list, of which the deleted page uses one."""
    fonts = made.pages[0].obj.Resources.Font
    fonts.Fs = made.make_indirect(Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name("/SECRET")))
    shared = made.make_indirect(Dictionary(Font=fonts))
    for page in made.pages:
        page.obj.Resources = shared
    made.pages[_DELETED].contents_add(b"BT /Fs 9 Tf (text) Tj ET")


def _inherited_resources(made: Pdf) -> None:
    made.Root.Pages.Resources = made.pages[0].obj.Resources
    for page in made.pages:
        del page.obj.Resources


def _own_resources(made: Pdf) -> None:
    """Each page lists the resources of all pages."""
    for page in made.pages:
        page.obj.Resources = Dictionary(dict(made.pages[0].obj.Resources.items()))
        for key in ("/XObject", "/Pattern", "/ExtGState"):
            page.obj.Resources[key] = Dictionary(dict(page.obj.Resources[key].items()))


def _layers(made: Pdf) -> None:
    names = [_PUBLIC, _SECRET, _PUBLIC]
    layers = [made.make_indirect(Dictionary(Type=Name.OCG, Name=String(name))) for name in names]
    for page, layer in zip(made.pages, layers, strict=True):
        page.obj.Resources.Properties = Dictionary(La=layer)
        page.contents_add(b"/OC /La BDC EMC")
    group = Array([String(_SECRET), layers[_DELETED]])
    usual = Dictionary(Order=Array([layers[0], group]), AS=Array([Dictionary(Event=Name.View, OCGs=Array(layers))]))
    made.Root.OCProperties = Dictionary(OCGs=Array(layers), D=usual, Configs=Array([Dictionary(OFF=Array(layers))]))


def _resources_of_fields(made: Pdf) -> None:
    """Fonts that fields name."""
    for index, text in ((0, _PUBLIC), (_DELETED, _SECRET)):
        field(index, f"field {index}", String(""), DA=String(f"/F{index} 9 Tf"))(made)
        font = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name(f"/{text}"))
        made.Root.AcroForm.DR.Font[f"/F{index}"] = made.make_indirect(font)
    made.Root.AcroForm.DA = String("/Helv 9 Tf")


def _calculation(made: Pdf) -> None:
    """A field of the deleted page that is calculated, and that another field sets back."""
    action = Dictionary(S=Name.JavaScript, JS=String(_SECRET))
    field(_DELETED, "sum", String(""), AA=Dictionary(C=action))(made)
    field(0, "kept", String(_PUBLIC), A=Dictionary(S=Name.ResetForm, Fields=made.Root.AcroForm.Fields))(made)


def _heading(made: Pdf) -> None:
    """A bookmark without a page, above those of the deleted page."""
    outline(("first", 0, True, []), (_SECRET, None, True, [("below", _DELETED, True, [])]))(made)


def _bead_without_article(made: Pdf) -> None:
    beads = [made.make_indirect(Dictionary(P=page.obj)) for page in made.pages]
    beads[_DELETED].Secret = String(_SECRET)
    for page, bead, following in zip(made.pages, beads, [*beads[1:], beads[0]], strict=True):
        page.obj.B, bead.N = Array([bead]), following


def _action(_: Pdf) -> Object:
    return Dictionary(S=Name.GoTo, D=String(_SECRET))


def _labels(_: Pdf) -> Object:
    return Dictionary(Nums=Array([0, Dictionary(S=Name.D), 1, Dictionary(P=String(_SECRET)), 2, Dictionary()]))


def _templates(made: Pdf) -> Object:
    return Dictionary(Templates=Dictionary(Names=Array([String(_SECRET), made.pages[_DELETED].obj])))


def _files(made: Pdf) -> Object:
    return Array([Dictionary(Desc=String(_SECRET), EF=Dictionary(F=_stream(made)))])


def _web_capture(made: Pdf) -> None:
    page = made.pages[_DELETED].obj
    pages = made.make_indirect(Dictionary(Type=Name.SpiderContentSet, S=Name.SPS, O=Array([page]), T=String(_SECRET)))
    tree = Dictionary(Names=Array([String("id"), pages]))
    made.Root.Names = Dictionary(IDS=tree, URLS=Dictionary(Kids=Array([made.make_indirect(tree)])))


def _parts(made: Pdf) -> Object:
    page = made.pages[_DELETED].obj
    leaf = made.make_indirect(Dictionary(Start=page, End=page, DPM=Dictionary(Recipient=String(_SECRET))))
    return Dictionary(DPartRootNode=made.make_indirect(Dictionary(DParts=Array([Array([leaf])]))))


_REFERENCES: dict[str, Extra] = {
    "nothing": lambda made: None,
    "outline": outline((_SECRET, _DELETED, True, [(f"{_SECRET} below", _DELETED, True, [])]), (_PUBLIC, 2, True, [])),
    "outline with other pages below": outline((_SECRET, _DELETED, True, [(_PUBLIC, 2, True, [])])),
    "outline by action": outline((_SECRET, Dictionary(S=Name.GoTo, D=Array([_DELETED, Name.Fit])), True, [])),
    "named destination": _all(named(_SECRET, _DELETED), outline((_SECRET, _SECRET, True, []))),
    "link": _link,
    "link that others refer to": _link_that_others_refer_to,
    "link by name": _all(named(_SECRET, _DELETED), link(0, A=Dictionary(S=Name.GoTo, D=String(_SECRET)))),
    "start": _all(named(_SECRET, _DELETED), _on_root("/OpenAction", _action)),
    "article": _articles,
    "text of an element": _structure(_set(ActualText=String(_SECRET), Alt=String(_SECRET), E=String(_SECRET))),
    "title of an element": _structure(_set(T=String(_SECRET), A=Dictionary(O=Name.Table, Summary=String(_SECRET)))),
    "element of a link": _structure(_of_link),
    "element without content": _structure(_without_content),
    "element within": _structure(_figure_within),
    "element that others refer to": _structure(_referred),
    "element of two pages": _structure(_spanning),
    "field": field(_DELETED, _SECRET, String(_SECRET), DV=String(_SECRET), TU=String(_SECRET)),
    "field with kids": _field_with_kids,
    "field that others refer to": _field_that_others_refer_to,
    "form by XFA": _xfa,
    "annotations": _annotations,
    "label": _on_root("/PageLabels", _labels),
    "template": _on_root("/Names", _templates),
    "web capture": _web_capture,
    "thumbnail": _on_page("/Thumb", lambda made: _stream(made, Width=1, Height=1)),
    "private data of the page": _on_page("/PieceInfo", _private),
    "private data of another page": _on_page("/PieceInfo", _private, 0),
    "private data of the document": _on_root("/PieceInfo", _private),
    "metadata": _on_page("/Metadata", lambda made: _stream(made, Type=Name.Metadata)),
    "file of the page": _on_page("/AF", _files),
    "parts of the document": _on_root("/DPartRoot", _parts),
    "shared resources": _shared_resources,
    "fonts": _fonts,
    "inherited resources": _all(_shared_resources, _inherited_resources),
    "all resources on each page": _all(_shared_resources, _own_resources),
    **{kind: contents(kind) for kind in KINDS},
    "layers": _layers,
    "resources of fields": _resources_of_fields,
    "calculation": _calculation,
    "heading": _heading,
    "bead without an article": _bead_without_article,
    "resources of a form by XFA": _on_root(
        "/Names", lambda made: Dictionary(XFAResources=Dictionary(Names=Array([String(_SECRET), _stream(made)])))
    ),
    "unknown entry": _on_root("/Unknown", lambda made: Array([Dictionary(Page=made.pages[_DELETED].obj)])),
    "separations": _on_page("/SeparationInfo", lambda made: Dictionary(Pages=Array([made.pages[_DELETED].obj])), 0),
}  # fmt: skip


def _select(data: bytes) -> bytes:
    return convert(data, "pdf", pages="1,3").data


_TOOLS = {"pdf-delete-pages": "2", "pdf-extract-pages": "1,3", "pdf-split": "1,3"}
_REMOVALS = [
    _select,
    *(partial(lambda tool, data: run_tool(tool, data, pages=_TOOLS[tool]).data, tool) for tool in _TOOLS),
]


@pytest.mark.parametrize("name", _REFERENCES)
@pytest.mark.parametrize("remove", _REMOVALS, ids=["pages", *_TOOLS])
def test_no_text_of_a_deleted_page_is_left(remove: Callable[[bytes], bytes], name: str) -> None:
    def content(made: Pdf) -> None:
        made.pages[_DELETED].contents_add(b"BT /F1 9 Tf (SECRET) Tj ET")

    whole = document("A", 3, content, _REFERENCES[name])
    found = " ".join(all_texts(whole))
    assert _SECRET in found

    result = remove(whole)

    left = list(all_texts(result))
    assert [text for text in left if _SECRET in text or "A page 2" in text] == []
    assert (_PUBLIC in " ".join(left)) is (_PUBLIC in found)
    assert page_texts(result) == ["A page 1", "A page 3"]
    opened(result)


@pytest.mark.parametrize(
    ("kind", "kept", "seconds"),
    [("form", {"/Fo"}, 1), ("form with resources of the page", {"/Fo", "/Unused", "/X0", "/X1", "/X2"}, 2)],
)
@pytest.mark.parametrize("remove", _REMOVALS, ids=["pages", *_TOOLS])
def test_content_that_cannot_be_read_keeps_its_resources(
    remove: Callable[[bytes], bytes], kind: str, kept: set[str], seconds: int
) -> None:
    def broken(made: Pdf) -> None:
        contents(kind)(made)
        drawn = made.pages[0].obj.Resources.XObject
        drawn.Unused = made.make_stream(b"")
        drawn.Fo.write(b"no deflated data", filter=Name.FlateDecode)

    with pikepdf.open(BytesIO(remove(document("A", 3, broken)))) as read:
        first, second = (page.obj.Resources.XObject for page in read.pages)
        assert first.keys() == kept
        assert len(second.Fo.Resources.XObject if "/Resources" in second.Fo else second) == seconds
        assert "/Resources" not in first.Fo or len(first.Fo.Resources.XObject) == 3
