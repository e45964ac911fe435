"""E-books, comics, XPS, plain text and DjVu as documents."""

import subprocess
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import pypdfium2
import pytest
from PIL import Image

from engine import ConversionError, CorruptInput, InvalidOption, TooLarge, UnknownFormat, pipeline
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.options import OptionValue
from engine.registry import load_registry
from engine.verification import verify
from plugins.formats.djvu import DJVULIBRE
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results import readers
from tests.support.results.conversions import codes, convert, opened
from tests.support.samples import books
from tests.support.samples.generated import COLORS, SIZE, quadrants, sample, saved
from tests.support.samples.pairs import every

_REGISTRY = load_registry()
_BOOKS = ("epub", "fb2", "mobi")
_LETTER = (612, 792)


def _pdf(data: bytes, **options: OptionValue) -> pymupdf.Document:
    return pymupdf.open("pdf", convert(data, "pdf", **options).data)


@pytest.mark.parametrize("name", _BOOKS)
def test_a_book_is_laid_out_on_pages(name: str) -> None:
    options: dict[str, OptionValue] = {"page_size": "letter", "landscape": True, "margin": 50, "font_size": 30}
    made = _pdf(sample(name), **options)

    edge = 50 / 25.4 * 72
    assert made[0].rect.br == _LETTER[::-1]
    span = made[0].get_text("dict")["blocks"][1]["lines"][0]["spans"][0]
    assert span["size"] == pytest.approx(30, abs=0.1)
    assert all(
        edge - 1 <= block[0] and block[2] <= _LETTER[1] - edge + 1 for page in made for block in page.get_text("blocks")
    )
    assert [title for _, title, _ in made.get_toc()] == list(books.CHAPTERS)
    assert made.metadata["title"] == ("" if name == "mobi" else books.TITLE)


@pytest.mark.parametrize("name", _BOOKS)
def test_text_of_a_book_is_in_its_order(name: str) -> None:
    text = convert(sample(name), "txt").data.decode()

    expected = [line for title in books.CHAPTERS for line in (title, f"The text of the {title.lower()}.")]
    lines = [line for line in text.replace("\f", "").split("\n\n") if line.strip() != "next"]
    assert lines == [*expected[:-1], f"{expected[-1]}\n"]


def test_the_structure_of_a_book_is_that_of_its_chapters() -> None:
    one = '<p>a<a epub:type="noteref" xmlns:epub="http://www.idpf.org/2007/ops" href="c2.xhtml#n">1</a></p>'
    one += '<p><a href="c2.xhtml#x">b</a> <a href="c2.xhtml">c</a> <a href="http://d.example/">d</a></p>'
    one += (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:x="http://www.w3.org/1999/xlink"><image x:href="./p.png"/></svg>'
    )
    two = '<h2 id="x">e</h2><aside id="n"><p>said</p></aside>'
    data = books.epub(b"PNG", c1_xhtml=books.chapter("One", one), c2_xhtml=books.chapter("Two", two))

    result = convert(data, "md")

    picture = "![](data:image/png;base64,UE5H)"
    chapters = "# Two\n\nThe text of the two.\n\n## e\n\n[^1]: said\n"
    assert result.data.decode() == (
        f'---\ntitle: "{books.TITLE}"\n---\n\n# One\n\nThe text of the one.\n\na[^1]\n\n'
        f"[b](#e) [c](#two) [d](http://d.example/)\n\n{picture}\n\n{chapters}"
    )
    assert codes(result) == set()


def test_style_sheets_of_a_book_give_its_text_styles() -> None:
    head = '<link rel="stylesheet" href="styles/a%20b.css"/>'
    one = books.chapter("One", '<p><span class="e">a</span></p>').replace("<head>", f"<head>{head}")
    data = books.epub(b"", c1_xhtml=one, **{"styles/a b_css": ".e{font-style:italic}"})
    assert "\n\n_a_\n" in convert(data, "md").data.decode()


@pytest.mark.parametrize(
    "files",
    [
        {"META-INF/container_xml": "<container/>"},
        {"META-INF/container_xml": "\0"},
        {"book_opf": "<!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>"},
        {"book_opf": "<package><spine><itemref idref='c1'/></spine></package>"},
        {"META-INF/rights_xml": "<rights/>"},
    ],
    ids=["no package", "no container", "entities", "no chapters", "rights"],
)
def test_books_without_chapters_are_refused(files: dict[str, str]) -> None:
    with pytest.raises(CorruptInput):
        convert(books.epub(b"", **files), "md")


def test_links_in_a_book_lead_to_its_pages() -> None:
    made = _pdf(sample("epub"))

    (link,) = made[0].get_links()
    assert (link["kind"], link["page"], made.page_count) == (pymupdf.LINK_GOTO, 1, 2)
    assert len(made[0].get_images()) == 1


def test_pages_are_selected() -> None:
    assert _pdf(sample("epub"), pages="2")[0].get_text().startswith(books.CHAPTERS[1])
    assert convert(sample("epub"), "png", pages="1-2").outcome.file_count == 2


def test_margins_that_leave_no_space() -> None:
    with pytest.raises(InvalidOption) as raised:
        convert(sample("epub"), "pdf", page_size="a6", margin=53)

    assert raised.value.param == "margin"


def test_what_a_book_does_not_contain_is_not_loaded() -> None:
    outside = '<p><img src="http://127.0.0.1:9/p.png"/><img src="../../../etc/passwd"/>text</p>'

    result = convert(books.epub(sample("png"), c1_xhtml=books.chapter("One", outside)), "pdf")

    assert "resource_not_loaded" in codes(result)
    assert pymupdf.open("pdf", result.data)[0].get_images() == []


@pytest.mark.parametrize("extension", ["png", "jpg", "webp", "avif", "gif", "bmp", "tif"])
def test_a_comic_has_a_page_for_each_image(extension: str) -> None:
    encoder = Image.registered_extensions()[f".{extension}"]
    images = [saved(quadrants((40 + index, 30)), encoder, dpi=(96, 96)) for index in range(11)]

    made = _pdf(books.cbz(*images, extension=extension))

    assert [round(page.rect.width / 0.75) for page in made] == list(range(40, 51))


def test_a_damaged_image_of_a_comic_is_an_empty_page_with_a_warning() -> None:
    result = convert(books.cbz(sample("png"), b"no picture"), "pdf")

    assert codes(result) == {"resource_not_loaded"}
    assert pymupdf.open("pdf", result.data).page_count == 2


def test_files_of_macos_in_a_comic_are_no_pages() -> None:
    comic = books.zipped({"a.png": sample("png"), "__MACOSX/._a.png": b"attributes"})

    result = convert(comic, "pdf")

    assert not codes(result)
    assert pymupdf.open("pdf", result.data).page_count == 1


@pytest.mark.parametrize("encoder", ["WEBP", "AVIF"])
def test_images_of_a_book_are_drawn(encoder: str) -> None:
    name = f"a.{encoder.lower()}"
    body: str | bytes = books.chapter("One", f'<p><img src="{name}"/></p>')
    files = {"c1_xhtml": body, name: saved(quadrants(), encoder)}

    result = convert(books.epub(sample("png"), **files), "pdf")

    assert not codes(result)
    assert len(pymupdf.open("pdf", result.data)[0].get_images()) == 1


def test_jpeg_in_a_comic_stays_as_it_is() -> None:
    image = sample("jpeg")

    made = _pdf(books.cbz(image, extension="jpg"), metadata="all")

    assert made.xref_stream_raw(made[0].get_images()[0][0]) == image


_TEXT = "\n\n  two spaces\n\ttab\nGröße 漢字 עברית 😀\n" + "x" * 300 + "\n" + "\n".join(map(str, range(430))) + "\fnext"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_is_laid_out_in_lines(encoding: str) -> None:
    made = _pdf(_TEXT.encode(encoding))
    lines = [
        (line["bbox"], "".join(span["text"] for span in line["spans"]))
        for page in made
        for block in page.get_text("dict")["blocks"]
        for line in block["lines"]
    ]

    texts = [text for _, text in lines]
    assert "Größe 漢字 עברית" in texts
    assert "😀" in made[0].get_text()
    assert "".join(text for text in texts if text.strip("x") == "") == "x" * 300
    assert [text for text in texts if text.isdecimal()] == list(map(str, range(430)))
    assert made[-1].get_text() == "next\n"
    # Two empty lines above the first, and no more space between parts that are laid out separately.
    step = lines[texts.index("2")][0][1] - lines[texts.index("1")][0][1]
    assert lines[0][0][1] == pytest.approx(20 / 25.4 * 72 + 2 * step, abs=1)
    heights = [(box[1], text) for box, text in lines if text.isdecimal()]
    steps = [after[0] - before[0] for before, after in pairwise(heights)]
    assert all(gap == pytest.approx(step, abs=0.1) or gap < 0 for gap in steps)


def test_text_in_windows_1252() -> None:
    data = "Größe: 5 €".encode("cp1252")
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data, "a.txt")], "pdf")

    assert pymupdf.open("pdf", pipeline.run(plan, [data]).data)[0].get_text() == "Größe: 5 €\n"


def test_text_that_shows_other_formats() -> None:
    shown = "<!DOCTYPE html> and GIF89a"
    data = _pdf(b"see").tobytes()
    made = pymupdf.open("pdf", data)
    made[0].insert_text((50, 20), shown)
    source = bytes(made.tobytes())
    plan = _REGISTRY.plan([_REGISTRY.formats["pdf"]], "txt")
    result = pipeline.run(plan, [source])

    verify(_REGISTRY, plan, result.file)

    assert result.data.decode().startswith(shown)


def test_a_long_text_is_refused() -> None:
    with pytest.raises(TooLarge) as raised:
        convert(b"\f" * 2001, "pdf")

    assert raised.value.reason == "pages"


def _declared_size(data: bytes, size: int) -> bytes:
    """The archive, whose first entry claims to unpack to `size` bytes."""
    at = data.index(b"PK\x01\x02") + 24
    return data[:at] + size.to_bytes(4, "little") + data[at + 4 :]


def _bomb() -> bytes:
    return books.zipped({"1.png": b"\0" * (1 << 24)})


_HOSTILE: dict[str, Callable[[], bytes]] = {
    "truncated epub": lambda: sample("epub")[:-200],
    "truncated cbz": lambda: sample("cbz")[:-100],
    "truncated xps": lambda: sample("xps")[:-30],
    "truncated fb2": lambda: sample("fb2")[:300],
    "truncated mobi": lambda: sample("mobi")[:120],
    "no chapter": lambda: books.epub(b"", book_opf="<package/>"),
    "damaged chapter": lambda: books.epub(b"", c1_xhtml=b"\xff<html><body><p"),
    "nesting": lambda: books.epub(b"", c1_xhtml="<div>" * 50_000),
    "rights": lambda: books.epub(b"", **{"META-INF/rights_xml": "<rights/>"}),
    "a large size": lambda: _declared_size(_bomb(), 1 << 30),
    "a wrong size": lambda: _declared_size(_bomb(), 100),
    "many files": lambda: books.cbz(*[b""] * 10_001),
    "no picture": lambda: books.cbz(b"no picture"),
    "a large picture": lambda: books.cbz(saved(Image.new("1", (30_000, 30_000)), "PNG")),
    "an endless book": lambda: books.fb2(b"").replace(b"<body>", b"<body>" + b"<section>" * 5_000),
}


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("name", every(2, _HOSTILE))
async def test_hostile_files_are_drawn_or_refused(executor: LocalExecutor, tmp_path: Path, name: str) -> None:
    source = tmp_path / f"book.{name.rpartition(' ')[2]}"
    source.write_bytes(_HOSTILE[name]())
    reason: str | None = "drawn"
    try:
        plan = _REGISTRY.plan([_REGISTRY.identify(source)], "png")
        await run_files(executor, FileJob(Task.of(plan), [source], tmp_path / "result"))
    except ConversionError as error:
        reason = error.reason
    assert reason in ("drawn", "corrupt_input", "bytes", "elements", "pages", "pixels", "unrecognized")


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a/1.jpg": b"", "a/2.PNG": b"", "ComicInfo.xml": b"", "__MACOSX/._1.jpg": b""}, "cbz"),
        ({"1.jpg": b"", "notes.txt": b""}, None),
        ({"notes.txt": b""}, None),
        ({"ComicInfo.xml": b""}, None),
        ({"META-INF/container.xml": b"", "mimetype": b"application/epub+zip"}, "epub"),
        ({"FixedDocSeq.fdseq": b"", "1.jpg": b""}, "xps"),
    ],
)
def test_archives_are_told_by_their_files(files: dict[str, bytes], expected: str | None) -> None:
    data = books.zipped(files)
    for name in ("a.zip", "a.cbz", "a.epub", ""):
        try:
            found: str | None = _REGISTRY.identify_content(data, name).name
        except UnknownFormat:
            found = None
        assert found == expected


def test_a_comic_is_drawn_as_its_images_are() -> None:
    drawn = opened(convert(sample("cbz"), "png", dpi=96).data)

    assert drawn.convert("RGB").tobytes() == Image.open(BytesIO(sample("png"))).convert("RGB").tobytes()
    with pytest.raises(ConversionError):
        convert(sample("cbz"), "png", pages="2")


@pytest.fixture
def djvu(tmp_path: Path) -> Path:
    """A file with two pages of 72 dpi: the quadrants, and the quadrants upside down."""
    paths = []
    for number, image in enumerate((quadrants(), quadrants().rotate(180))):
        image.save(tmp_path / f"{number}.ppm")
        paths.append(tmp_path / f"{number}.djvu")
        subprocess.run(["c44", "-dpi", "72", tmp_path / f"{number}.ppm", paths[-1]], check=True)
    subprocess.run(["djvm", "-c", tmp_path / "all.djvu", *paths], check=True)
    return tmp_path / "all.djvu"


@pytest.mark.skipif(not DJVULIBRE.present, reason="DjVuLibre is not installed")
@pytest.mark.asyncio(loop_scope="session")
async def test_all_pages_are_read(executor: LocalExecutor, djvu: Path, tmp_path: Path) -> None:
    plan = load_registry().plan([load_registry().identify(djvu)], "pdf")
    result = tmp_path / "result.pdf"

    await run_files(executor, FileJob(Task.of(plan), [djvu], result))

    reading = readers.read("pdf", result.read_bytes())
    assert (reading.size, reading.count) == (SIZE, 2)
    assert reading.pixels[30, 42].tolist() == pytest.approx(COLORS[0], abs=12)
    assert reading.pixels[90, 126].tolist() == pytest.approx(COLORS[3], abs=12)


@pytest.mark.skipif(not DJVULIBRE.present, reason="DjVuLibre is not installed")
def test_a_page_is_selected(djvu: Path) -> None:
    page = pypdfium2.PdfDocument(convert(djvu.read_bytes(), "pdf", pages="2").data)

    assert len(page) == 1
    assert page[0].render(scale=1).to_pil().convert("RGB").getpixel((42, 30)) == pytest.approx(COLORS[3], abs=12)


@pytest.mark.skipif(not DJVULIBRE.present, reason="DjVuLibre is not installed")
@pytest.mark.parametrize(("share", "filled"), [(0.3, False), (0.99, False), (0.5, True)])
def test_a_damaged_file_is_refused(djvu: Path, share: float, filled: bool) -> None:
    data = djvu.read_bytes()
    end = int(len(data) * share)

    with pytest.raises(CorruptInput):
        convert(data[:end] + bytes((len(data) - end) * filled), "png")
