"""Which regular expressions take time that grows faster than the text: those that match a text in several ways.

An expression becomes an automaton whose states are its characters (Glushkov). If one text leads from a state back to
itself, from there to a second state, and from that back to itself, the matcher tries each way to split repetitions of
the text between the two: n ways at least, and with a third such state, or a second path from one to itself, more.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import product
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any

_ALPHABET = "".join(map(chr, range(256))) + "\u2028\u4e00"
_LONG = 100  # a repetition of more characters counts as endless
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT)
_EMPTY = (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT, _constants.GROUPREF)
_ANYTHING = frozenset(range(len(_ALPHABET)))
_Characters = frozenset[int]


class _Part:
    """A part of an expression: states at which it begins and ends, and whether it can be empty."""

    def __init__(self, first: Iterable[int] = (), last: Iterable[int] = (), *, empty: bool) -> None:
        self.first, self.last, self.empty = frozenset(first), frozenset(last), empty


class _Automaton:
    """`edges` are the characters with which one state follows another; `twice` if one does so in two ways."""

    def __init__(self, tree: Any, *, searched: bool) -> None:
        self._flags = tree.state.flags
        self.characters: list[_Characters] = []
        self.edges: dict[tuple[int, int], _Characters] = {}
        self.twice = False
        self._endless = 0  # repetitions
        self._kept: dict[int, _Characters] = {}  # by state at which a possessive repetition ends: what it has taken
        whole = self._sequence(tree)
        self.ends = whole.last
        if searched:  # what precedes a match is skipped
            start = self._state(_ANYTHING)
            for state in (start, *whole.first):
                self.edges[start, state] = self.characters[state]

    def _state(self, characters: _Characters) -> int:
        self.characters.append(characters)
        return len(self.characters) - 1

    def _connect(self, before: _Part, after: _Part) -> None:
        for one, other in product(before.last, after.first):
            added = self.characters[other] - self._kept.get(one, frozenset())
            known = self.edges.get((one, other), frozenset())
            self.twice |= not known.isdisjoint(added)
            self.edges[one, other] = known | added

    def _sequence(self, items: Iterable[Any]) -> _Part:
        whole = _Part(empty=True)
        for item in items:
            part = self._part(*item)
            self._connect(whole, part)
            whole = _Part(
                whole.first | part.first if whole.empty else whole.first,
                whole.last | part.last if part.empty else part.last,
                empty=whole.empty and part.empty,
            )
        return whole

    def _part(self, kind: Any, value: Any) -> _Part:
        if kind in _EMPTY:
            return _Part(empty=True)
        if kind is _constants.SUBPATTERN:
            return self._sequence(value[-1])
        if kind is _constants.ATOMIC_GROUP:
            return self._sequence(value)
        if kind is _constants.BRANCH:
            parts = [self._sequence(branch) for branch in value[1]]
            first, last = (frozenset[int]().union(*(getattr(part, end) for part in parts)) for end in ("first", "last"))
            return _Part(first, last, empty=any(part.empty for part in parts))
        if kind in _REPEATS:
            return self._repeat(kind, *value)
        state = self._state(self._matched(kind, value))
        return _Part([state], [state], empty=False)

    def _repeat(self, kind: Any, minimum: int, maximum: int, body: Any) -> _Part:
        before = self._endless
        part = self._sequence(body)
        if maximum > _LONG or (maximum > 1 and self._endless > before):
            self._connect(part, part)
            self._endless += 1
        if kind is _constants.POSSESSIVE_REPEAT:
            taken = frozenset[int]().union(*(self.characters[state] for state in part.first))
            self._kept |= {state: taken | self._kept.get(state, frozenset()) for state in part.last}
        return _Part(part.first, part.last, empty=part.empty or not minimum)

    def _matched(self, kind: Any, value: Any) -> _Characters:
        state = _parser.State()
        state.flags = self._flags
        compiled = _compiler.compile(_parser.SubPattern(state, [(kind, value)]), self._flags)
        text = _ALPHABET if self._flags & re.UNICODE else bytes(range(256))
        return frozenset(at for at in range(len(text)) if compiled.match(text[at : at + 1]))

    def following(self, state: int) -> Iterator[tuple[int, _Characters]]:
        return ((other, found) for (one, other), found in self.edges.items() if one == state and found)


def is_ambiguous(pattern: str | bytes, flags: int = 0, *, searched: bool = False, complete: bool = True) -> bool:
    """Whether the time to match a text can grow faster than the text.

    `searched`: the match may begin anywhere. Not `complete`: it may end anywhere, so that an endless repetition at its
    end cannot fail.
    """
    automaton = _Automaton(_parser.parse(pattern, flags), searched=searched)
    following = [[*automaton.following(state)] for state in range(len(automaton.characters))]
    loops = [state for state in range(len(following)) if state in _reached(following, (state,))]
    ends = frozenset() if complete else automaton.ends
    pairs = ((one, other) for one, other in product(loops, loops) if one != other and other not in ends)
    return automaton.twice or any((one, other, other) in _reached(following, (one, one, other)) for one, other in pairs)


def _reached(following: list[list[tuple[int, _Characters]]], start: tuple[int, ...]) -> set[tuple[int, ...]] | set[int]:
    """The tuples of states to which any text leads from a tuple of states."""
    found: set[tuple[int, ...]] = set()
    pending = [start]
    while pending:
        for steps in product(*(following[state] for state in pending.pop())):
            reached = tuple(state for state, _ in steps)
            if reached not in found and frozenset.intersection(*(characters for _, characters in steps)):
                found.add(reached)
                pending.append(reached)
    return found if len(start) > 1 else {state for (state,) in found}
