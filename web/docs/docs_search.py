"""The search of the documentation: the entries of its pages in a full-text index of SQLite."""

import re
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType

from web.docs.suggestions import FORMAT_WORDS

_MATCH = "\1"  # begins a match
_LIMIT = 40  # results
_MAX_WORDS = 12
_IGNORED = frozenset(
    ("a", "an", "and", "do", "for", "from", "how", "i", "in", "into", "is", "it", "my", "of", "on", "or", "the", "to")
)
_SYNONYMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "auth": ("authentication",),
        "combine": ("merge",),
        "compress": ("max_bytes", "quality"),
        "doc": ("docx",),
        "join": ("merge",),
        "picture": ("image",),
        "pictures": ("images",),
        "price": ("credits",),
        "pricing": ("credits",),
        "resize": ("width", "height"),
        "signature": ("sign", "signed"),
        "timeout": ("duration", "seconds"),
    }
)
_SCHEMA = """
CREATE VIRTUAL TABLE entries USING fts5(
    path UNINDEXED, page UNINDEXED, id, title, words, text, tokenize = "porter unicode61 tokenchars '_'"
)"""
# The columns weigh as much as they tell: the id, the title, words that people use for it, and the text.
_FIND = """
SELECT path, page, id, highlight(entries, 3, char(1), char(2)), highlight(entries, 4, char(1), char(2)),
    snippet(entries, 5, char(1), char(2), '…', 28)
FROM entries WHERE entries MATCH ? ORDER BY bm25(entries, 0, 0, 6, 10, 12, 1) LIMIT ?"""


@dataclass(frozen=True)
class SearchResult:
    """An entry: the path and the title of its page, its anchor, and title and excerpt as pairs of text and match."""

    path: str
    page: str
    id: str
    title: list[tuple[str, bool]]
    excerpt: list[tuple[str, bool]]


class DocsSearch:
    """An index in memory, empty at first. Its methods block for milliseconds and may run in any thread."""

    def __init__(self) -> None:
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._lock = Lock()
        self._database.execute(_SCHEMA)

    def is_empty(self) -> bool:
        """Whether there are no entries."""
        with self._lock:
            return self._database.execute("SELECT 1 FROM entries LIMIT 1").fetchone() is None

    def fill(self, entries: Iterable[tuple[str, str, str, str, str, str]]) -> None:
        """Replaces the entries: path and title of the page, anchor, title, further words and text of each."""
        with self._lock, self._database:
            self._database.execute("DELETE FROM entries")
            self._database.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", entries)

    def find(self, query: str) -> list[SearchResult]:
        """The best entries that have all words of the query, or synonyms of them; without any, those with some."""
        terms = [_term(word) for word in _words(query)]
        for operator in (" AND ", " OR ") if terms else ():
            with self._lock:
                rows = self._database.execute(_FIND, (operator.join(terms), _LIMIT)).fetchall()
            if rows:
                return [_result(*row) for row in rows]
        return []


def _words(query: str) -> list[str]:
    """The words that tell something: numbers, as in "under 200 kB", do not."""
    words = re.findall(r"[\w-]+", query.lower())[:_MAX_WORDS]
    telling = [word for word in words if word not in _IGNORED and not re.fullmatch(r"\d+\w?b?", word)]
    return telling or words


def _term(word: str) -> str:
    """An expression of FTS5 for words that begin so, and for synonyms."""
    formats = [name for name, words in FORMAT_WORDS.items() if word in words.split()]
    quoted = [f'"{one}"' for one in (word, *_SYNONYMS.get(word, ()), *formats)]
    return f"({quoted[0]}* OR {' OR '.join(quoted)})"


def _result(path: str, page: str, id: str, title: str, words: str, text: str) -> SearchResult:
    """The excerpt shows the further words of an entry if only they match."""
    shown = f"Also: {words}" if _MATCH in words and _MATCH not in title + text else text
    return SearchResult(path, page, id, _marked(title), _marked(shown))


def _marked(text: str) -> list[tuple[str, bool]]:
    """The parts of a text in which matches are between the characters 1 and 2."""
    parts = re.split(f"[{_MATCH}\2]", text)
    return [(part, place % 2 == 1) for place, part in enumerate(parts) if part]
