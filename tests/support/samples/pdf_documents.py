"""Generated PDFs with all kinds of references to pages, and with contents within others, which share resources."""

from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any

import pikepdf
import pypdfium2
from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream, String

from engine import pipeline
from engine.mupdf import pymupdf
from engine.options import OptionValue, validate_options
from engine.pipeline import PipelineResult
from engine.registry import load_registry

REGISTRY = load_registry()
READING = [name for name, tool in REGISTRY.tools.items() if "pdf" in [source.name for source in tool.sources]]
Extra = Callable[[Pdf], None]
Item = tuple[str, Any, bool, list[Any]]


def saved(document: Pdf, **parameters: Any) -> bytes:
    file = BytesIO()
    document.save(file, **parameters)
    return file.getvalue()


def opened(data: bytes, password: str = "") -> Pdf:
    """Opens the document. Asserts that it is valid."""
    document = pikepdf.open(BytesIO(data), password=password)
    assert document.check_pdf_syntax() == []
    return document


def page_texts(data: bytes) -> list[str]:
    """The text of each page, as PDFium reads it."""
    return [page.get_textpage().get_text_bounded().strip() for page in pypdfium2.PdfDocument(data)]


def all_texts(data: bytes) -> Iterator[str]:
    """All strings, names of keys and decompressed streams of a file."""
    with pikepdf.open(BytesIO(data)) as read:
        pending: list[Any] = [read.trailer, *read.objects]
        while pending:
            item = pending.pop()
            if isinstance(item, String | Name):
                yield str(item)
                yield bytes(item).decode("latin-1")
            elif isinstance(item, Array):
                pending += [one for one in item if _is_direct(one)]
            elif isinstance(item, Dictionary | Stream):
                yield from item.keys()
                pending += [value for _, value in item.items() if _is_direct(value)]
                if isinstance(item, Stream):
                    yield item.read_bytes().decode("latin-1")


def _is_direct(item: Any) -> bool:
    return isinstance(item, Object) and not item.is_indirect


def without_object_streams(data: bytes) -> bytes:
    """The document without compressed objects and without its identifier."""
    opened = pymupdf.open(stream=data)
    opened.xref_set_key(-1, "ID", "null")
    return bytes(opened.tobytes(use_objstms=0, no_new_id=True))


def document(name: str, pages: int, *extras: Extra) -> bytes:
    """Uncompressed pages with the text "<name> page <number>", and the additions of `extras`."""
    made = Pdf.new()
    font = made.make_indirect(Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica))
    for number in range(1, pages + 1):
        page = made.add_blank_page(page_size=(200 + number, 300))
        page.obj.Resources = Dictionary(Font=Dictionary(F1=font))
        page.obj.Contents = made.make_stream(f"BT /F1 12 Tf 20 100 Td ({name} page {number}) Tj ET".encode())
    for extra in extras:
        extra(made)
    return saved(made, compress_streams=False, object_stream_mode=pikepdf.ObjectStreamMode.disable)


def run(tool: str | None, *inputs: bytes, **options: OptionValue | None) -> PipelineResult:
    """Runs a tool that writes one PDF, or the conversion of PDF to PDF. An option that is None is not set."""
    given = {name: value for name, value in options.items() if value is not None}
    plan = REGISTRY.plan([REGISTRY.formats["pdf"]] * len(inputs), "pdf", tool, given)
    known = REGISTRY.tool_options(tool) if tool else REGISTRY.options
    return pipeline.run(plan, inputs, validate_options(known, given))


merge, compress = partial(run, "pdf-merge"), partial(run, "pdf-compress")


def delete(data: bytes, pages: str, password: str | None = None) -> PipelineResult:
    return run("pdf-delete-pages", data, pages=pages, password=password)


def at(made: Pdf, index: int, top: int = 300) -> Array:
    """A destination on the page, counted from 0."""
    return Array([made.pages[index].obj, Name.XYZ, 0, top, 0])


def outline(*items: Item) -> Extra:
    """Items as title, target (a page, a name or an action), open, and items below."""

    def add(made: Pdf) -> None:
        made.Root.Outlines = made.make_indirect(Dictionary(Type=Name.Outlines))
        _add_items(made, made.Root.Outlines, items)

    return add


def _add_items(made: Pdf, parent: Object, items: Any) -> int:
    before, shown = None, 0
    for title, target, is_open, below in items:
        item = made.make_indirect(Dictionary(Title=String(title), Parent=parent, C=Array([1, 0, 0]), F=2))
        if isinstance(target, Dictionary):
            item.A = target
        elif target is not None:
            item.Dest = at(made, target) if isinstance(target, int) else target
        if before is None:
            parent.First = item
        else:
            before.Next, item.Prev = item, before
        parent.Last = before = item
        inner = _add_items(made, item, below)
        if inner:
            item.Count = inner if is_open else -inner
        shown += 1 + (inner if is_open else 0)
    if shown:
        parent.Count = shown
    return shown


def link(index: int, **target: Any) -> Extra:
    """A link on a page; `Dest`, `A`, or `to`, the index of a page."""

    def add(made: Pdf) -> None:
        keys = {"Dest": at(made, target["to"])} if "to" in target else target
        annotation = Dictionary(Type=Name.Annot, Subtype=Name.Link, Rect=[10, 10, 50, 50], **keys)
        annotate(made, index, annotation)

    return add


def annotate(made: Pdf, index: int, annotation: Object) -> Object:
    page = made.pages[index].obj
    annotation = made.make_indirect(annotation)
    annotation.P = page
    page.Annots = Array([*(page.get("/Annots") or ()), annotation])
    return annotation


def named(string: str, index: int) -> Extra:
    """A destination in the name tree, and one of the same name in the dictionary of PDF 1.1."""

    def add(made: Pdf) -> None:
        made.Root.Names = made.Root.get("/Names") or Dictionary()
        tree = made.Root.Names.get("/Dests") or Dictionary(Names=Array())
        tree.Names = Array([*tree.Names, String(string), Dictionary(D=at(made, index))])
        made.Root.Names.Dests = tree
        made.Root.Dests = made.Root.get("/Dests") or Dictionary()
        made.Root.Dests["/" + string] = at(made, index)

    return add


def field(index: int, name: str, value: Any, **keys: Any) -> Extra:
    """A text field on a page, or another kind by its keys."""

    def add(made: Pdf) -> None:
        if "/AcroForm" not in made.Root:
            font = made.make_indirect(Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Courier))
            resources = Dictionary(Font=Dictionary(Helv=font))
            made.Root.AcroForm = made.make_indirect(
                Dictionary(Fields=Array(), DR=resources, DA=String("/Helv 9 Tf 0 g"), CO=Array())
            )
        described = {"FT": Name.Tx, "T": String(name), "V": value, **keys}
        widget = Dictionary(Type=Name.Annot, Subtype=Name.Widget, Rect=[10, 200, 90, 220], **described)
        placed = annotate(made, index, widget)
        made.Root.AcroForm.Fields.append(placed)
        made.Root.AcroForm.CO.append(placed)

    return add


def tagged(made: Pdf) -> None:
    """A paragraph for every page."""
    root = made.Root.StructTreeRoot = made.make_indirect(Dictionary(Type=Name.StructTreeRoot, K=Array()))
    parents = Array()
    for number, page in enumerate(made.pages):
        text = String(f"spoken {number + 1}")
        element = made.make_indirect(Dictionary(S=Name.P, P=root, Pg=page.obj, K=0, ActualText=text))
        root.K.append(element)
        page.obj.StructParents = number
        parents.append(number)
        parents.append(Array([element]))
    root.ParentTree = Dictionary(Nums=parents)
    made.Root.MarkInfo = Dictionary(Marked=True)


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
