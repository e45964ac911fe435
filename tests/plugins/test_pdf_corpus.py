"""Real PDFs: any two can be merged, any page deleted, and the other pages look the same."""

from functools import cache
from typing import Any

import pypdfium2
import pytest

from benchmarks.compression import similarity
from engine.mupdf import pymupdf
from tests.support.results.conversions import run_tool
from tests.support.results.pdf_checks import complaints, drawn_pages
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.pdf_documents import delete, merge, opened

_PASSWORDS = {
    "pdf/aes256_user_password.pdf": "asdfzxcv",
    "pdf/password_openpassword.pdf": "openpassword",
    "pdf/rc4_128_user_password.pdf": "asdfzxcv",
}
_PDFS = [entry for entry in load_corpus() if entry.name.startswith("pdf/")]
_KEEPING = ("extract", "split", "merge", "rotate", "protect", "unlock")
_MIN_SIMILARITY = 0.999
_MOST_MERGED, _MOST_CHECKED = 20, 5  # files


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    everything = metafunc.config.getoption("long")
    if "pair" in metafunc.fixturenames:
        every = [(first, second) for first in _PDFS for second in _PDFS]
        chosen = every if everything else [(one, _PDFS[(2 * at + 1) % len(_PDFS)]) for at, one in enumerate(_PDFS[::2])]
        chosen = [pair for pair in chosen if _one_password_opens(*pair)]
        metafunc.parametrize("pair", chosen, ids=[f"{a.name}+{b.name}" for a, b in chosen])
    if "number" in metafunc.fixturenames:
        pages = [(entry, number) for entry in _PDFS for number in range(1, _count(entry) + 1) if _count(entry) > 1]
        some = [(entry, number) for entry, number in pages if number == _count(entry) // 2 + 1]
        those = pages if everything else some
        metafunc.parametrize(("entry", "number"), those, ids=[f"{entry.name}-{number}" for entry, number in those])

    if "kept" in metafunc.fixturenames:
        rounds = [(entry, name) for entry in _PDFS for name in _KEEPING]
        some_rounds = [(_PDFS[place % len(_PDFS)], name) for place, name in enumerate(_KEEPING)] if _PDFS else []
        cases = rounds if everything else some_rounds
        metafunc.parametrize(("entry", "kept"), cases, ids=[f"{entry.name}-{name}" for entry, name in cases])


def _one_password_opens(*entries: Entry) -> bool:
    """Whether one password opens all files of a merge."""
    return len({_PASSWORDS[entry.name] for entry in entries if entry.name in _PASSWORDS}) <= 1


@cache
def _count(entry: Entry) -> int:
    return len(pypdfium2.PdfDocument(entry.path.read_bytes(), password=_PASSWORDS.get(entry.name)))


def _looks(data: bytes, password: str | None = None) -> list[int]:
    """A digest of every rendered page, including form fields."""
    return [hash(page.tobytes()) for page in drawn_pages(data, password, scale=0.3, mode="RGB")]


@cache
def _looks_of(entry: Entry) -> list[int]:
    return _looks(entry.path.read_bytes(), _PASSWORDS.get(entry.name))


def _toc(data: bytes, password: str | None) -> list[tuple[int, str, int]]:
    document = pymupdf.open("pdf", data)
    if password:
        document.authenticate(password)
    return [(level, title, page) for level, title, page, *_ in document.get_toc()]


def test_merge(pair: tuple[Entry, Entry]) -> None:
    inputs = [entry.path.read_bytes() for entry in pair]
    passwords = [_PASSWORDS.get(entry.name) for entry in pair]

    data = merge(*inputs, password=passwords[0] or passwords[1]).data

    opened(data)
    looks = [_looks_of(entry) for entry in pair]
    assert _looks(data) == looks[0] + looks[1]
    first, second = (_toc(file, password) for file, password in zip(inputs, passwords, strict=True))
    start = len(looks[0])
    assert _toc(data, None) == first + [(level, title, page + start) for level, title, page in second]


def test_delete(entry: Entry, number: int) -> None:
    whole, password = entry.path.read_bytes(), _PASSWORDS.get(entry.name)

    data = delete(whole, str(number), password).data

    opened(data, password or "")
    looks = _looks_of(entry)
    assert _looks(data, password) == looks[: number - 1] + looks[number:]
    left = [(title, page) for _, title, page in _toc(whole, password) if page != number]
    found = [(title, page) for _, title, page in _toc(data, password) if page != -1]
    assert found == [(title, page - (page > number)) for title, page in left]


def _kept(data: bytes, name: str, secret: dict[str, Any]) -> tuple[list[bytes], str]:
    """The results of a tool that keeps how pages look, and the password that opens them."""
    password = secret.get("password", "")
    match name:
        case "extract":
            return [run_tool("pdf-extract-pages", data, pages="1-", **secret).data], password
        case "split" | "merge":
            parts = [*run_tool("pdf-split", data, every=2, **secret).files.values()][:_MOST_MERGED]
            if name == "split" or len(parts) == 1:
                return parts, password
            return [run_tool("pdf-merge", *parts, **secret).data], ""
        case "rotate":
            return [run_tool("pdf-rotate", data, angle=90, **secret).data], password
        case "protect":
            return [run_tool("pdf-protect", data, user_password="new", allow="print", **secret).data], "new"
    return [run_tool("pdf-unlock", data, **secret).data], ""


def test_pages_look_the_same_and_no_reader_complains(entry: Entry, kept: str) -> None:
    whole, password = entry.path.read_bytes(), _PASSWORDS.get(entry.name)

    results, opening = _kept(whole, kept, {} if password is None else {"password": password})

    before = drawn_pages(whole, password, turned=90 if kept == "rotate" else 0)
    after = [page for result in results for page in drawn_pages(result, opening)]
    assert len(after) == len(before) or kept in ("split", "merge")
    for first, second in zip(before, after, strict=False):
        assert similarity(first, second) >= _MIN_SIMILARITY
    known = complaints(whole, password or "")
    assert [found for result in results[:_MOST_CHECKED] if (found := complaints(result, opening) - known)] == []
