"""The structure of documents as Markdown, HTML and plain text."""

from io import BytesIO
from warnings import catch_warnings, simplefilter
from zipfile import ZipFile

import markdown_it
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from lxml import html as lxml_html
from mdit_py_plugins import deflist, dollarmath, gfm

from engine import AnyConversion, Blocks, FidelityWarning, TooLarge
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
)
from plugins._text import formulas
from plugins.formats import html_text, md, txt
from tests.support.results.conversions import convert

PICTURE = Picture(b"abc", "image/png", "a [dot]", 72)


def par(*runs: str | Run) -> Paragraph:
    return Paragraph(tuple(Run(run) if isinstance(run, str) else run for run in runs))


def item(*content: Block | str, checked: bool | None = None, term: str = "") -> ListItem:
    blocks = tuple(par(one) if isinstance(one, str) else one for one in content)
    return ListItem(blocks, checked, (Run(term),) if term else ())


FRACTION = "\\frac{a}{b}"
NOTE = Run(note=(par("said"), par("more")))
NESTED = ItemList(
    (item("one", ItemList((item("in", checked=True), item("out", checked=False)))), item("two")), "numbers", 3
)
CASES: dict[str, tuple[Block, str, str, str]] = {
    "heading": (
        Heading(2, (Run("A #"),), "a"),
        "## A \\#",
        '<h2 id="a">A #</h2>',
        "A #",
    ),
    "styles": (
        par("a ", Run("bold ", bold=True), Run("both", bold=True, italic=True), " x", Run("2", position="superscript")),
        "a **bold _both_** x<sup>2</sup>",
        "<p>a <strong>bold <em>both</em></strong> x<sup>2</sup></p>",
        "a bold both x2",
    ),
    "beside": (
        par(
            "a",
            Run('"b"', bold=True),
            "c",
            Run("d", italic=True),
            Run("e", bold=True, italic=True),
            Run("f`", code=True),
        ),
        'a<strong>"b"</strong>c<em>d</em>**_e_**`` f` ``',
        '<p>a<strong>"b"</strong>c<em>d</em><strong><em>e</em></strong><code>f`</code></p>',
        'a"b"cdef`',
    ),
    "changes": (
        par(Run("new", change="inserted"), Run("old", change="deleted"), Run("gone", strike=True)),
        "<ins>new</ins><del>old</del>~~gone~~",
        "<p><ins>new</ins><del>old</del><s>gone</s></p>",
        "{+new+}[-old-]gone",
    ),
    "lines": (par("a\n- b\n3. c"), "a\\\n\\- b\\\n3\\. c", "<p>a<br>\n- b<br>\n3. c</p>", "a\n- b\n3. c"),
    "note": (
        par("a", NOTE),
        "a[^1]\n\n[^1]: said\n\n    more",
        '<p>a<sup><a href="#fn1" id="fnref1" role="doc-noteref">1</a></sup></p>\n'
        '<section class="footnotes" role="doc-endnotes">\n<ol>\n<li id="fn1">\n<p>said</p>\n<p>more</p>\n '
        '<a href="#fnref1" class="footnote-backref" role="doc-backlink">\u21a9</a></li>\n</ol>\n</section>',
        "a[1]\n\n[1] said\n\n    more",
    ),
    "formula": (
        par("so ", Run(formula=FRACTION), Run(formula="c|d", display=True)),
        "so $\\frac{a}{b}$\n$$c|d$$",
        f"<p>so {formulas.to_mathml(FRACTION, display=False)}{formulas.to_mathml('c|d', display=True)}</p>",
        "so \\frac{a}{b}c|d",
    ),
    "lists": (
        NESTED,
        "3. one\n   - [x] in\n   - [ ] out\n4. two",
        '<ol start="3">\n<li>one\n<ul>\n<li class="task"><input type="checkbox" disabled checked> in</li>\n'
        '<li class="task"><input type="checkbox" disabled> out</li>\n</ul>\n</li>\n<li>two</li>\n</ol>',
        "3. one\n   - [x] in\n   - [ ] out\n4. two",
    ),
    "loose": (
        ItemList((item("a", "b"),), "numbers", 4, "i"),
        "4. a\n\n   b",
        '<ol start="4" type="i">\n<li>\n<p>a</p>\n<p>b</p>\n</li>\n</ol>',
        "iv. a\n\n    b",
    ),
    "definitions": (
        ItemList((item("what", term="Word"),), "definitions"),
        "Word\n:   what",
        "<dl>\n<dt>Word</dt>\n<dd>what</dd>\n</dl>",
        "Word\n    what",
    ),
    "definitions of several blocks": (
        ItemList((item("one", "two", term="Word"), ListItem((), term=(Run("*"),))), "definitions"),
        "<dl>\n<dt>\n\nWord\n\n</dt>\n<dd>\n\none\n\ntwo\n\n</dd>\n<dt>\n\n\\*\n\n</dt>\n</dl>",
        "<dl>\n<dt>Word</dt>\n<dd>\n<p>one</p>\n<p>two</p>\n</dd>\n<dt>*</dt>\n<dd></dd>\n</dl>",
        "Word\n    one\n\n    two\n\n*",
    ),
    "table": (
        Table(((Cell("a|b"), Cell("c", align="right")), (Cell((par("d\ne"), par("f"))),)), 1, (Run("cap"),)),
        "cap\n\n| a\\|b | c |\n| --- | --: |\n| d<br>e<br>f |  |",
        '<table>\n<caption>cap</caption>\n<thead>\n<tr><th>a|b</th><th style="text-align: right">c</th></tr>\n'
        "</thead>\n"
        "<tbody>\n<tr><td>\n<p>d<br>\ne</p>\n<p>f</p>\n</td></tr>\n</tbody>\n</table>",
        "cap\na|b\tc\nd e f",
    ),
    "spans": (
        Table(((Cell("<a>", colspan=2),), (Cell((ItemList((item("b"),)),)), Cell("c")))),
        '<table>\n<tr>\n<td colspan="2">&lt;a&gt;</td>\n</tr>\n<tr>\n<td>\n\n- b\n\n</td>\n<td>c</td>\n</tr>\n</table>',
        '<table>\n<tbody>\n<tr><td colspan="2">&lt;a&gt;</td></tr>\n'
        "<tr><td>\n<ul>\n<li>b</li>\n</ul>\n</td><td>c</td></tr>\n</tbody>\n</table>",
        "<a>\t\n- b\tc",
    ),
    "alert": (
        Quote((par("careful"),), "warning"),
        "> [!WARNING]\n> careful",
        '<div class="markdown-alert markdown-alert-warning">\n<p class="markdown-alert-title">Warning</p>\n'
        "<p>careful</p>\n</div>",
        "    Warning:\n\n    careful",
    ),
    "code": (
        Code("a\n\n```\n", "unknown"),
        "````unknown\na\n\n```\n````",
        '<pre><code class="language-unknown">a\n\n```\n</code></pre>',
        "a\n\n```",
    ),
    "rule": (Break("rule"), "___", "<hr>", "-" * 20),
    "picture": (
        par(Run(picture=PICTURE)),
        "![a \\[dot\\]](data:image/png;base64,YWJj)",
        '<p><img src="data:image/png;base64,YWJj" alt="a [dot]" width="96"></p>',
        "[a [dot]]",
    ),
    "links": (
        par(
            "!",
            Run("a", link="http://a.example/b c(d)"),
            Run("b", link="javascript:c"),
            Run("x@y.zz", link="mailto:x@y.zz"),
        ),
        "\\![a](http://a.example/b%20c%28d%29)b<x@y.zz>",
        '<p>!<a href="http://a.example/b c(d)">a</a>b<a href="mailto:x@y.zz">x@y.zz</a></p>',
        "!abx@y.zz",
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore::engine.FidelityWarning")
def test_blocks_are_written(name: str) -> None:
    block, markdown, markup, text = CASES[name]
    document = Blocks((block,))
    assert md.write.run(document).decode() == f"{markdown}\n"
    assert f"<body>\n{markup}\n</body>" in html_text.write.run(document).decode()
    assert txt.write.run(document).decode() == f"{text}\n"


def test_lists_of_one_kind_stay_apart() -> None:
    document = Blocks((*[ItemList((item("a"),))] * 3, *[ItemList((item("b"),), "numbers")] * 2))
    assert md.write.run(document).decode() == "- a\n\n* a\n\n- a\n\n1. b\n\n1) b\n"


def test_a_link_to_a_heading_has_the_name_of_the_heading() -> None:
    heading = Heading(1, (Run("Twice, A"),), "_Toc1")
    document = Blocks((heading, Heading(1, heading.runs, "_Toc2"), par(Run("go", link="#_Toc2"))))
    assert "[go](#twice-a-1)" in md.write.run(document).decode()
    assert '<h1 id="_Toc2">' in html_text.write.run(document).decode()


def test_what_a_document_says_of_itself_is_written() -> None:
    document = Blocks((par("a"),), title='A "b"', authors=("C", "D"), language="de")
    assert md.write.run(document).decode() == '---\ntitle: "A \\"b\\""\nauthor: ["C", "D"]\nlang: "de"\n---\n\na\n'
    page = lxml_html.document_fromstring(html_text.write.run(document))
    assert page.get("lang") == "de"
    assert page.findtext(".//title") == 'A "b"'
    assert page.xpath("//meta[@name='author']/@content") == ["C, D"]


def test_form_feeds_separate_pages_of_text() -> None:
    document = Blocks((par("a\nb"), par("c"), Break(), par("d")))
    assert txt.write.run(document) == b"a\nb\n\nc\n\n\fd\n"
    assert txt.read_blocks.run(b"a\r\nb\n \nc\n\fd\n") == document


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (Run(picture=PICTURE), "pictures_dropped"),
        (Run("here", link="http://a.example/"), "links_dropped"),
    ],
    ids=["picture", "link"],
)
def test_what_plain_text_cannot_hold_is_told(run: Run, code: str) -> None:
    with pytest.warns(FidelityWarning) as caught:
        txt.write.run(Blocks((par(run),)))
    assert [one.message.code for one in caught if isinstance(one.message, FidelityWarning)] == [code]


@pytest.mark.parametrize("step", [md.write, html_text.write], ids=str)
def test_pictures_are_dropped_by_an_option(step: AnyConversion) -> None:
    with pytest.warns(FidelityWarning, match="Images are not in the result") as caught:
        text = step.run(Blocks((par(Run(picture=PICTURE)),)), images="drop")
    assert len(caught) == 1
    assert b"YWJj" not in text


def test_pictures_in_a_text_have_a_limit() -> None:
    with pytest.raises(TooLarge, match="images in the text"):
        html_text.write.run(Blocks((par(Run(picture=Picture(bytes((256 << 20) + 1), "image/png"))),)))


def test_drawings_are_pixels_in_markdown() -> None:
    drawing = Picture(b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"/>', "image/svg+xml")
    document = Blocks((par(Run(picture=drawing)),))
    assert b"![](data:image/png;base64," in md.write.run(document)
    assert b'<img src="data:image/svg+xml;base64,' in html_text.write.run(document)


def test_colors_of_code_change_no_text() -> None:
    code = "$ a\n\nb\n  > c"
    for language in ("console", "pycon", "diff", "html", "unknown"):
        page = lxml_html.document_fromstring(html_text.write.run(Blocks((Code(code, language),))))
        assert page.find(".//pre").text_content() == code


def test_pictures_are_beside_the_text_in_an_archive() -> None:
    source = (
        b"<!DOCTYPE html><p><img src='data:image/png;base64,YWJj'><img src='data:image/png;base64,YWJj'><img src=x.png>"
    )
    for target, name in (("md", "index.md"), ("html", "index.html")):
        result = convert(source, target, images="zip")
        with ZipFile(BytesIO(result.data)) as archive:
            assert archive.namelist() == [name, "pictures/1.png"]
            assert archive.read("pictures/1.png") == b"abc"
            assert archive.read(name).count(b"pictures/1.png") == 2
        assert (result.outcome.container, result.outcome.file_count) == ("zip", 2)
    assert convert(b"<!DOCTYPE html>a", "md", images="zip").outcome.container is None


STYLES = st.fixed_dictionaries({name: st.booleans() for name in ("bold", "italic", "strike", "code")})
TEXTS = st.text(st.sampled_from('ab1 .)\n*_~`$[]<>&;#+-=:|\\!"(é'), max_size=8)
RUNS = st.lists(st.builds(lambda text, style: Run(text, **style), TEXTS, STYLES), max_size=4)


@settings(max_examples=60, deadline=None)
@example([Run("1__", italic=True, strike=True)], "paragraph")
@given(RUNS, st.sampled_from(["paragraph", "heading", "cell", "entry"]))
def test_another_parser_reads_the_text_that_was_written(runs: list[Run], place: str) -> None:
    """Spaces at the ends of lines have no meaning in Markdown."""
    block: Block = Paragraph(tuple(runs))
    if place == "heading":
        block = Heading(1, tuple(runs))
    elif place == "cell":
        block = Table(((Cell((block,)),),), 1)
    elif place == "entry":
        block = ItemList((ListItem((block,)),))
    parser = markdown_it.MarkdownIt("commonmark").use(deflist.deflist_plugin).use(gfm.gfm_plugin)
    parser.use(dollarmath.dollarmath_plugin, allow_space=False, allow_digits=False)
    with catch_warnings():
        simplefilter("ignore")
        markup = parser.render(md.write.run(Blocks((block,))).decode())
    read = lxml_html.fromstring(f"<div>{markup}</div>").text_content().split()
    assert "".join(read) == "".join("".join(run.text for run in runs).split())
