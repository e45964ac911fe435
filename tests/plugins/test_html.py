"""Pages of HTML and Markdown, and Markdown of documents."""

import base64
import subprocess
from pathlib import Path

import pytest

from engine import ConversionError, TooLarge, UnknownFormat, pipeline
from engine.executor import LocalExecutor, Task, TaskLimits, local
from engine.executor.task_time import TaskTime
from engine.mupdf import pymupdf
from engine.options import OptionValue
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples import books
from tests.support.samples.generated import sample
from tests.support.samples.hostile_documents import SLOW_PAGES

_REGISTRY = load_registry()
_A5 = (420, 595)
_PRINTED = {"renderer": "print"}


def _convert(data: bytes, name: str, target: str, **options: OptionValue) -> PipelineResult:
    """Converts without a browser, whether one is installed or not."""
    source = _REGISTRY.identify_content(data, name)
    if "renderer" in _REGISTRY.pair_options(_REGISTRY.plan([source], target)):
        options |= _PRINTED
    return pipeline.run(_REGISTRY.plan([source], target, options=options), [data], options)


def _page(data: bytes, name: str = "a.html", **options: OptionValue) -> pymupdf.Page:
    return pymupdf.open("pdf", _convert(data, name, "pdf", **options).data)[0]


@pytest.mark.parametrize(
    ("content", "name", "expected"),
    [
        (b"<!DOCTYPE html><p>a", "a.txt", "html"),
        (b"\xef\xbb\xbf\r\n<!-- a --><HTML lang=en>", "", "html"),
        (b'<?xml version="1.0"?><!DOCTYPE html PUBLIC "a" "b"><html xmlns="c">', "a.svg", "html"),
        (b"<p>a part</p>", "a.html", "html"),
        (b"<p>a part</p>", "a.md", "md"),
        (b"<p>a part</p>", "", "txt"),
        (b"# a", "a.markdown", "md"),
        (b"a file begins with %PDF-1.7", "a.md", "md"),
        (books.zipped({"index.html": "a", "1.png": b""}), "a.cbz", "html"),
        (books.zipped({"pages/index.html": "a"}), "a.zip", None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "a.html", "svg"),
    ],
)
def test_html_is_told_by_its_content(content: bytes, name: str, expected: str | None) -> None:
    try:
        found: str | None = _REGISTRY.identify_content(content, name).name
    except UnknownFormat:
        found = None
    assert found == expected


@pytest.mark.parametrize(
    ("style", "options", "size", "left"),
    [
        ("", {}, (595, 842), 20),
        ("@page { size: a5; margin: 7mm }", {}, _A5, 7),
        ("@page { size: a5; margin: 7mm }", {"page_size": "letter", "landscape": True}, (792, 612), 7),
        ("@page { size: a5; margin: 7mm }", {"margin": 30}, _A5, 30),
        ("@media screen { p { margin-left: 99px } } @media print { p { margin-left: 0 } }", {}, (595, 842), 20),
    ],
)
def test_pages_of_html(style: str, options: dict[str, OptionValue], size: tuple[int, int], left: float) -> None:
    markup = f"<!DOCTYPE html><style>body {{ margin: 0 }} p {{ font: 12pt serif }} {style}</style><p>Größe</p>"

    page = _page(markup.encode(), "a.html", **options)

    assert (round(page.rect.width), round(page.rect.height)) == size
    assert page.get_text() == "Größe\n"
    assert page.get_text("blocks")[0][0] == pytest.approx(left / 25.4 * 72, abs=1)


def test_layout_is_that_of_a_browser(tmp_path: Path) -> None:
    cells = "".join(f"<tr><td>row {row}<td>{row * 'wide '}<td align=right>{row}" for row in range(1, 9))
    markup = (
        "<!DOCTYPE html><style>@page { size: a5; margin: 10mm } body { font: 12pt/16pt 'Liberation Serif'; margin: 0 }"
        "</style><h1>A title</h1><p style='float: right; width: 50mm'>a box beside the text</p>"
        f"<p>{'some words of a paragraph ' * 12}</p><ol><li>one<li>two</ol><table border=1>{cells}</table>"
    )
    source, printed = tmp_path / "a.html", tmp_path / "a.pdf"
    source.write_text(markup)
    command = ["chromium-headless-shell", "--no-sandbox", "--no-pdf-header-footer", f"--print-to-pdf={printed}"]
    subprocess.run([*command, source.as_uri()], check=True, capture_output=True)

    expected, found = pymupdf.open(printed)[0], _page(markup.encode())

    places = [{word[4]: word for word in page.get_text("words")} for page in (expected, found)]
    assert places[0].keys() == places[1].keys() | {"1.", "2."} or places[0].keys() == places[1].keys()
    for word in ("title", "box", "row", "8"):
        assert places[1][word][:2] == pytest.approx(places[0][word][:2], abs=12)


_OUTSIDE = (
    "/etc/passwd",
    "file:///etc/passwd",
    "http://127.0.0.1:9/a.png",
    "//127.0.0.1:9/a.png",
    "ftp://127.0.0.1/a.png",
    "../../../../etc/passwd",
    "missing.png",
)


def test_an_archive_is_a_page_with_its_files() -> None:
    files: dict[str, str | bytes] = {
        "index.html": (
            '<link rel="stylesheet" href="css/a.css"><img src="img/a%20b.png"><p>a <a href="other.html">b</a>'
            ' <a href="https://example.com/">c</a></p>'
        ),
        "css/a.css": "p { font-size: 40px; background: url(../img/a%20b.png) } @page { size: a5 }",
        "img/a b.png": sample("png"),
    }

    result = _convert(books.zipped(files), "a.zip", "pdf")
    page = pymupdf.open("pdf", result.data)[0]

    assert codes(result) == set()
    assert round(page.rect.width) == _A5[0]
    assert len({image[7] for image in page.get_images()}) == 1
    assert {link["uri"] for link in page.get_links()} == {"https://example.com/"}
    assert page.get_text("words")[0][3] - page.get_text("words")[0][1] > 30


@pytest.mark.parametrize("url", _OUTSIDE)
def test_nothing_from_elsewhere_is_loaded(url: str) -> None:
    markup = f'<img src="{url}"><style>@import "{url}"; p {{ background: url("{url}") }}</style><p>text</p>'
    for data in (f"<!DOCTYPE html>{markup}".encode(), books.zipped({"index.html": markup})):
        result = _convert(data, "a.html", "pdf")

        assert codes(result) == {"resource_not_loaded"}
        page = pymupdf.open("pdf", result.data)[0]
        assert (page.get_text(), page.get_images()) == ("text\n", [])


def test_a_symbolic_link_in_an_archive_is_a_file() -> None:
    link = books.zipped({"index.html": '<link rel="stylesheet" href="a.css"><p>text', "a.css": "/etc/passwd"})
    at = link.rindex(b"a.css") - 46
    link = link[: at + 38] + (0o120777 << 16).to_bytes(4, "little") + link[at + 42 :]

    assert pymupdf.open("pdf", _convert(link, "a.zip", "pdf").data)[0].get_text() == "text\n"


def test_data_in_urls_is_drawn() -> None:
    style = '<style>@import "data:text/css,p{font-size:40px}"</style>'
    result = _convert(f'<!DOCTYPE html><img src="data:image/svg+xml,%3Csvg/%3E">{style}<p>a'.encode(), "", "pdf")

    assert codes(result) == set()
    assert pymupdf.open("pdf", result.data)[0].get_text("words")[0][3] > 90


@pytest.mark.parametrize("target", ["png", "jpeg", "webp", "txt", "md"])
def test_pages_become_images_and_texts(target: str) -> None:
    result = _convert(b"<!DOCTYPE html><h1>Title</h1><p>and text", "", target)

    if target in ("txt", "md"):
        assert result.data.decode().split() in (["Title", "and", "text"], ["#", "Title", "and", "text"])
    else:
        assert opened(result.data).size == (1241, 1754)


_CELLS = "".join(f"<td>number {number}" for number in range(20))
_DOT = "data:image/png;base64," + base64.b64encode(sample("png")).decode()


@pytest.mark.parametrize(
    ("content", "shown", "expected"),
    [
        (f"<table><tr>{_CELLS}</table>", "number 19", set()),
        (f"<table style='font-size:16px'><tr>{_CELLS.replace('number', '<b>number</b>')}</table>", "number 19", set()),
        ("<table><tr>" + "<td style='font-size:20px'>numbers" * 20 + "<td>END</table>", "END", set()),
        (f"<p>{'a' * 399}b", "b", set()),
        (f"<table><tr><td>x<td>{'a' * 999}b</table>", "b", set()),
        (f"<img src='{_DOT}' width=3000><p>END", "END", set()),
        ("<p style='width:1500px; text-align: right'>END", "END", set()),
        ("<p style='margin-left:150%; font-size:20px'>END", None, {"effects_dropped"}),
        ("<p style='overflow:hidden; width:9em; white-space:nowrap'>" + "hidden " * 99, "hidden", set()),
        ("<p style='position:absolute; left:-9999px'>left</p>END", "END", set()),
    ],
)
def test_what_is_wider_than_a_page(content: str, shown: str | None, expected: set[str]) -> None:
    result = _convert(f"<!DOCTYPE html><h1>Title</h1>{content}".encode(), "", "pdf")
    page = pymupdf.open("pdf", result.data)[0]

    assert codes(result) == expected
    assert tuple(map(round, page.rect[2:])) == (595, 842)
    assert shown is None or shown in page.get_text(clip=page.rect).replace("\n", " ")
    assert all(image["bbox"][2] < page.rect.width for image in page.get_image_info())


def test_a_wide_table_leaves_other_text_as_it_is() -> None:
    page = _page(f"<!DOCTYPE html><p>text<table><tr>{_CELLS}</table>".encode())

    spans = [span for block in page.get_text("dict")["blocks"] for line in block["lines"] for span in line["spans"]]
    assert spans[0]["size"] == pytest.approx(12)
    assert all(4 < span["size"] < 9 for span in spans[1:])


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("<script>document.write(1)</script>", "what scripts write"),
        ("<script type='text/javascript' src='a.js'></script>", "what scripts write"),
        ("<script type=module>1</script><canvas></canvas>", "canvas, what scripts write"),
        ("<math><mi>x</mi></math>", None),
        ("<svg><foreignObject/></svg>", "foreignObject"),
        ("<script type='application/ld+json'>{}</script>", None),
        ("<svg><rect/></svg><input type=checkbox>", None),
    ],
)
def test_what_only_browsers_draw_is_reported(content: str, named: str | None) -> None:
    result = _convert(f"<!DOCTYPE html><p>text{content}".encode(), "", "pdf")

    messages = [warned.message for warned in result.outcome.warnings]
    assert messages == ([f"Not drawn as in a browser: {named}."] if named else [])


_MARKDOWN = (
    b"# Title\n\nsome *text* with a [link](https://example.com/)\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n- one\n- two\n"
)


def test_markdown_is_laid_out_as_html() -> None:
    text = _convert(_MARKDOWN, "a.md", "html").data.decode()

    for part in ("<h1>Title</h1>", "<em>text</em>", '<a href="https://example.com/">', "<td>1</td>", "<li>one</li>"):
        assert part in text
    assert _page(_MARKDOWN, "a.md", page_size="a5").get_text().replace("•", " ").split() == [
        *("Title", "some", "text", "with", "a", "link", "a", "b", "1", "2", "one", "two")
    ]


_GITHUB = """---
title: "Front <Title>"
author: Jane
---
Word[^1] for $HOME_a and $5 to $10, https://auto.link

- [x] done
- [ ] open

> [!NOTE]
> Alert

Term
: Definition

[^1]: The footnote.
"""


def test_markdown_of_github() -> None:
    result = _convert(_GITHUB.encode(), "a.md", "html")
    text = result.data.decode()
    printed = pymupdf.open("pdf", _convert(_GITHUB.encode(), "a.md", "pdf").data)

    for part in ('href="#fn1"', 'checked=""', "markdown-alert-note", "<dd>Definition</dd>", "$HOME_a and $5 to $10"):
        assert part in text
    assert '<title>Front &lt;Title&gt;</title><meta name="author" content="Jane">' in text
    assert "Jane" not in printed[0].get_text()
    assert printed.metadata["title"] == "Front <Title>"
    assert codes(result) == set()


def test_markdown_keeps_its_structure() -> None:
    code = "\n```python\nx = 1\n```\n\n$a_1*b_2*c$ in text\n$$\\int_0^1 x_i <2$$\n"
    source = _GITHUB.replace("\nTerm", f"{code}\nTerm").replace(
        "author: Jane", "author:\n  - Jane\n  - 'B, C'\nlang: de"
    )

    result = _convert(source.encode(), "a.md", "md")

    kept = source.replace(": Def", ":   Def").replace(
        "author:\n  - Jane\n  - 'B, C'\nlang: de", 'author: ["Jane", "B, C"]\nlang: "de"'
    )
    kept = kept.replace("$HOME_a and $5 to $10, https://auto.link", "\\$HOME_a and \\$5 to \\$10, <https://auto.link>")
    assert result.data.decode().replace("---\n\n", "---\n").replace("in text\n\n", "in text\n") == kept
    assert codes(result) == set()


@pytest.mark.parametrize(
    ("formula", "drawn"), [("$\\frac{a_1}{b}$", True), ("$$\\int_0^1 x$$", True), ("{" * 900, False)]
)
def test_formulas_are_drawn(formula: str, drawn: bool) -> None:
    formula = formula if drawn else f"${formula}$"
    result = _convert(f"Formula\n\n{formula}".encode(), "a.md", "pdf")
    page = pymupdf.open("pdf", result.data)[0]

    assert "effects_dropped" not in codes(result)
    assert len(page.get_drawings()) > 2 or not drawn
    assert (page.get_text().split() == ["Formula"]) is drawn


def test_cells_beyond_the_columns_of_a_table_are_told() -> None:
    table = "> | a | b |\n> |---|---|\n> | `c|d` | e |\n> | f |\n"
    assert codes(_convert(table.encode(), "a.md", "txt")) == {"text_dropped"}
    assert codes(_convert(table.replace("|d", r"\\|d").encode(), "a.md", "txt")) == set()


def test_code_has_colors() -> None:
    page = _page(b"```python\ndef f(): pass\n```\n\n```unknown\n<def>\n```\n", "a.md")
    spans = [span for block in page.get_text("dict")["blocks"] for line in block["lines"] for span in line["spans"]]

    assert {span["text"].strip(): span["color"] for span in spans if "def" in span["text"]} == {
        "def": 0x008000,
        "<def>": 0,
    }


def test_long_words_of_markdown_are_broken() -> None:
    text = _page(f"https://{'a' * 200}\n\n`{'b' * 200}`".encode(), "a.md").get_text(clip=(0, 0, 595, 842))

    assert (text.count("a"), text.count("b")) == (200, 200)


def test_documents_become_markdown() -> None:
    source = _convert(_MARKDOWN.replace(b"| 1 | 2 |", b"| 1 | 2 |\n| 3 | 4 |"), "a.md", "pdf").data

    text = convert(source, "md").data.decode()

    assert text.startswith("# Title\n")
    assert "some _text_ with a [link](https://example.com/)" in text
    assert "|1|2|\n|3|4|" in text.replace(" ", "")
    assert "- one\n" in text


_HOSTILE = {
    "many elements": b"<!DOCTYPE html>" + b"<p><b>a</b>" * 26_000,
    "nesting": b"<!DOCTYPE html>" + b"<div>" * 50_000,
    "a deep style": b"<!DOCTYPE html><style>" + b"a{" * 20_000 + b"</style>a",
    "a truncated archive": books.zipped({"index.html": "a" * 1000})[:-60],
    "a damaged archive": books.zipped({"index.html": "a" * 1000})[:40]
    + b"\0" * 60
    + books.zipped({"index.html": "a" * 1000})[46:],
    "no archive": b"PK\x03\x04",
    "a damaged picture": b"<!DOCTYPE html><img src='data:image/png;base64,AAAA'>",
    "binary": b"<!DOCTYPE html>" + bytes(range(256)) * 10,
    "a counter": b"<!DOCTYPE html><style>p::after{content:counter(a,'x')}</style>" + b"<p>" * 500,
}


_TOO_MANY = ("many elements", "nesting")


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", _HOSTILE)
async def test_hostile_pages_are_drawn_or_refused(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    source = tmp_path / "a.html"
    source.write_bytes(_HOSTILE[name])
    reason: str | None = "drawn"
    try:
        plan = _REGISTRY.plan([_REGISTRY.identify(source)], "pdf", options=_PRINTED)
        await run_files(executor, FileJob(Task.of(plan, _PRINTED), [source], tmp_path / "result"))
    except ConversionError as error:
        reason = error.reason
    assert reason in ("drawn", "corrupt_input", "unrecognized") if name not in _TOO_MANY else reason == "elements"


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.long
async def test_a_page_may_take_a_sixth_of_the_time_of_its_job(
    executor: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code in C, which does not return, is no exception."""
    monkeypatch.setattr(local, "TaskTime", lambda *_: TaskTime(TaskLimits()))  # as a busy machine takes longer
    source = tmp_path / "a.html"
    source.write_bytes(SLOW_PAGES["tabs"])
    plan = _REGISTRY.plan([_REGISTRY.identify(source)], "pdf", options=_PRINTED)

    with pytest.raises(TooLarge) as raised:
        await run_files(executor, FileJob(Task.of(plan, _PRINTED), [source], tmp_path / "result"), TaskLimits(cpu=10))

    assert (raised.value.reason, raised.value.details) == ("elements", {"max_layout_seconds": 1})
