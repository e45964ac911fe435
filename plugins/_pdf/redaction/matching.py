"""Searches text for words and for a regular expression, as people read it: ligatures are letters, spaces are alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from html import unescape
from types import MappingProxyType
from typing import NamedTuple
from unicodedata import category, normalize

import re2

from engine import InvalidOption

Span = tuple[int, int]
MARK = "█"
"""Replaces what was found in a text that is not drawn, such as a title."""
_MEMORY = 16 << 20  # bytes of the automaton of an expression
_HYPHENS = frozenset("-\u2010\u2011")
_ALIKE = MappingProxyType(
    str.maketrans({"\u2010": "-", "\u2011": "-", "\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'})
)
_HIDDEN = frozenset("\u00ad\u200b\u200c\u200d\u200e\u200f\u2060\ufeff")  # hyphens, spaces and marks without width
_MAX_CHARACTERS = 4096  # whose letters are remembered
_TAG = re.compile(r"<[^<>]*>")
_IDEOGRAPHS = "\u2e80"  # from here on, words are not separated by spaces
_SPACED = re.compile(r"(?<!\S)\S(?:\s\S){2,}(?!\S)\s?")  # letters with a space between all of them
_LOOSE = re.compile(r"(?<!\S)\S{1,2}(?:\s\S{1,2}){2,}(?!\S)\s?")  # and some that touch each other
_SURROGATES = re.compile("[\ud800-\udfff]")


class Matcher:
    """Finds texts in any case, also as parts of words, and what a regular expression in the syntax of RE2 matches.

    Raises InvalidOption, reason `malformed`, for an invalid expression and one that is too large.
    """

    def __init__(self, texts: Sequence[str], pattern: str | None) -> None:
        self._texts = [_fold(text, ignore_case=True)[0].strip() for text in texts]
        self._pattern = None if pattern is None else _compile(pattern)
        self.missing = set(range(len(texts) + (pattern is not None)))
        """The positions of the texts that were found nowhere; the expression is after the last one."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to find."""
        return not self._texts and self._pattern is None

    def spans(self, view: View) -> Iterator[Span]:
        """Where something is found in a text, as the places of its first character and after its last one."""
        folded, places = _fold(view.text, ignore_case=True)
        for number, wanted in enumerate(self._texts):
            wanted = wanted.replace(" ", "") if view.spaced else wanted
            start = folded.find(wanted)
            while start >= 0:
                end = start + len(wanted)
                # A letter with an accent is another letter. Marks of their own can belong to what follows.
                cut = end < len(folded) and places[end] == places[end - 1]
                if not (cut and category(folded[end])[0] == "M"):
                    self.missing.discard(number)
                    yield view.places[places[start]], view.places[places[end - 1]] + 1
                start = folded.find(wanted, start + 1)
        if self._pattern is None or view.loose:
            return
        plain, places = _fold(view.text, ignore_case=False)
        for found in self._pattern.finditer(plain):
            if found.end() > found.start():
                self.missing.discard(len(self._texts))
                yield view.places[places[found.start()]], view.places[places[found.end() - 1]] + 1

    def matches(self, text: str) -> bool:
        """Whether something is found in a text, or in the text of markup."""
        return any(True for view in (text, unescape(_TAG.sub("", text))) for _ in self.spans(_whole(view)))

    def replaced(self, text: str) -> str:
        """The text with a mark in place of each occurrence."""
        result = []
        last = 0
        for start, end in sorted(self.spans(_whole(text))):
            if start >= last:
                result += [text[last:start], MARK]
            last = max(last, end)
        return "".join(result) + text[last:]


def _whole(text: str) -> View:
    return View(text, range(len(text)))


def _compile(pattern: str) -> re2._Regexp[str]:
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        message = "pattern must be a regular expression in the syntax of RE2, which has no references and no lookahead."
        raise InvalidOption(message, reason="malformed", param="pattern") from None


def _fold(text: str, *, ignore_case: bool) -> tuple[str, list[int]]:
    """The text in which texts are searched, and for each of its characters the place in the original."""
    folded: list[str] = []
    places: list[int] = []
    for place, one in enumerate(text):
        letters = _letters(one, ignore_case)
        if letters != " " or folded[-1:] != [" "]:
            folded += letters
            places += [place] * len(letters)
    return "".join(folded), places


@lru_cache(_MAX_CHARACTERS)
def _letters(one: str, ignore_case: bool) -> str:
    """What a character is read as: its letters, a space for any space, or nothing."""
    if one in _HIDDEN:
        return ""
    if one.isspace():
        return " "
    plain = _SURROGATES.sub("\ufffd", one).translate(_ALIKE)
    return normalize("NFKD", plain).casefold() if ignore_case else normalize("NFKC", plain)


class View(NamedTuple):
    """A way to read a text, with the places of its characters in the text.

    `spaced`: spaces between letters are left out, so those of texts to find do not count. `loose`: some of them may be
    spaces between short words or numbers, so expressions are not searched.
    """

    text: str
    places: Sequence[int]
    spaced: bool = False
    loose: bool = False


def views(text: str) -> Iterator[View]:
    """The ways to read lines of text.

    A hyphen at the end of a line can be part of the word or not. A word can have a space between all its letters.
    """
    for keeps_hyphens in (True, False):
        places = list(_joined(text, keeps_hyphens=keeps_hyphens))
        yield View("".join(text[place] for place in places), places)
        if _HYPHENS.isdisjoint(text):
            break
    for expression in (_SPACED, _LOOSE):
        spaced = [
            place
            for match in expression.finditer(text)
            for place in range(*match.span())
            if not text[place].isspace() or place == match.end() - 1
        ]
        yield View("".join(text[place] for place in spaced), spaced, spaced=True, loose=expression is _LOOSE)


def _joined(text: str, *, keeps_hyphens: bool) -> Iterator[int]:
    """The places of the characters of a text without breaks between lines within a word."""
    for place, one in enumerate(text):
        before, after = text[place - 1 : place], text[place + 1 : place + 2]
        if one == "\n" and (before in _HYPHENS or (before >= _IDEOGRAPHS and after >= _IDEOGRAPHS)):
            continue
        if one in _HYPHENS and after == "\n" and not keeps_hyphens:
            continue
        yield place
