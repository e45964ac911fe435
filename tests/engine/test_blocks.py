"""The structure of documents: what walks the tree, counts its words and completes its tables."""

from warnings import catch_warnings

import pytest

from engine import FidelityWarning, blocks
from engine.blocks import Cell, Heading, ItemList, ListItem, Paragraph, Run, Table

NOTE = (Paragraph((Run("a note"),)),)
CONTENT = (
    Heading(1, (Run("Title"),)),
    Paragraph((Run("text "), Run("bold", bold=True), Run(note=NOTE))),
    ItemList((ListItem((Paragraph((Run("entry"),)),), term=(Run("term"),)),), kind="definitions"),
    Table(((Cell("plain"), Cell((Paragraph((Run("cell"),)),))),), caption=(Run("caption"),)),
)


def test_text_comes_in_reading_order() -> None:
    assert [*blocks.plain_texts(CONTENT)] == [
        "Title",
        "text bold",
        "a note",
        "term",
        "entry",
        "caption",
        "plain",
        "cell",
    ]


def test_dropped_words_are_counted() -> None:
    source = blocks.words(["one two two", "three"])
    with pytest.warns(FidelityWarning, match="2 of 4 words are not in the result: two, three") as caught:
        blocks.warn_dropped_text(source, blocks.words(["two one, four"]))
    assert [one.message.code for one in caught if isinstance(one.message, FidelityWarning)] == ["text_dropped"]


def test_no_warning_if_every_word_is_kept() -> None:
    with catch_warnings(action="error"):
        blocks.warn_dropped_text(blocks.words(["one two"]), blocks.words(["two", "one", "more"]))


def test_runs_of_one_style_are_joined() -> None:
    runs = (Run("a"), Run(""), Run("b"), Run("c", bold=True), Run(note=NOTE), Run("d"))
    assert blocks.merged(runs) == (Run("ab"), Run("c", bold=True), Run(note=NOTE), Run("d"))


def test_cells_that_span_rows_and_columns_take_their_places() -> None:
    tall = Cell("tall", rowspan=2)
    wide = Cell("wide", colspan=2)
    table = Table(((tall, wide), (Cell("a"), Cell("b")), (Cell("c"),)))
    assert [*table.grid()] == [[tall, wide, None], [None, Cell("a"), Cell("b")], [Cell("c")]]
