"""The time of PDF tools grows with the number of pages, names, outline items, links and fields, not with its square."""

from collections.abc import Callable, Sequence
from functools import partial
from time import process_time
from typing import Any

import pytest
from pikepdf import Array, Dictionary, Name, ObjectStreamMode, Pdf, String

from engine.pipeline import PipelineResult
from tests.support.results.conversions import run_tool
from tests.support.samples.pdf_documents import at, compress, delete, merge, outline, saved, tagged
from tests.support.samples.pdf_images import GRAY, add_page, flate

_SIZES = (150, 600, 2400)
_MAX_GROWTH = 8  # at four times the size; 4 is linear, 16 is quadratic


def _pages(document: Pdf, count: int) -> None:
    for _ in range(count // 4):  # qpdf takes 0.1 µs for each page before an added one
        document.add_blank_page(page_size=(200, 200))


def _named_links(document: Pdf, count: int) -> None:
    names = [String(f"name {number:05}") for number in range(count)]
    entries = [part for number, name in enumerate(names) for part in (name, at(document, number % 3))]
    document.Root.Names = Dictionary(Dests=document.make_indirect(Dictionary(Names=Array(entries))))
    keys: dict[str, Any] = {"Type": Name.Annot, "Subtype": Name.Link, "Rect": [0, 0, 9, 9]}
    links = [document.make_indirect(Dictionary(**keys, Dest=name)) for name in names]
    document.pages[0].obj.Annots = Array(links)


def _outline(document: Pdf, count: int) -> None:
    outline(*((f"item {number}", number % 3, True, []) for number in range(count)))(document)


def _fields(document: Pdf, count: int) -> None:
    page = document.pages[0].obj
    keys: dict[str, Any] = {"Type": Name.Annot, "Subtype": Name.Widget, "FT": Name.Tx, "Rect": [0, 0, 9, 9], "P": page}
    fields = [document.make_indirect(Dictionary(**keys, T=String(f"field {number}"))) for number in range(count)]
    page.Annots = Array(fields)
    document.Root.AcroForm = Dictionary(Fields=Array(fields), DA=String("/Helv 0 Tf"))


def _merge(data: bytes) -> PipelineResult:
    return merge(data, data)


_delete = partial(delete, pages="2")


@pytest.mark.parametrize(
    ("fill", "run"),
    [
        (_pages, _delete),
        (_named_links, _merge),
        (_outline, _delete),
        (_fields, _merge),
        *(pytest.param(fill, _merge, marks=pytest.mark.long) for fill in (_pages, _outline)),
        *(pytest.param(fill, _delete, marks=pytest.mark.long) for fill in (_named_links, _fields)),
    ],
)
@pytest.mark.long
def test_time_grows_in_proportion(fill: Callable[[Pdf, int], None], run: Callable[[bytes], PipelineResult]) -> None:
    files = []
    for size in _SIZES:
        document = Pdf.new()
        for _ in range(3):
            document.add_blank_page(page_size=(200, 200))
        fill(document, size)
        files.append(saved(document, object_stream_mode=ObjectStreamMode.generate))

    _check_growth(run, files, rounds=3)


def _full_pages(count: int) -> bytes:
    """Pages with a name, a bookmark, a link, a field below a common one, a tag, and resources that all share."""
    made = Pdf.new()
    forms = {
        f"/X{number}": made.make_stream(b"0 0 9 9 re f", Subtype=Name.Form, BBox=Array([0, 0, 9, 9]))
        for number in range(count)
    }
    shared = made.make_indirect(Dictionary(XObject=Dictionary(forms)))
    group = made.make_indirect(Dictionary(T=String("group"), FT=Name.Tx, Kids=Array()))
    for number in range(count):
        page = made.add_blank_page(page_size=(200, 200)).obj
        page.Resources, page.Contents = shared, made.make_stream(b"/X%d Do" % number)
        keys: dict[str, Any] = {"Type": Name.Annot, "Rect": [0, 0, 9, 9]}
        link = Dictionary(**keys, Subtype=Name.Link, Dest=String(f"name {(number + count // 2) % count:05}"))
        widget = Dictionary(**keys, Subtype=Name.Widget, T=String(str(number)), Parent=group)
        page.Annots = Array([made.make_indirect(link), made.make_indirect(widget)])
        group.Kids.append(page.Annots[1])
    made.Root.AcroForm = Dictionary(Fields=Array([group]))
    pages = [page.obj for page in made.pages]
    places = [made.make_indirect(Array([page, Name.Fit])) for page in pages]
    names = [part for number, place in enumerate(places) for part in (String(f"name {number:05}"), place)]
    made.Root.Names = Dictionary(Dests=made.make_indirect(Dictionary(Names=Array(names))))
    outline(*((f"item {number}", place, True, []) for number, place in enumerate(places)))(made)
    tagged(made)
    return saved(made, object_stream_mode=ObjectStreamMode.generate)


@pytest.mark.long
@pytest.mark.parametrize("tool", ["pdf-split", "pdf-extract-pages", "pdf-number-pages", "pdf-flatten"])
def test_time_of_tools_grows_in_proportion_to_pages(tool: str) -> None:
    required: dict[str, Any] = {"pdf-split": {"every": 1}, "pdf-extract-pages": {"pages": "all"}}

    def run(data: bytes) -> object:
        return run_tool(tool, data, **required.get(tool, {}))

    _check_growth(run, [_full_pages(count) for count in (20, 80, 320)], rounds=2)


@pytest.mark.long
def test_the_time_to_compress_grows_in_proportion() -> None:
    files = []
    for size in (20, 80, 320):
        document = Pdf.new()
        for number in range(size):
            form = document.make_stream(b"q 9 0 0 9 0 0 cm /P Do Q", Type=Name.XObject, Subtype=Name.Form)
            form.Resources = Dictionary(XObject=Dictionary(P=flate(document, GRAY, Name.DeviceGray)))
            form.BBox = Array([0, 0, 9, 9])
            add_page(document, form)
            document.pages[-1].obj.Group = document.make_indirect(Dictionary(Number=number))
        _fields(document, size)
        files.append(saved(document))

    _check_growth(compress, files, rounds=2)


def _check_growth(run: Callable[[bytes], object], files: Sequence[bytes], rounds: int) -> None:
    """Runs each file, which is four times as large as the one before, in each round: the machine's pace varies."""
    small, medium, large = map(min, zip(*([_measure(run, data) for data in files] for _ in range(rounds)), strict=True))
    assert medium < small * _MAX_GROWTH
    assert large < medium * _MAX_GROWTH


def _measure(run: Callable[[bytes], object], data: bytes) -> float:
    started = process_time()
    run(data)
    return process_time() - started
