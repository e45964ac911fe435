"""The words of RTF, counted apart from LibreOffice, which leaves out text of structures that it does not understand."""

from __future__ import annotations

import re
from collections import Counter

from engine import blocks

_TOKEN = re.compile(
    rb"(?P<open>\{)|(?P<close>\})|(?P<text>[^\\{}\r\n]+)"
    rb"|\\(?:u-?\d+ ?(?:\\'[0-9a-fA-F]{2}|[^\\{}])?|'..)(?P<other>)"  # with what old programs show in its place
    rb"|\\(?P<word>[a-z]+)(?P<number>-?\d*) ?|\\(?P<symbol>[^a-z])",
    re.DOTALL,
)
_OTHER = "\0"  # a character beyond ASCII, whose words do not count
_RUN = re.compile(rf"[\w{_OTHER}]+")
_HIDDEN = b"v"
_BLANKS = frozenset(  # and marks between words
    b"par line tab cell nestcell row nestrow sect page column emdash endash emspace enspace qmspace bullet "
    b"lquote rquote ldblquote rdblquote".split()
)
# Groups that a document does not show in its text, or whose text LibreOffice makes anew.
_SKIPPED = frozenset(
    b"fonttbl colortbl stylesheet info pict nonshppict object field listtext pntext xe tc footnote "
    b"header headerl headerr headerf footer footerl footerr footerf".split()
)
_NOT_READ = (rb"\bin", rb"\deleted", rb"\revised")


def words(data: bytes) -> Counter[str]:
    """How often each word of ASCII stands in the text. Empty for a file with binary data or tracked changes."""
    if any(word in data for word in _NOT_READ):
        return Counter()
    texts: list[str] = []
    skipped = [False]  # for each open group
    for token in _TOKEN.finditer(data):
        kind = token.lastgroup
        if kind == "open":
            skipped.append(skipped[-1])
        elif kind == "close":
            skipped.pop()
            if len(skipped) < 2:
                break
        elif kind == "number":
            word = token["word"]
            if word in _SKIPPED or (word == _HIDDEN and token["number"] != b"0"):
                texts.append(_OTHER)  # perhaps more of a word
                skipped[-1] = True
            elif word in _BLANKS and not skipped[-1]:
                texts.append(" ")
        elif token["symbol"] == b"*":
            skipped[-1] = True
        elif not skipped[-1]:
            texts.append(_OTHER if kind == "other" else _text(token["text"], token["symbol"]))
    return blocks.words(run for run in _RUN.findall("".join(texts)) if _OTHER not in run)


def _text(text: bytes | None, symbol: bytes | None) -> str:
    if symbol == b"-":  # where a word may be divided
        return ""
    return " " if text is None else text.decode("ascii", "replace").replace("\ufffd", _OTHER)
