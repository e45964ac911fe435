"""The structure of DOCX, as Pandoc reads and writes it."""

import json
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest

from engine import AnyConversion, Blocks, CorruptInput, TimedOut, TooLarge
from engine.blocks import Break, Cell, Heading, ItemList, ListItem, Paragraph, Picture, Run, Table
from plugins._blocks import pandoc
from plugins._blocks.pandoc import PANDOC
from plugins._office.libreoffice import LIBREOFFICE
from plugins._pixels.pillow import encode
from plugins.formats.office_blocks import conversions
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import quadrants
from tests.support.samples.office_files import docx

pytestmark = pytest.mark.skipif(not PANDOC.present, reason="Pandoc is not installed")

_W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_BOX = "http://schemas.microsoft.com/office/word/2010/wordprocessingShape"
_MC = "http://schemas.openxmlformats.org/markup-compatibility/2006"
_ALTERNATIVES = (
    f'<mc:AlternateContent xmlns:mc="{_MC}"><mc:Choice Requires="new"/>'
    "<mc:Fallback>{}</mc:Fallback></mc:AlternateContent>"
)
_CHOICE = '<w:ddList><w:result w:val="1"/><w:listEntry w:val="a"/><w:listEntry w:val="b"/></w:ddList>'
_R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def _document(body: str, **parts: str) -> bytes:
    spaces = f'xmlns:w="{_W}" xmlns:wps="{_BOX}" xmlns:r="{_R}"'
    return docx(parts={"word/document.xml": f"<w:document {spaces}><w:body>{body}</w:body></w:document>", **parts})


def _part(text: str) -> str:
    return f'<w:document xmlns:w="{_W}"><w:body>{_paragraph(text)}</w:body></w:document>'


def _run(text: str) -> str:
    return f'<w:r><w:t xml:space="preserve">{text}</w:t></w:r>'


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


@pytest.mark.parametrize(
    ("body", "note"),
    [
        ("<w:p/>" * 3_000_000, ""),
        ("<w:p/>" * 40_001, ""),
        (f"<w:p>{'<w:hyperlink/>' * 40_001}</w:p>", ""),
        ('<w:p><w:r><w:footnoteReference w:id="2"/></w:r></w:p>' * 1_501, "word " * 1_000),
    ],
)
def test_what_takes_long_to_read_is_refused(body: str, note: str) -> None:
    notes = f'<w:footnotes xmlns:w="{_W}"><w:footnote w:id="2">{_paragraph(note)}</w:footnote></w:footnotes>'
    with pytest.raises(TooLarge):
        convert(_document(body, **{"word/footnotes.xml": notes}), "md")


def test_neighbors_of_one_style_and_marks_between_paragraphs_are_read() -> None:
    """Runs are joined in their order, and marks go to the next paragraph."""
    link = f'<w:p><w:hyperlink w:anchor="a">{_run("link")}</w:hyperlink></w:p>'
    mark = '<w:bookmarkStart w:id="1" w:name="a"/>'
    runs = "".join(map(_run, ("one ", "two ", "three")))
    found = _blocks(_document(f"{link}{mark}<w:tbl/><w:p>{runs}</w:p>"))
    assert [run for block in found for run in block["runs"]] == [
        {"text": "link", "link": "#a"},
        {"anchor": "a"},
        {"text": "one two three"},
    ]


def _relations(*listed: tuple[str, str]) -> str:
    items = "".join(
        f'<Relationship Id="r{number}" Type="{_R}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(listed)
    )
    return f'<Relationships xmlns="{_R.replace("officeDocument", "package")}">{items}</Relationships>'


def test_words_of_charts_are_told() -> None:
    chart = f'<w:p><w:r><w:drawing><c:chart xmlns:c="urn:c" r:id="r0"/></w:drawing></w:r></w:p>{_paragraph("kept")}'
    parts = {
        "word/charts/chart1.xml": '<c xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"><a:p><a:t>x</a:t></a:p></c>',
        "word/_rels/document.xml.rels": _relations(("chart", "charts/chart1.xml")),
    }
    result = convert(_document(chart, **parts), "json")
    assert codes(result) == {"text_dropped"}
    assert [run["text"] for block in json.loads(result.data)["blocks"] for run in block["runs"]] == ["kept"]


def _field(command: str, result: str, mark: str = "") -> str:
    begin, separate, end = (
        f'<w:fldChar w:fldCharType="{kind}">{mark if kind == "begin" else ""}</w:fldChar>'
        for kind in ("begin", "separate", "end")
    )
    half = len(command) // 2
    return (
        f"<w:r>{begin}<w:instrText>{command[:half]}</w:instrText></w:r><w:r><w:instrText>{command[half:]}</w:instrText>{separate}"
        f"<w:t>{result}</w:t>{end}</w:r>"
    )


def _symbol(font: str, code: str) -> str:
    return f'<w:r><w:sym w:font="{font}" w:char="{code}"/></w:r>'


def _in_font(font: str, text: str) -> str:
    return f'<w:r><w:rPr><w:rFonts w:ascii="{font}" w:hAnsi="{font}"/></w:rPr><w:t>{text}</w:t></w:r>'


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (_field(' HYPERLINK "http://a.example/" \\o "tip" ', "link"), [("link", "http://a.example/")]),
        (_field('HYPERLINK "http://a.example/" \\l "part"', "link"), [("link", "http://a.example/#part")]),
        (_field("REF place \\h", "reference"), [("reference", "#place")]),
        (_field("DATE", "today"), [("today", "")]),
        (f"<w:fldSimple w:instr='HYPERLINK \"http://a.example/\"'>{_run('link')}</w:fldSimple>", [("link", "http://a.example/")]),
        (f"<w:ins>{_field('HYPERLINK http://a.example/', 'new')}</w:ins>", [("new", "http://a.example/")]),
        (_field("FORMCHECKBOX", "", "<w:checkBox><w:checked/></w:checkBox>"), [("☒", "")]),
        (_field("FORMDROPDOWN", "", _CHOICE), [("b", "")]),
        (f"<w:r><w:ruby><w:rt>{_run('b')}</w:rt><w:rubyBase>{_run('a')}</w:rubyBase></w:ruby></w:r>", [("a(b)", "")]),
        (f"<w:customXml><w:smartTag>{_run('tagged')}</w:smartTag></w:customXml>", [("tagged", "")]),
        (_ALTERNATIVES.format(_run("other")), [("other", "")]),
        ('<w:r><w:fldChar w:fldCharType="begin"/></w:r>' + _run("it never ends"), [("it never ends", "")]),
        (_symbol("Wingdings", "F0E0") + _symbol("Segoe UI Symbol", "2611") + _symbol("Symbol", "F0AE"), [("→☑→", "")]),
        (_in_font("Wingdings", "\uf0fcü"), [("✓✓", "")]),
        ("<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t><w:softHyphen/><w:t>c</w:t></w:r>", [("a\u2011b\xadc", "")]),
        (_run("a") + "<w:r><w:rPr><w:vanish/></w:rPr><w:t>hidden</w:t></w:r>" + _run("b"), [("ab", "")]),
        ('<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t>shown</w:t></w:r>', [("shown", "")]),
    ],
)  # fmt: skip
def test_what_runs_hold(content: str, expected: list[tuple[str, str]]) -> None:
    result = convert(_document(f"<w:p>{content}</w:p>"), "json")
    (block,) = json.loads(result.data)["blocks"]
    assert [(run.get("text", ""), run.get("link", "")) for run in block["runs"]] == expected
    assert codes(result) == set()


@pytest.mark.parametrize(("font", "code"), [("Wingdings", "F021"), ("Wingdings 2", "F050"), ("Other", "no code")])
def test_symbols_without_unicode_are_told(font: str, code: str) -> None:
    result = convert(_document(f"<w:p>{_run('a')}{_symbol(font, code)}{_run('b')}</w:p>"), "txt")
    assert (result.data, codes(result)) == (b"ab\n", {"text_dropped"})


@pytest.mark.parametrize(("markup", "texts"), [("final", ["onetwothree"]), ("original", ["one", "two", "three"])])
def test_paragraphs_whose_end_is_deleted_are_joined(markup: str, texts: list[str]) -> None:
    deleted = "<w:rPr><w:del/></w:rPr>"
    data = _document(_paragraph("one", deleted) + _paragraph("two", deleted) + _paragraph("three"))
    assert [block["runs"][0]["text"] for block in _blocks(data, markup=markup)] == texts


@pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")
@pytest.mark.parametrize(
    ("text", "warnings"),
    [
        (rb"a\par\pard\intbl\itap50 lost\nestcell\cell\row", ["1 of 2 words are not in the result: lost."]),
        (rb"caf\'e9s na\u239?ve don\'92t wo\b rd\b0  sec\-ond{\*\x y}{\v z}{\field{\*\fldinst PAGE}{\fldrslt 9}}", []),
        (rb"one\emdash two\rquote s \ldblquote three\rdblquote four{\footnote note}d", []),
        (rb"{\header top}{\info{\title t}}kept", []),
        (rb"{\deleted gone}kept", []),
    ],
    ids=["lost", "shown", "marks", "apart", "deleted"],
)
def test_words_of_rtf_that_libreoffice_leaves_out_are_told(text: bytes, warnings: list[str]) -> None:
    result = convert(rb"{\rtf1\ansi{\fonttbl{\f0 Arial;}}" + text + b"}", "txt")
    assert [one.message for one in result.outcome.warnings] == warnings


def test_the_strict_variant_is_read() -> None:
    strict = "http://purl.oclc.org/ooxml/wordprocessingml/main"
    data = docx(parts={"word/document.xml": _part("strict").replace(_W, strict)})
    assert [block["runs"][0]["text"] for block in _blocks(data)] == ["strict"]


def test_properties_are_no_text() -> None:
    core = (
        '<cp:coreProperties xmlns:cp="urn:cp" xmlns:dc="urn:dc"><dc:title>Title</dc:title><dc:creator>A; B</dc:creator>'
        "<dc:subject>S</dc:subject><cp:keywords>k, l</cp:keywords><dc:language>de-AT</dc:language></cp:coreProperties>"
    )
    tree = json.loads(convert(docx("text", parts={"docProps/core.xml": core}), "json").data)
    assert [block["runs"][0]["text"] for block in tree.pop("blocks")] == ["text"]
    assert tree == {
        "type": "document",
        "title": "Title",
        "authors": ["A", "B"],
        "subject": "S",
        "keywords": ["k", "l"],
        "language": "de-AT",
    }


def test_pictures_elsewhere_are_told() -> None:
    relations = _relations(("image", "http://a.example/a.png")).replace("/>", ' TargetMode="External"/>')
    result = convert(docx("text", parts={"word/_rels/document.xml.rels": relations}), "json")
    assert codes(result) == {"resource_not_loaded"}


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
    written = _step("blocks", "docx")(Blocks(content, title="Title"))
    read = _step("docx", "blocks")(written)
    assert (read.title, read.content) == ("Title", content)  # a title that the text does not have is a property


@pytest.mark.parametrize("rows", [[("a", "b"), ("c",)], [("a",), (), ("b", "c")]])
def test_rows_of_different_lengths_are_written(rows: list[tuple[str, ...]]) -> None:
    table = Table([tuple(map(Cell, row)) for row in rows])
    (read,) = _step("docx", "blocks")(_step("blocks", "docx")(Blocks((table,)))).content
    assert [[cell.text for cell in row] for row in read.rows] == [[*row, *[""] * (2 - len(row))] for row in rows]


def _step(source: str, target: str) -> AnyConversion:
    return next(step for step in conversions() if (str(step.source), str(step.target)) == (source, target))


@pytest.mark.parametrize(
    ("format", "part", "page_break", "grid"),
    [
        ("docx", "word/document.xml", b'<w:br w:type="page"', b""),
        ("odt", "content.xml", b'text:style-name="Break"', b"fo:border"),
    ],
)
def test_what_styles_of_written_documents_have(format: str, part: str, page_break: bytes, grid: bytes) -> None:
    """Titles and authors are properties, tables have grids, pages end, and links lead to headings."""
    heading = Heading(1, (Run("A place"),))
    link = Paragraph((Run("link", link="#a-place"),))
    content = (link, Break("page"), heading, Table(((Cell("cell"),),)))
    for title in ("Unseen", "A place"):
        first = content if title == "Unseen" else (heading, *content)
        data = _step("blocks", format)(Blocks(first, title=title, authors=("Nobody",), keywords=("word",)))
        with ZipFile(BytesIO(data)) as archive:
            text = archive.read(part)
            styles = archive.read("word/styles.xml") if format == "docx" else text
            properties = archive.read("docProps/core.xml" if format == "docx" else "meta.xml")
        assert b"Unseen" not in text
        assert b"Nobody" not in text
        assert b"Nobody" in properties
        assert (b'"Title"' in text) == (title == "A place")
        assert page_break in text
        assert text.count(b'"a-place"') >= 1
        assert (grid or b"<w:tblBorders>") in styles


def test_a_damaged_document_is_refused() -> None:
    with pytest.raises(CorruptInput, match="The document is damaged"):
        convert(docx(parts={"word/document.xml": "<w:document>"}), "json")


def test_notes_that_hold_themselves_end() -> None:
    reference = '<w:r><w:footnoteReference w:id="1"/></w:r>'
    note = f'<w:footnote w:id="1"><w:p>{_run("note")}{reference}</w:p></w:footnote>'
    notes = f'<w:footnotes xmlns:w="{_W}">{note}</w:footnotes>'
    parts = {"word/footnotes.xml": notes, "word/_rels/document.xml.rels": _relations(("footnotes", "footnotes.xml"))}
    (block,) = _blocks(_document(f"<w:p>{_run('noted')}{reference}</w:p>", **parts))
    assert [run.get("text") for run in block["runs"]] == ["noted", None]
    assert [run["text"] for note in block["runs"][1]["note"] for run in note["runs"]] == ["note"]


@pytest.mark.parametrize(("limit", "value", "error"), [("v", 200_000, MemoryError), ("t", 1, TimedOut)])
def test_limits_that_the_program_reaches_are_told(
    limit: str, value: int, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no faults of the file."""
    limited = ("/bin/sh", "-c", f'ulimit -S{limit} {value} && exec "$0" "$@"', *pandoc.PROGRAMS)
    monkeypatch.setattr(pandoc, "PROGRAMS", limited)
    with pytest.raises(error):
        pandoc.read(b"- *a* [b](c)\n\n" * 100_000, "markdown")
