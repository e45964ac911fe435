"""Assertions that hold for every response."""

import re

import httpx

from tests.support.requests.contract import conforms
from web.api.errors import STATUS

HEADERS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")


def problem(response: httpx.Response, status: int, code: str, **expected: object) -> None:
    """Asserts the envelope and the headers of an error."""
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert STATUS[code] == status
    assert error["message"].endswith(".")
    assert isinstance(error["retryable"], bool)
    assert response.headers["Content-Type"] == "application/json"
    assert {name: error.get(name) for name in expected} == expected
    assert re.fullmatch(r"req_[A-Za-z0-9]{22}", error["request_id"])
    assert error["request_id"] == response.headers["X-Request-Id"]
    dressed(response)


def dressed(response: httpx.Response) -> None:
    """Asserts the common headers, and that the response matches the OpenAPI document."""
    assert all(response.headers[name].isdigit() for name in HEADERS)
    assert re.fullmatch(r'"default";q=\d+;w=60', response.headers["RateLimit-Policy"])
    assert re.fullmatch(r'"default";r=\d+;t=\d+', response.headers["RateLimit"])
    assert response.headers["Access-Control-Allow-Origin"] == "*"
    assert "X-Request-Id" in response.headers["Access-Control-Expose-Headers"]
    if "raw" not in response.extensions:  # a response that is parsed from raw bytes belongs to no request
        conforms(response)
