"""Which answer a client prefers."""

from __future__ import annotations

import pytest

from web.fields import wants_json


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/json, */*", True),
        ("application/json, text/plain, */*", True),
        ("application/json;q=0", False),
        ("application/json;q=0.5, image/webp", False),
        ("application/json;q=0.5, image/*", True),
        ("image/webp;q=0.4, application/json;q=0.5", True),
        ("text/html, application/xhtml+xml", False),
        ("application/json;q=nonsense", False),
        (";;,,;q=", False),
    ],
)
def test_wants_json(accept: str, json: bool) -> None:
    assert wants_json(accept) is json
