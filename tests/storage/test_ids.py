"""Random ids."""

from collections import Counter

import pytest

from storage.ids import ALPHABET, is_id, new_id, random_text


@pytest.mark.parametrize("length", [1, 22, 64])
def test_random_text_has_its_length(length: int) -> None:
    assert {len(random_text(length)) for _ in range(200)} == {length}


def test_all_characters_are_equally_likely() -> None:
    counts = Counter(random_text(62_000))

    assert set(counts) == set(ALPHABET)
    assert all(800 < count < 1200 for count in counts.values())  # 1000 ± 6 standard deviations


def test_ids_are_recognized_by_their_kind() -> None:
    assert is_id("file", new_id("file"))
    assert not is_id("job", new_id("file"))
    assert not is_id("file", f"{new_id('file')}0")
