"""What is true of every answer."""

from __future__ import annotations

import re

import httpx

from tests.support.contract import conforms
from web.api.errors import STATUS

HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


def problem(answer: httpx.Response, status: int, code: str, **expected: object) -> None:
    """Asserts the envelope and the headers of an error."""
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, code)
    assert STATUS[code] == status
    assert error["message"].endswith(".")
    assert isinstance(error["retryable"], bool)
    assert answer.headers["Content-Type"] == "application/json"
    assert {name: error.get(name) for name in expected} == expected
    assert re.fullmatch(r"req_[A-Za-z0-9]{22}", error["request_id"])
    assert error["request_id"] == answer.headers["X-Request-Id"]
    dressed(answer)


def dressed(answer: httpx.Response) -> None:
    """Asserts the headers of every answer, and what the API's document says of it."""
    assert all(answer.headers[name].isdigit() for name in HEADERS)
    assert re.fullmatch(r'"default";q=\d+;w=60', answer.headers["RateLimit-Policy"])
    assert re.fullmatch(r'"default";r=\d+;t=\d+', answer.headers["RateLimit"])
    assert answer.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Request-Id" in answer.headers["Access-Control-Expose-Headers"]
    if answer._request is not None:  # the bytes of some have come without httpx
        conforms(answer)
