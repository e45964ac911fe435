"""Active content of PDFs is told when it is in the result, and removed by `sanitize`; links are none."""

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any
from zlib import compress

import pikepdf
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream, String

from engine import pipeline
from engine.pipeline import PipelineResult
from tests.support.samples import pdf_documents as pdf

_SCRIPT = Dictionary(S=Name.JavaScript, JS=String("app.alert('MARK')"))
_PROGRAM = Dictionary(S=Name.Launch, F=String("MARK.exe"))
_SUBMISSION = Dictionary(S=Name.SubmitForm, F=String("https://example.com/MARK"))
_IMPORT = Dictionary(S=Name.ImportData, F=String("MARK.fdf"))
_REMOTE = Dictionary(S=Name.GoToR, F=String("MARK.pdf"), D=Array([0, Name.Fit]))
_WEB = Dictionary(S=Name.URI, URI=String("https://example.com/MARK"))


def _root(key: str, value: Callable[[Pdf], object]) -> pdf.Extra:
    def add(made: Pdf) -> None:
        made.Root[key] = value(made)

    return add


def _page(key: str, value: object) -> pdf.Extra:
    def add(made: Pdf) -> None:
        made.pages[0].obj[key] = value

    return add


def _annotation(subtype: str = "/Screen", **keys: object) -> pdf.Extra:
    def add(made: Pdf) -> None:
        described = {f"/{key}": value(made) if callable(value) else value for key, value in keys.items()}
        place = {"/Type": Name.Annot, "/Subtype": Name(subtype), "/Rect": Array([10, 10, 50, 50])}
        pdf.annotate(made, 0, Dictionary(place | described))

    return add


def _names(tree: str, name: str, value: Callable[[Pdf], object]) -> pdf.Extra:
    def add(made: Pdf) -> None:
        made.Root.Names = made.Root.get("/Names") or Dictionary()
        leaf = made.make_indirect(Dictionary(Names=Array([String(name), value(made)])))
        made.Root.Names[tree] = Dictionary(Kids=Array([leaf]))

    return add


def _file(name: str, content: bytes, **keys: object) -> Callable[[Pdf], object]:
    def make(made: Pdf) -> object:
        stream = Stream(made, content, **keys)
        specification = Dictionary(Type=Name.Filespec, F=String(name), UF=String(name), EF=Dictionary(F=stream))
        return made.make_indirect(specification)

    return make


def _xfa(script: bytes) -> pdf.Extra:
    def add(made: Pdf) -> None:
        pdf.field(0, "field", String("value"))(made)
        made.Root.AcroForm.XFA = Array([String("template"), Stream(made, b"<template>" + script + b"</template>")])

    return add


def _model(made: Pdf) -> object:
    return Stream(made, b"model", Type=Name("/3D"), OnInstantiate=Stream(made, b"MARK"))


def _hidden_link(made: Pdf) -> None:
    """An action of the page that hides a link."""
    pdf.link(0, A=_WEB)(made)
    made.pages[0].obj.AA = Dictionary(O=Dictionary(S=Name.Hide, T=made.pages[0].obj.Annots[0]))


def _links_where_the_document_opens(made: Pdf) -> None:
    pdf.link(0, A=_WEB)(made)
    pdf.link(0, A=_REMOTE)(made)
    made.Root.OpenAction = pdf.at(made, 0)


def _unused_script(made: Pdf) -> None:
    made.make_indirect(_SCRIPT)


_ACTIVE = {
    "script at the start": (_root("/OpenAction", lambda made: _SCRIPT), "JavaScript"),
    "program at the start": (_root("/OpenAction", lambda made: _PROGRAM), "Launch"),
    "web page at the start": (_root("/OpenAction", lambda made: _WEB), "OpenAction"),
    "other file at the start": (_root("/OpenAction", lambda made: _REMOTE), "OpenAction"),
    "script after a destination": (
        _root("/OpenAction", lambda made: Dictionary(S=Name.GoTo, D=pdf.at(made, 0), Next=Array([_WEB, _SCRIPT]))),
        "JavaScript, OpenAction",
    ),
    "event of the document": (_root("/AA", lambda made: Dictionary(WC=_SCRIPT)), "JavaScript"),
    "event of a page": (_page("/AA", Dictionary(O=_WEB)), "OpenAction"),
    "event of an annotation": (_annotation(AA=Dictionary(PV=_PROGRAM)), "Launch"),
    "name tree": (_names("/JavaScript", "name", lambda made: _SCRIPT), "JavaScript"),
    "link": (pdf.link(0, A=_SCRIPT), "JavaScript"),
    "program behind a link": (pdf.link(0, A=Dictionary(S=Name.URI, URI=String("web"), Next=_PROGRAM)), "Launch"),
    "outline": (pdf.outline(("title", _SCRIPT, True, [])), "JavaScript"),
    "field": (pdf.field(0, "name", String("value"), AA=Dictionary(C=_SCRIPT)), "JavaScript"),
    "button": (pdf.field(0, "name", Name.Off, FT=Name.Btn, A=_SUBMISSION), "SubmitForm"),
    "import": (pdf.field(0, "name", Name.Off, FT=Name.Btn, A=_IMPORT), "ImportData"),
    "rendition": (_annotation(A=Dictionary(S=Name.Rendition, OP=0, JS=String("MARK"))), "JavaScript"),
    "flash": (_annotation(RichMediaContent=Dictionary(Note=String("MARK"))), "Flash"),
    "model": (_annotation("/3D", **{"3DD": _model}), "JavaScript"),
    "form by XFA": (_xfa(b"<script>MARK</script>"), "JavaScript"),
    "program by name": (_names("/EmbeddedFiles", "name", _file("run.EXE", b"MARK")), "embedded program"),
    "program by content": (_names("/EmbeddedFiles", "name", _file("text.txt", b"MZ MARK")), "embedded program"),
    "compressed program": (
        _names("/EmbeddedFiles", "n", _file("data", compress(b"\x7fELF MARK"), Filter=Name.FlateDecode)),
        "embedded program",
    ),
    "program on a page": (_annotation("/FileAttachment", FS=_file("a.js", b"MARK")), "embedded program"),
}
_INACTIVE: dict[str, pdf.Extra] = {
    "destination at the start": _root("/OpenAction", lambda made: pdf.at(made, 0)),
    "action at the start": _root("/OpenAction", lambda made: Dictionary(S=Name.GoTo, D=pdf.at(made, 0))),
    "links where the document opens": _links_where_the_document_opens,
    "link that is hidden": _hidden_link,
    "outline": pdf.outline(("web", _WEB, True, []), ("file", _REMOTE, True, [])),
    "attachment": _names("/EmbeddedFiles", "name", _file("invoice.xml", b"<invoice/>")),
    "form": pdf.field(0, "name", String("value"), A=Dictionary(S=Name.ResetForm)),
    "empty name tree": _root("/Names", lambda made: Dictionary(JavaScript=Dictionary(Names=Array()))),
    "no script": pdf.link(0, A=Dictionary(S=Name.JavaScript)),
    "form by XFA": _xfa(b"<field/>"),
    "script that nothing refers to": _unused_script,
}


def _merge(data: bytes, **options: Any) -> PipelineResult:
    return pdf.merge(data, pdf.document("B", 1), **options)


_delete = partial(pdf.run, "pdf-delete-pages", pages="2")
_convert = partial(pdf.run, None)
_select = partial(pdf.run, None, pages="1")
_TOOLS: list[Callable[..., PipelineResult]] = [_merge, _delete, _convert, _select]


def _warnings(result: PipelineResult) -> list[str]:
    return [warned.message for warned in result.outcome.warnings if warned.code == "active_content"]


def test_a_deleted_page_takes_its_active_content_along() -> None:
    data = pdf.document("A", 2, pdf.link(1, A=_SCRIPT))

    assert len(_warnings(_convert(data))) == 1
    assert _warnings(_delete(data)) == _warnings(_select(data)) == []


@pytest.mark.parametrize(("plain", "escaped"), [(b"/Launch", b"/L#61unch"), (b"/JavaScript", b"/J#61vaScript")])
def test_escaped_names_are_found(plain: bytes, escaped: bytes) -> None:
    both = Dictionary(S=Name.Launch, F=String("MARK.exe"), Next=_SCRIPT)
    data = pdf.without_object_streams(pdf.document("A", 2, pdf.link(0, A=both))).replace(plain, escaped)

    assert escaped in data
    for tool in (_convert, _delete):
        assert _warnings(tool(data)) == ["The PDF has active content, which sanitize removes: JavaScript, Launch."]


def test_nothing_names_a_program_that_is_removed() -> None:
    kept = _names("/EmbeddedFiles", "text", _file("a.txt", b"text"))
    for program in (
        _names("/EmbeddedFiles", "name", _file("run.exe", b"MARK")),
        _annotation("/FileAttachment", FS=_file("a.js", b"MARK")),
    ):
        sanitized = _convert(pdf.document("A", 1, program), sanitize=True).data
        with pdf.opened(sanitized) as read:
            assert list(read.attachments) == []
            assert list(read.pages[0].obj.get("/Annots", ())) == []
    with pdf.opened(_convert(pdf.document("A", 1, kept), sanitize=True).data) as read:
        assert list(read.attachments) == ["text"]


def test_compressed_files_have_nothing_to_which_nothing_refers() -> None:
    once = pdf.compress(pdf.document("A", 1)).data
    unused = b"9 0 obj(MARK)endobj\n"
    objects, start, end = once.rpartition(b"startxref\n")
    at = int(end.split()[0])
    data = b"".join([objects[:at], unused, objects[at:], start, end.replace(b"%d" % at, b"%d" % (at + len(unused)))])

    assert pdf.compress(data).data == data  # which is not smaller without it
    assert b"MARK" not in pdf.compress(data, sanitize=True).data


def test_it_is_told_of_an_original_that_is_the_result() -> None:
    """The original is the result if converting it makes it larger."""
    data = pdf.without_object_streams(pdf.document("A", 1, pdf.link(0, A=_SCRIPT)))

    kept = _convert(data, metadata="all")

    assert [warned.code for warned in kept.outcome.warnings] == ["active_content", "kept_original"]
    assert kept.data == data
    assert b"MARK" not in _everything(_convert(data, metadata="all", sanitize=True).data)


def test_an_eps_adds_none() -> None:
    program = b"""%!PS-Adobe-3.0 EPSF-3.0
%%BoundingBox: 0 0 100 100
[/Rect [0 0 50 50] /Action /Launch /File (MARK.exe) /Subtype /Link /ANN pdfmark
[{Catalog} <</OpenAction <</S /JavaScript /JS (MARK)>>>> /PUT pdfmark
10 10 50 50 rectfill showpage
"""
    plan = pdf.REGISTRY.plan([pdf.REGISTRY.formats["eps"]], "pdf")

    assert b"MARK" not in _everything(pipeline.run(plan, [program]).data)


def test_encryption_is_kept() -> None:
    lock = pikepdf.Encryption(user="user", owner="owner", R=6)
    with pikepdf.open(BytesIO(pdf.document("A", 2, pdf.link(0, A=_SCRIPT)))) as made:
        data = pdf.saved(made, encryption=lock)

    for tool in (_delete, _convert, _select):
        read = pdf.opened(tool(data, sanitize=True, password="user").data, "user")
        assert read.encryption.R == 6
        assert "/A" not in read.pages[0].Annots[0]


def _everything(data: bytes) -> bytes:
    with pikepdf.open(BytesIO(data)) as read:
        return pdf.saved(read, stream_decode_level=pikepdf.StreamDecodeLevel.generalized, compress_streams=False)


@pytest.mark.parametrize("name", _ACTIVE)
def test_active_content_is_told_or_removed(name: str) -> None:
    extra, kinds = _ACTIVE[name]
    data = pdf.document("A", 2, extra)

    for tool in _TOOLS:
        told, sanitized = tool(data), tool(data, sanitize=True)

        if tool is _convert or b"MARK" in _everything(told.data):  # other tools drop some of it
            assert _warnings(told) == [f"The PDF has active content, which sanitize removes: {kinds}."]
        else:
            assert _warnings(told) == []
        assert _warnings(sanitized) == []
        assert b"MARK" not in _everything(sanitized.data)
        assert _warnings(_convert(sanitized.data)) == []
        assert "A page 1" in pdf.page_texts(sanitized.data)
        pdf.opened(sanitized.data)


@pytest.mark.parametrize("name", _INACTIVE)
def test_links_and_documents_are_not_active(name: str) -> None:
    data = pdf.document("A", 2, _INACTIVE[name])

    for tool in _TOOLS:
        result = tool(data)
        assert _warnings(result) == []
        assert pdf.page_texts(tool(data, sanitize=True).data) == pdf.page_texts(result.data)
