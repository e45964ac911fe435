"""Joins the lines of a paragraph: words that a hyphen divides become whole, and breaks that the author made stay."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from engine.blocks import Run, merged, words
from plugins._pdf.text.texts import Line

_DIVIDED = re.compile(r"(\w*[^\W\d_])([-\u2010\u00ad])\s*$")
_CONTINUED = re.compile(r"[^\W\d_]\w*")
_SOFT = "\u00ad"
_UNSPACED = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\uff00-\uff60]")  # scripts without spaces between words
_ENDS = (".", "!", "?", ":")
_SLACK = 2.0  # of the size of the font, by which lines end before the edge


class Joiner:
    """Joins lines. `compounds` are words with a hyphen that the document has within its lines.

    `divided` counts the parts of words that became whole, which the result no longer has.
    """

    def __init__(self, compounds: frozenset[str]) -> None:
        self.divided: Counter[str] = Counter()
        self._compounds = compounds

    def join(self, lines: Sequence[Line], right: float | None = None) -> tuple[Run, ...]:
        """The runs of the lines. A line that ends far before `right`, in points, ends with a line feed."""
        runs = [*lines[0].runs]
        for before, line in pairwise(lines):
            is_broken = right is not None and has_room(before, line, right)
            self.append(runs, line.runs, "\n" if is_broken else " ")
        return stripped(runs)

    def append(self, runs: list[Run], following: Sequence[Run], separator: str) -> None:
        """Appends runs after a separator, or without one where a hyphen divides a word."""
        *_, last = runs
        first, *rest = following
        last = replace(last, text=last.text.rstrip())
        first = replace(first, text=first.text.lstrip())
        divided = _DIVIDED.search(last.text)
        continued = _CONTINUED.match(first.text)
        if divided and continued and continued[0].islower() and separator == " ":
            separator = ""
            whole = divided[1] + "-" + continued[0]
            if divided[2] == _SOFT or whole.lower() not in self._compounds:
                last = replace(last, text=last.text[: divided.start(2)])
                self.divided += words([divided[1], continued[0]])
        elif _UNSPACED.match(last.text[-1:]) and _UNSPACED.match(first.text[:1]):
            separator = ""
        if last.link and last.link != first.link:
            runs[-1:] = [last, Run(separator)]
        else:
            runs[-1] = replace(last, text=last.text + separator)
        runs += [first, *rest]


def has_room(line: Line, following: Line, right: float) -> bool:
    """Whether the first word of the following line had room before the right edge: so the break is no accident."""
    text = following.text.split()
    width = (following.box[2] - following.box[0]) * len(text[0] if text else "") / max(len(following.text), 1)
    return line.box[2] + width + _SLACK * line.size < right


def ends_sentence(text: str) -> bool:
    return text.rstrip("\"')]\u2019\u201d ").endswith(_ENDS)


def stripped(runs: Sequence[Run]) -> tuple[Run, ...]:
    """The runs without blanks at the start and the end."""
    found = [*merged(runs)]
    if found:
        found[0] = replace(found[0], text=found[0].text.lstrip())
        found[-1] = replace(found[-1], text=found[-1].text.rstrip())
    return merged(found)
