"""The structure of slides: titles, lists, tables, pictures, links and notes, and what is told of them."""

import json
import re
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import pytest
from pptx import Presentation
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.oxml import parse_xml
from pptx.oxml.ns import nsdecls, qn
from pptx.util import Pt

from engine import CorruptInput
from engine.blocks import Cell, Heading, ItemList, ListItem, Paragraph, Quote, Run, Table, own_runs
from plugins._blocks import slides
from plugins._office.libreoffice import LIBREOFFICE
from plugins._pixels.pillow import encode
from tests.support.results.conversions import codes, convert
from tests.support.samples.books import zipped
from tests.support.samples.generated import quadrants
from tests.support.samples.office_files import opendocument

_TITLE_AND_CONTENT = 1


def _deck(*titles: str) -> Any:
    deck = Presentation()
    for title in titles:
        slide = deck.slides.add_slide(deck.slide_layouts[_TITLE_AND_CONTENT])
        slide.shapes.title.text = title
    return deck


def _saved(deck: Any) -> bytes:
    file = BytesIO()
    deck.save(file)
    return file.getvalue()


def _changed(data: bytes, name: str, old: bytes, new: bytes) -> bytes:
    """The file with another text in one part."""
    with ZipFile(BytesIO(data)) as archive:
        parts = {one: archive.read(one) for one in archive.namelist()}
    assert old in parts[name]
    return zipped({**parts, name: parts[name].replace(old, new)})


def _par(*runs: str | Run) -> Paragraph:
    return Paragraph(tuple(Run(run) if isinstance(run, str) else run for run in runs))


def _entries(*texts: str) -> Iterator[ListItem]:
    return (ListItem((_par(text),)) for text in texts)


def test_titles_are_headings_and_placeholders_nested_lists() -> None:
    deck = _deck("First", "Second")
    body = deck.slides[0].placeholders[1].text_frame
    body.text = "fruit"
    for level, text in ((1, "apple"), (1, "pear"), (0, "bread")):
        line = body.add_paragraph()
        line.text = text
        line.level = level
    deck.slides[0].shapes.add_textbox(0, 0, 9, 9).text_frame.text = "boxed"
    deck.slides[1].notes_slide.notes_text_frame.text = "say hello"
    fruit = ListItem((_par("fruit"), ItemList(tuple(_entries("apple", "pear")))))
    first, items, boxed, _, second, said = slides.read(_saved(deck), notes=True).content
    assert [first, second] == [Heading(1, (Run(text),), f"slide-{n}") for n, text in ((1, "First"), (2, "Second"))]
    assert items == ItemList((fruit, *_entries("bread")))
    assert (boxed, said) == (_par("boxed"), Quote((_par("say hello"),), "note"))
    assert second == slides.read(_saved(deck), notes=False).content[-1]


def test_tables_have_cells_that_cover_others() -> None:
    deck = _deck("T")
    table = deck.slides[0].shapes.add_table(2, 2, 0, 0, 99, 99).table
    table.cell(0, 0).merge(table.cell(0, 1))
    for row, column, text in ((0, 0, "wide"), (1, 0, "left"), (1, 1, "right")):
        table.cell(row, column).text = text
    found = slides.read(_saved(deck), notes=True).content[1]
    assert found == Table([(Cell("wide", colspan=2),), (Cell("left"), Cell("right"))], header_rows=1)


def test_numbers_links_and_pictures() -> None:
    deck = _deck("T", "U")
    frame = deck.slides[0].shapes.add_textbox(0, 0, 9, 9).text_frame
    site = frame.paragraphs[0].add_run()
    site.text = "site"
    site.hyperlink.address = "https://example.com/"
    site.font.bold = True
    group = deck.slides[0].shapes.add_group_shape()
    picture = group.shapes.add_picture(BytesIO(encode(quadrants(), "PNG")), 0, 0, Pt(72), Pt(36))
    picture.element.nvPicPr.cNvPr.set("descr", "four squares")
    picture.click_action.target_slide = deck.slides[1]
    xml = b'<a:pPr><a:buAutoNum type="romanLcPeriod" startAt="3"/></a:pPr><a:r>'
    data = _changed(_saved(deck), "ppt/slides/slide1.xml", b"<a:r><a:rPr b=", xml + b"<a:rPr b=")
    _, items, shown, *_ = slides.read(data, notes=True).content
    linked = Run("site", bold=True, link="https://example.com/")
    assert items == ItemList((ListItem((_par(linked),)),), "numbers", 3, "i")
    (run,) = own_runs(shown)
    assert run.picture is not None
    assert (run.link, run.picture.alt, run.picture.width) == ("#slide-2", "four squares", 72)


def test_numbers_of_slides_are_written_and_tab_stops_are_no_text() -> None:
    deck = _deck("First", "Second")
    notes = deck.slides[1].notes_slide.notes_placeholder
    notes.text_frame.text = "said "
    for shape in (deck.slides[1].placeholders[1], notes):
        paragraph = next(shape.element.iter(qn("a:p")))
        stops = parse_xml(f'<a:pPr {nsdecls("a")}><a:buNone/><a:tabLst><a:tab pos="9"/></a:tabLst></a:pPr>')
        field = f'<a:fld {nsdecls("a")} id="{{0}}" type="slidenum"><a:rPr/><a:t>&lt;number&gt;</a:t></a:fld>'
        paragraph.insert(0, stops)
        paragraph.append(parse_xml(field))
    *_, shown, said = slides.read(_saved(deck), notes=True).content
    assert (shown, said) == (_par("2"), Quote((_par("said "),), "note"))


def test_hidden_slides_and_charts_are_told() -> None:
    deck = _deck("Shown", "Secret")
    deck.slides[1].element.set("show", "0")
    data: Any = CategoryChartData()  # type: ignore[no-untyped-call]
    data.categories = ["east"]
    data.add_series("sales", [1])
    deck.slides[0].shapes.add_chart(XL_CHART_TYPE.PIE, 0, 0, 99, 99, data)
    result = convert(_saved(deck), "md")
    assert result.data.decode().endswith("# Shown\n")
    assert codes(result) == {"pages_dropped", "text_dropped"}


def test_alternatives_and_footers_are_not_repeated() -> None:
    shape = b'<p:sp><p:nvSpPr><p:cNvPr id="9" name="x"/><p:cNvSpPr/><p:nvPr>%s</p:nvPr></p:nvSpPr><p:spPr/><p:txBody>'
    shape += b"<a:bodyPr/><a:p><a:r><a:t>%s</a:t></a:r></a:p></p:txBody></p:sp>"
    both = (shape % (b"", b"new"), shape % (b"", b"old"), shape % (b'<p:ph type="ftr"/>', b"foot"))
    mc = b'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    xml = b"<mc:AlternateContent %s><mc:Choice>%s</mc:Choice><mc:Fallback>%s</mc:Fallback></mc:AlternateContent>%s"
    data = _changed(_saved(_deck("T")), "ppt/slides/slide1.xml", b"</p:spTree>", xml % (mc, *both) + b"</p:spTree>")
    result = convert(data, "txt")
    assert re.findall(r"\w+", result.data.decode()) == ["T", "new"]
    assert codes(result) == set()


@pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")
def test_opendocument_becomes_slides() -> None:
    box = '<draw:frame svg:width="9cm" svg:height="9cm"><draw:text-box><text:p>%s</text:p></draw:text-box></draw:frame>'
    frames = box % "Hello" + box % "world"
    page = f'<draw:page draw:name="a">{frames}</draw:page>'
    body = f"<office:body><office:presentation>{page}</office:presentation></office:body>"
    found = json.loads(convert(opendocument("presentation", body), "json").data)["blocks"]
    assert [(one["type"], one["runs"][0]["text"]) for one in found] == [("paragraph", "Hello"), ("paragraph", "world")]


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ppt/slides/slide1.xml", b"</p:sld>", b""),
        ("ppt/slides/slide1.xml", b"<p:spTree>", b"<p:spTree>" + b"<p:grpSp>" * 100_000),
        ("ppt/_rels/presentation.xml.rels", b"slides/slide1.xml", b"slides/none.xml"),
        ("[Content_Types].xml", b"presentationml.presentation.main", b"presentationml.other"),
    ],
)
def test_damaged_files_are_refused(name: str, old: bytes, new: bytes) -> None:
    with pytest.raises(CorruptInput):
        convert(_changed(_saved(_deck("T")), name, old, new), "md", "a.pptx")
