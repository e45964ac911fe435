"""Parsing of page ranges."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import InvalidOption, PageRanges
from engine.executor import Task


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("2,5,8", ((2, 2), (5, 5), (8, 8))),
        ("3-5", ((3, 5),)),
        ("1,3, ", ((1, 1), (3, 3))),
        (" 8 , 2,2 ,5-5,1 - 3 ", ((8, 8), (2, 2), (2, 2), (5, 5), (1, 3))),
        ("1-999999999", ((1, 999999999),)),
        (" all ", ()),
        ('[2, "5-6"]', ((2, 2), (5, 6))),
    ],
)
def test_text(text: str, spans: tuple[tuple[int, int], ...]) -> None:
    assert PageRanges.parse(text).spans == spans


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ",",
        "1,,",
        ",1",
        "0",
        "-1",
        "two",
        "5-3",
        "1--2",
        "1-",
        "1.5",
        "+1",
        "1 2",
        "٣",
        "9" * 5000,
        "0-2",
        "[]",
        "[1",
        "[1.5]",
    ],
)
def test_malformed_pages(text: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        PageRanges.parse(text)

    assert raised.value.param == "pages"


@pytest.mark.parametrize("spans", [((0, 1),), ((3, 2),)])
def test_only_valid_values_exist(spans: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(InvalidOption):
        PageRanges(spans)


@given(st.lists(st.integers(1, 30), min_size=1))
def test_any_order(numbers: list[int]) -> None:
    pages = PageRanges.parse(",".join(map(str, numbers)))

    assert pages.indexes(30) == [number - 1 for number in dict.fromkeys(numbers)]


def test_ranges_in_any_order() -> None:
    assert PageRanges.parse("7-9,8,1-2,2-3").indexes(9) == [6, 7, 8, 0, 1, 2]


def test_all_pages() -> None:
    assert PageRanges.parse("all").indexes(3) == [0, 1, 2]


def test_beyond_the_last_page() -> None:
    with pytest.raises(InvalidOption) as raised:
        PageRanges.parse("2,1-999999999").indexes(4)

    assert (raised.value.param, raised.value.details["page_count"]) == ("pages", 4)


def test_a_password_is_never_shown() -> None:
    assert "secret" not in repr(Task(("pdf",), "png", {"password": "secret"}))
