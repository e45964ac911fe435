"""PDF/UA-1: what programs that read to people need beside the structure, which the maker of the pages writes."""

from __future__ import annotations

from collections.abc import Iterator

from pikepdf import Dictionary, Name, NamePath, Pdf, String

from engine import InvalidOption
from plugins._pdf.archive_claims import packet_of
from plugins._pdf.objects import annotations_of, saved

_CLAIM = b"pdfuaid:part"


def accessible(document: Pdf, param: str) -> bytes:
    """The document, whose maker claims that it is PDF/UA-1, with the entries that makers leave out.

    Raises InvalidOption, reason `unsupported`, with what it lacks. `param` is the name of the option.
    """
    if lacking := [*_lacking(document)]:
        message = f"The PDF cannot become PDF/UA-1: {'; '.join(lacking)}."
        raise InvalidOption(message, reason="unsupported", param=param)
    preferences = document.Root.get("/ViewerPreferences", Dictionary())
    preferences.DisplayDocTitle = True
    document.Root.ViewerPreferences = preferences
    for page in document.pages:
        links = annotations_of(page.obj)
        if links:
            page.obj.Tabs = Name.S
        for link in links:
            if "/Contents" not in link:
                link.Contents = link.get(NamePath.A.URI, String("Link"))
    return saved(document)


def _lacking(document: Pdf) -> Iterator[str]:
    """What a document lacks that is not added."""
    root = document.Root
    structure = root.get("/StructTreeRoot")
    if _CLAIM not in packet_of(document) or structure is None or not root.get(NamePath.MarkInfo.Marked):
        yield "only texts, slides, HTML and Markdown become it, with their metadata"
        return
    if not str(root.get("/Lang", "")):
        yield "its language is not known"
    if not str(document.docinfo.get("/Title", "")).strip():
        yield "it has no title"
    figures = (one for one in document.objects if isinstance(one, Dictionary) and one.get("/S") == Name.Figure)
    if count := sum(not (one.get("/Alt") or one.get("/ActualText")) for one in figures):
        yield f"images without an alternative text: {count}"
    if any("/StructParent" not in one for page in document.pages for one in annotations_of(page.obj)):
        yield "links or comments are not in its structure"
    fonts = (one for one in document.objects if isinstance(one, Dictionary) and one.get("/Type") == Name.FontDescriptor)
    if not all({"/FontFile", "/FontFile2", "/FontFile3"}.intersection(one.keys()) for one in fonts):
        yield "fonts are not in the file"
