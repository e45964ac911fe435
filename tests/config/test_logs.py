"""What log lines look like, and what they must not hold."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from config.logs import JsonFormatter, TextFormatter

KEY = "cvd_live_" + "k" * 38


def record(message: str, **fields: Any) -> logging.LogRecord:
    found = logging.LogRecord("convertd.access", logging.INFO, "", 0, message, (), None)
    found.created = 1_790_000_000
    found.fields = fields
    return found


def test_text() -> None:
    line = TextFormatter().format(record("GET /healthz", status=200, ms=3, account=None))
    assert line == "2026-09-21 14:13:20 INFO convertd.access GET /healthz status=200 ms=3"


def test_json() -> None:
    entry = json.loads(JsonFormatter().format(record("GET /healthz", status=200)))
    assert entry == {
        "time": "2026-09-21 14:13:20",
        "level": "info",
        "logger": "convertd.access",
        "message": "GET /healthz",
        "status": 200,
    }


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_secrets_are_scrubbed(formatter: logging.Formatter) -> None:
    line = formatter.format(record(f"Authorization: Bearer {KEY} and {KEY} at /verify?token=abc123"))
    assert KEY not in line
    assert "abc123" not in line


@pytest.mark.parametrize("secret", ["sk_live_51Abc", "rk_test_51Abc", "whsec_Abc"])
def test_secrets_of_stripe_are_scrubbed(secret: str) -> None:
    assert TextFormatter().format(record(f"no such key: {secret}")).endswith("no such key: ***")


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_a_developer_may_read_a_link(formatter: logging.Formatter) -> None:
    link = record("/verify?token=abc123")
    link.unscrubbed = True
    assert "token=abc123" in formatter.format(link)


def test_no_text_forges_a_line() -> None:
    assert "\n" not in TextFormatter().format(record("a\n2026-09-21 INFO forged\x1b[31m"))


def test_tracebacks_are_kept() -> None:
    try:
        raise ValueError("why")
    except ValueError as error:
        found = record("failed")
        found.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: why" in TextFormatter().format(found)
    assert "ValueError: why" in json.loads(JsonFormatter().format(found))["traceback"]
