"""The structure of HTML: pages as people write them, and what hostile ones do."""

import re
from collections import Counter
from collections.abc import Mapping
from io import BytesIO
from warnings import catch_warnings, simplefilter
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from engine import Blocks, CorruptInput, FidelityWarning, TooLarge
from engine.blocks import (
    Block,
    Break,
    Cell,
    Code,
    Heading,
    ItemList,
    ListItem,
    Paragraph,
    Picture,
    Quote,
    Run,
    Table,
    runs_of,
)
from plugins._blocks.pandoc import PANDOC
from plugins.formats import html, md
from tests.support.results.conversions import codes, convert

PNG = b"\x89PNG"
HTML_LINK = "http://a.example/b/"


def par(*runs: str | Run) -> Paragraph:
    return Paragraph(tuple(Run(run) if isinstance(run, str) else run for run in runs))


def item(*content: Block | str, checked: bool | None = None, term: str = "") -> ListItem:
    blocks = tuple(par(one) if isinstance(one, str) else one for one in content)
    return ListItem(blocks, checked, (Run(term),) if term else ())


def read(body: str, head: str = "") -> Blocks:
    with catch_warnings():
        simplefilter("error")
        return html.read_blocks.run(f"<html><head>{head}</head><body>{body}</body></html>".encode())


def zipped(files: Mapping[str, bytes]) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return file.getvalue()


NOTE = (par("said"),)
DRAWING = b'<svg viewBox="0 0 9 9" xmlns="http://www.w3.org/2000/svg"><title>t</title></svg>'
TEX = "<math><mi>x</mi><annotation encoding='application/x-tex'>\\frac12</annotation></math>"
CASES: dict[str, tuple[str, tuple[Block, ...]]] = {
    "blanks": ("<p> a\n b <b> c </b> d<br> e <br></p>", (par("a b ", Run("c ", bold=True), "d\ne"),)),
    "styles": (
        "<p>a<b>b<i>c</i></b><u>d</u><s>e</s><code>f</code><sup>2</sup><ins>n</ins><del>o</del><q>q</q></p>",
        (
            par(
                "a",
                Run("b", bold=True),
                Run("c", bold=True, italic=True),
                Run("d", underline=True),
                Run("e", strike=True),
                Run("f", code=True),
                Run("2", position="superscript"),
                Run("n", change="inserted"),
                Run("o", change="deleted"),
                "\u201cq\u201d",
            ),
        ),
    ),
    "style attributes": (
        '<p><span style="FONT-WEIGHT: bold">a</span><b style="font-weight:normal">b</b></p>',
        (par(Run("a", bold=True), "b"),),
    ),
    "style sheets": (
        "<style>.b{font-weight:700} div span.i{FONT-STYLE:italic!important} #u{text-decoration-line:underline}"
        ".n{font-weight:400} p{font-weight:bold} a:hover > > b{} @media print{.p{font-style:italic}}</style>"
        "<div><p><span class=b>a</span><span class=i>b</span><span id=u>c</span><b><span class=n>d</span></b>"
        "<span class=p>e</span><span class=b style='font-weight:normal'>f</span>",
        (par(Run("a", bold=True), Run("b", italic=True), Run("c", underline=True), "def"),),
    ),
    "not shown": (
        '<p>a<span style="display: none">b</span></p><p hidden>c</p><!--d--><style>e</style>f',
        (par("a"), par("f")),
    ),
    "boxes": (
        "<ul><li><input type=checkbox checked> a<ul><li>b</ul><li><p><input type=checkbox> c</ul>",
        (ItemList((item("a", ItemList((item("b"),)), checked=True), item("c", checked=False))),),
    ),
    "list outside of entries": (
        "<ul><li>a</li><ul><li>b</li></ul></ul>",
        (ItemList((item("a", ItemList((item("b"),))),)),),
    ),
    "numbers": ("<ol start=4 type=i><li>a</ol>", (ItemList((item("a"),), "numbers", 4, "i"),)),
    "definitions": (
        "<dl><dt>T<dt>U<dd>a<dd>b</dl>",
        (ItemList((ListItem((par("a"),), term=(Run("T\nU"),)), item("b")), "definitions"),),
    ),
    "table": (
        "<table><caption>C</caption><tfoot><tr><td>f</td></tr></tfoot><thead><tr><th>h<th align=right>i</thead>"
        "<tr><td rowspan=9>a<td colspan=2><p>b</p><p>c</p></table>",
        (
            Table(
                (
                    (Cell("h"), Cell("i", align="right")),
                    (Cell("a", rowspan=2), Cell((par("b"), par("c")), colspan=2)),
                    (Cell("f"),),
                ),
                1,
                (Run("C"),),
            ),
        ),
    ),
    "text between cells": ("<table>a<tr>b<td>c<td>d</table>", (par("a"), par("b"), Table(((Cell("c"), Cell("d")),)))),
    "table for layout": ("<table><tr><td><h1>a</h1><td>b</table>", (Heading(1, (Run("a"),)), par("b"))),
    "table without cells": ("<table><caption>a</table>", (par("a"),)),
    "alert": (
        '<div class="markdown-alert markdown-alert-tip"><p class="markdown-alert-title">Tip</p><p>a</p></div>',
        (Quote((par("a"),), "tip"),),
    ),
    "code": ("<pre>\na <code class='language-py'>b\n\n c</code>\n</pre>", (Code("a b\n\n c", "py"),)),
    "formulas": (
        f"<span class=katex>{TEX}<span>x12</span></span><script type='math/tex; mode=display'>y</script>"
        "<span class='math inline'>\\(z\\)</span>",
        (par(Run(formula="\\frac12"), Run(formula="y", display=True), Run(formula="z")),),
    ),
    "mathml": (
        "<math><mfrac><mi>a</mi><mroot><mi>x</mi><mn>3</mn></mroot></mfrac><mo>&#x2062;</mo>"
        "<msqrt><mi>b</mi></msqrt></math>"
        "<math display=block><munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover>"
        "<msubsup><mi>x</mi><mi>i</mi><mn>2</mn></msubsup><mover><mi>v</mi><mo>→</mo></mover><mi>sin</mi>"
        "<mfenced><mi>y</mi><mi>z</mi></mfenced></math>"
        "<math><mo>{</mo><mtable><mtr><mtd><mi>a</mi></mtd><mtd><mtext>if 5%</mtext></mtd></mtr>"
        "<mtr><mtd><mi>b</mi></mtd></mtr></mtable></math>",
        (
            par(
                Run(formula=r"\frac{a}{\sqrt[3]{x}} \sqrt{b}"),
                Run(formula=r"{∑}_{i}^{n} {x}_{i}^{2} \vec{v} \operatorname{sin} (y, z)", display=True),
                Run(formula=r"\{ \begin{matrix}a & \text{if 5\%} \\ b\end{matrix}"),
            ),
        ),
    ),
    "note": (
        "<p>a<a role=doc-noteref href=#n id=r>1</a>.</p>"
        "<section class=footnotes><hr><ol><li id=n>said <a href=#r>back</a></ol></section>",
        (par("a", Run(note=NOTE), "."),),
    ),
    "page": ('<p>a<p style="page-break-before: always">b<hr>', (par("a"), Break(), par("b"), Break("rule"))),
    "picture": (
        "<p><img src='data:image/png;base64,YWJj' alt='a\nb' width=96>",
        (par(Run(picture=Picture(b"abc", "image/png", "a b", 72.0))),),
    ),
    "picture with sources": (
        "<picture><source srcset=a.webp><source srcset=a.avif><img src='data:image/png;base64,YWJj'></picture>b",
        (par(Run(picture=Picture(b"abc", "image/png")), "b"),),
    ),
    "drawing": (
        "<svg viewBox='0 0 9 9'><title>t</title></svg>",
        (par(Run(picture=Picture(DRAWING, "image/svg+xml", "t"))),),
    ),
    "anchors": (
        "<a href=#x>a</a><div id=x><h2>b</h2></div><p>c<span id=y>d</span><a href=#y>e</a>",
        (
            par(Run("a", link="#x")),
            Heading(2, (Run("b"),), "x"),
            par("c", Run(anchor="y"), "d", Run("e", link="#y")),
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_read(name: str) -> None:
    body, content = CASES[name]
    assert read(body).content == content


@pytest.mark.parametrize("after", ["", "c<p>d"])
def test_a_body_without_its_tag_begins_with_any_element(after: str) -> None:
    page = f"<!DOCTYPE html><title>t</title><main>a</main><style>e</style><section>b</section>{after}"
    document = html.read_blocks.run(page.encode())
    assert document == Blocks(tuple(map(par, "abcd" if after else "ab")), title="t")


def test_links_lead_from_the_base_of_the_page() -> None:
    head = f"<base href={HTML_LINK}><title>A  b</title><meta name=author content=C>"
    document = read("<a href=../c>d</a>", head)
    assert document == Blocks((par(Run("d", link="http://a.example/c")),), title="A b", authors=("C",))


def test_pictures_come_from_the_archive_of_the_page() -> None:
    files = {"index.html": b"<img src='i/a%20b.png?x' alt=c><img src=http://a.example/d.png>", "i/a b.png": PNG}
    with pytest.warns(FidelityWarning, match="not: http://a.example/d.png") as caught:
        document = html.read_blocks.run(zipped(files))
    assert len(caught) == 1
    assert document.content == (
        par(Run(picture=Picture(PNG, "image/png", "c")), Run(picture=Picture(b"", "", url="http://a.example/d.png"))),
    )
    assert b"![](http://a.example/d.png)" in md.write.run(document)


@pytest.mark.skipif(not PANDOC.present, reason="Pandoc is not installed")
def test_a_picture_that_is_elsewhere_is_told_once() -> None:
    page = b"<!DOCTYPE html><p>a<img src=http://a.example/d.png alt=b>"
    assert codes(convert(page, "epub")) == {"resource_not_loaded"}


def test_xhtml_is_read_as_xml() -> None:
    page = b'<html xmlns="http://www.w3.org/1999/xhtml"><body><a id="x"/><p>a&nbsp;b</p></body></html>'
    assert html.read_blocks.run(page).content == (par("a\xa0b"),)


def test_a_table_with_borders_keeps_its_words_in_every_text_format() -> None:
    page = b"<!DOCTYPE html><style>table{border-collapse:separate}</style><table border=1><tr><td>a<td>b</table>"
    assert [convert(page, target).data for target in ("md", "txt")] == [
        b"|  |  |\n| --- | --- |\n| a | b |\n",
        b"a\tb\n",
    ]


DEEP = 1500
HOSTILE = {
    "lists": "<ul><li>a" * (DEEP // 2),
    "quotes": "<blockquote>" * DEEP + "a",
    "tables": "<table><tr><td>" * (DEEP // 3) + "a",
    "styles": "<b><i><a href=#x>" * (DEEP // 3) + "a",
    "headings": "<h1>a" * DEEP,
    "definitions": "<dl><dt>a<dd>" * (DEEP // 3),
    "notes of each other": "<a role=doc-noteref href=#a id=b>1</a><p id=a>x<a role=doc-noteref href=#b>2</a></p>",
    "a note around all": "<div id=n>a<a role=doc-noteref href=#n>1</a></div>",
    "cells in no table": "<td>a</td><li>b</li><dd>c</dd><caption>d</caption>",
    "empty": "<table></table><ul></ul><dl></dl><pre></pre><h1></h1><blockquote></blockquote><img>",
    "damaged data": "<img src=data:><img src='data:image/png;base64,%%%'><img src=data:,>a",
    "a wide cell": "<table><tr><td colspan=9999>a<td rowspan=-1>b",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pages_keep_their_text(name: str) -> None:
    data = b"<!DOCTYPE html>" + HOSTILE[name].encode()
    results = [convert(data, target) for target in ("txt", "md", "html", "json")]
    assert all("text_dropped" not in codes(one) for one in results)
    letters = filter(str.isalpha, re.sub("<[^>]*>", "", HOSTILE[name]))
    assert not Counter(letters) - Counter(results[0].data.decode())


@pytest.mark.parametrize(
    "body", ["<i>" * 3000, "<table><tr><td colspan=400001>a", " " * (64 << 20)], ids=["deep", "many", "large"]
)
def test_limits_of_pages(body: str) -> None:
    with pytest.raises(TooLarge):
        read(body)


def test_a_picture_that_is_shown_many_times_is_read_once() -> None:
    document = html.read_blocks.run(zipped({"index.html": b"<img src=a.png>" * 9, "a.png": PNG}))
    assert len({id(run.picture.data) for run in runs_of(document.content) if run.picture}) == 1


@pytest.mark.parametrize("data", [b"<!DOCTYPE html>", zipped({"index.html": b""})], ids=["page", "archive"])
def test_pages_without_elements_are_refused(data: bytes) -> None:
    with pytest.raises(CorruptInput, match="The page has no elements"):
        html.read_blocks.run(data)
