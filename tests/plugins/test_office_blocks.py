"""The structure of DOCX, as Pandoc reads and writes it."""

import json
from typing import Any

import pytest

from engine import Blocks, CorruptInput
from engine.blocks import Heading, ItemList, ListItem, Paragraph, Picture, Run
from plugins._blocks.pandoc import PANDOC
from plugins._pixels.pillow import encode
from plugins.formats.office_blocks import conversions
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import quadrants
from tests.support.samples.office_files import docx

pytestmark = pytest.mark.skipif(not PANDOC.present, reason="Pandoc is not installed")

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_BOX = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _document(body: str, **parts: str) -> bytes:
    spaces = f'xmlns:w="{_W}" xmlns:wps="{_BOX}" xmlns:r="{_R}"'
    return docx(parts={"word/document.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>", **parts})


def _paragraph(text: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def _blocks(data: bytes, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(convert(data, "json", **options).data)["blocks"]
    return found


def test_tables_keep_cells_that_cover_others() -> None:
    wide = f'<w:tc><w:tcPr><w:gridSpan w:val="2"/></w:tcPr>{_paragraph("wide")}</w:tc>'
    cells = "".join(f"<w:tc>{_paragraph(text)}</w:tc>" for text in ("left", "right"))
    grid = '<w:tblPr/><w:tblGrid><w:gridCol w:w="9"/><w:gridCol w:w="9"/></w:tblGrid>'
    data = _document(f"<w:tbl>{grid}<w:tr>{wide}</w:tr><w:tr>{cells}</w:tr></w:tbl>")
    (table,) = _blocks(data)
    assert [
        [(cell["blocks"][0]["runs"][0]["text"], cell.get("colspan", 1)) for cell in row] for row in table["rows"]
    ] == [
        [("wide", 2)],
        [("left", 1), ("right", 1)],
    ]


def test_the_text_of_boxes_follows_their_paragraph() -> None:
    box = f"<w:r><wps:txbx><w:txbxContent>{_paragraph('boxed')}</w:txbxContent></wps:txbx></w:r>"
    result = convert(_document(f"<w:p><w:r><w:t>before</w:t></w:r>{box}</w:p>{_paragraph('after')}"), "json")
    texts = [block["runs"][0]["text"] for block in json.loads(result.data)["blocks"]]
    assert (texts, codes(result)) == (["before", "boxed", "after"], set())


@pytest.mark.parametrize(
    ("markup", "runs"),
    [
        ("final", [("a new", None)]),
        ("original", [("a ", None), ("old", None)]),
        ("all", [("a ", None), ("new", "inserted"), ("old", "deleted")]),
    ],
)
def test_tracked_changes(markup: str, runs: list[tuple[str, str | None]]) -> None:
    by = 'w:author="A" w:date="2026-01-01T00:00:00Z"'
    changed = (
        f'<w:ins w:id="1" {by}><w:r><w:t>new</w:t></w:r></w:ins>'
        f'<w:del w:id="2" {by}><w:r><w:delText>old</w:delText></w:r></w:del>'
    )
    data = _document(f'<w:p><w:r><w:t xml:space="preserve">a </w:t></w:r>{changed}</w:p>')
    (block,) = _blocks(data, markup=markup)
    assert "".join(text for text, _ in runs) == "".join(run["text"] for run in block["runs"])
    assert {run.get("change") for run in block["runs"]} == {change for _, change in runs}


def test_words_that_are_lost_are_told() -> None:
    """Pandoc reads no phonetic guides."""
    ruby = (
        "<w:ruby><w:rt><w:r><w:t>reading</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>base</w:t></w:r></w:rubyBase></w:ruby>"
    )
    result = convert(_document(f"<w:p><w:r>{ruby}</w:r></w:p>{_paragraph('kept')}"), "json")
    assert "text_dropped" in codes(result)


def test_a_document_survives_docx() -> None:
    """Headings, lists with their kinds, links, notes, and pictures with their bytes and sizes."""
    picture = Picture(encode(quadrants(), "PNG"), "image/png", "what it shows", 72.0, 36.0)
    inner = ItemList((ListItem((Paragraph((Run("inner"),)),)),))
    numbered = ItemList((ListItem((Paragraph((Run("third"),)), inner)),), kind="numbers", start=3)
    content = (
        Heading(2, (Run("Heading"),), "heading"),
        numbered,
        Paragraph((Run("text "), Run("bold", bold=True), Run(" and "), Run("link", link="https://a.example/"))),
        Paragraph((Run("noted"), Run(note=(Paragraph((Run("a note"),)),)))),
        Paragraph((Run(picture=picture),)),
    )
    reader, writer = (
        next(step for step in conversions() if (str(step.source), str(step.target)) == pair)
        for pair in (("docx", "blocks"), ("blocks", "docx"))
    )
    read = reader(writer(Blocks(content, title="Title")))
    assert (read.title, read.content) == ("Title", (Heading(1, (Run("Title"),)), *content))


def test_a_damaged_document_is_refused() -> None:
    with pytest.raises(CorruptInput):
        convert(docx(parts={"word/document.xml": "<w:document>"}), "json")
