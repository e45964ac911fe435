"""The text form of API keys."""

from __future__ import annotations

import hashlib
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.api_keys import make_key, parse_key, visible_prefix
from storage.errors import InvalidKey
from storage.ids import ALPHABET, is_id, new_id, random_text


def test_the_form_of_a_key() -> None:
    key = make_key()
    assert re.fullmatch(r"cvd_live_[0-9A-Za-z]{38}", key)
    assert parse_key(key) == hashlib.sha256(key.encode()).hexdigest()
    assert key.startswith(visible_prefix(key))
    assert len(visible_prefix(key)) == 15


def test_keys_are_unique() -> None:
    assert len({make_key() for _ in range(1000)}) == 1000


@given(st.integers(9, 46), st.sampled_from(ALPHABET))
def test_the_checksum_detects_typing_errors(place: int, character: str) -> None:
    key = make_key()
    mistyped = key[:place] + character + key[place + 1 :]
    if mistyped != key:
        with pytest.raises(InvalidKey):
            parse_key(mistyped)


@given(st.text(max_size=60) | st.text(ALPHABET, max_size=60).map("cvd_live_".__add__))
def test_other_texts_are_invalid(text: str) -> None:
    with pytest.raises(InvalidKey):
        parse_key(text)


@pytest.mark.parametrize("change", [str.lower, str.strip, lambda key: key + "\n", lambda key: key[:-1], "x".__add__])
def test_altered_keys_are_invalid(change: object) -> None:
    assert callable(change)
    key = make_key()
    if change(key) != key:
        with pytest.raises(InvalidKey):
            parse_key(change(key))


def test_ids() -> None:
    assert is_id("key", new_id("key"))
    assert not is_id("hold", new_id("key"))
    assert not any(is_id("key", text) for text in ("", "key_", "key_\0" + "a" * 21, new_id("key") + "\n"))


def test_random_characters_are_uniform() -> None:
    texts = [random_text(3) for _ in range(62 * 400)]
    for place in range(3):
        counts = Counter(text[place] for text in texts)
        assert set(counts) == set(ALPHABET)
        assert max(counts.values()) < 2 * min(counts.values())
