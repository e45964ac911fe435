"""The text of API keys."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.api_keys import make_key, parse_key, shown_prefix
from storage.errors import InvalidKey
from storage.ids import ALPHABET, is_id, new_id, random_text


def test_a_key_is_known_by_its_sha256() -> None:
    key = make_key()
    assert re.fullmatch(r"cvd_live_[0-9A-Za-z]{38}", key)
    assert parse_key(key) == hashlib.sha256(key.encode()).hexdigest()
    assert key.startswith(shown_prefix(key))
    assert len(shown_prefix(key)) == 15


def test_no_two_keys_are_alike() -> None:
    assert len({make_key() for _ in range(1000)}) == 1000


@given(st.integers(9, 46), st.sampled_from(ALPHABET))
def test_a_mistyped_key_is_noticed(place: int, character: str) -> None:
    key = make_key()
    mistyped = key[:place] + character + key[place + 1 :]
    if mistyped != key:
        with pytest.raises(InvalidKey):
            parse_key(mistyped)


@given(st.text(max_size=60) | st.text(ALPHABET, max_size=60).map("cvd_live_".__add__))
def test_anything_else_is_no_key(text: str) -> None:
    with pytest.raises(InvalidKey):
        parse_key(text)


@pytest.mark.parametrize("change", [str.lower, str.strip, lambda key: key + "\n", lambda key: key[:-1], "x".__add__])
def test_a_key_that_is_altered_is_no_key(change: object) -> None:
    assert callable(change)
    key = make_key()
    if change(key) != key:
        with pytest.raises(InvalidKey):
            parse_key(change(key))


def test_ids() -> None:
    assert is_id("key", new_id("key"))
    assert not is_id("hold", new_id("key"))
    assert not any(is_id("key", text) for text in ("", "key_", "key_\0" + "a" * 21, new_id("key") + "\n"))


def test_every_character_is_as_likely_at_every_place() -> None:
    texts = [random_text(3) for _ in range(62 * 400)]
    for place in range(3):
        counts = Counter(text[place] for text in texts)
        assert set(counts) == set(ALPHABET)
        assert max(counts.values()) < 2 * min(counts.values())
