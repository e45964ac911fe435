"""/account and /account/usage."""

import csv
import re
from datetime import UTC, datetime

import pytest

from storage.field_types import format_timestamp
from tests.support.requests.account_requests import account_data, bearer, get_account
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running
from web.api.errors import InvalidParameter
from web.api.fields import parse_period

TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
NOON = int(datetime(2026, 2, 10, 12, tzinfo=UTC).timestamp())


def test_account(server: Running) -> None:
    response = get_account(server, "", server.account(credits=7))
    account = account_data(response)
    assert (account["tier"], account["credits_remaining"], account["credits_total_purchased"]) == ("free", 7, 0)
    assert (account["max_file_size"], account["credits_used_total"]) == (10_485_760, 0)
    assert re.fullmatch(TIME, account["created_at"])
    assert re.fullmatch(TIME, account["last_used_at"])
    assert account["limits"] == {
        "max_file_size": 10_485_760,
        "max_batch_files": 50,
        "max_merge_files": 20,
        "max_concurrent": 2,
        "file_retention_seconds": 86_400,
    }
    assert account["rate_limit"] == {
        "limit": 60,
        "window_seconds": 60,
        "remaining": 59,
        "reset": int(response.headers["X-RateLimit-Reset"]),
    }
    assert response.headers["X-RateLimit-Remaining"] == "59"
    assert response.json()["meta"]["credits_remaining"] == 7
    assert response.headers["X-Credits-Remaining"] == "7"


def test_a_paid_account(server: Running) -> None:
    account = account_data(get_account(server, "", server.account(purchased=500)))
    assert (account["tier"], account["credits_total_purchased"]) == ("paid", 500)
    assert (account["max_file_size"], account["limits"]["max_concurrent"]) == (104_857_600, 8)


def test_usage_after_conversions(server: Running) -> None:
    key, content = server.account(), image()
    sizes = [len(server.convert(content, target, headers=bearer(key)).content) for target in ("png", "png", "webp")]
    broken = server.convert(content[:300], headers=bearer(key))
    assert broken.json()["error"]["reason"] == "corrupt_input"
    problem(server.convert(content, "xyz", headers=bearer(key)), 400, "unsupported_conversion")

    used = account_data(get_account(server, "/usage", key))
    today = datetime.now(UTC)
    assert used["period"] == f"{today:%Y-%m}"
    assert used["start"] == f"{today:%Y-%m}-01 00:00:00"
    assert re.fullmatch(TIME, used["end"])
    assert (used["total_conversions"], used["successful_conversions"], used["failed_conversions"]) == (4, 3, 1)
    assert used["credits_used"] == 3
    assert used["bytes_in"] == 3 * len(content) + 300
    assert used["bytes_out"] == sum(sizes)
    assert used["bytes_total"] == used["bytes_in"] + used["bytes_out"]
    assert used["by_operation"] == {"convert": 4, "batch": 0, "pdf_merge": 0, "pdf_delete_pages": 0}
    pairs = [tuple(one.values()) for one in used["by_conversion"]]
    assert pairs == [("jpeg", "png", 3, 2), ("jpeg", "webp", 1, 1)]
    (day,) = used["by_day"]
    assert (day["conversions"], day["failed"], day["credits"]) == (4, 1, 3)
    assert account_data(get_account(server, "", key))["credits_used_total"] == 3

    since = account_data(get_account(server, f"/usage?period={today:%Y-%m-%d}", key))
    assert (since["period"], since["total_conversions"]) == (f"{today:%Y-%m-%d}", 4)
    assert account_data(get_account(server, "/usage?period=2020-02", key))["total_conversions"] == 0


def test_usage_as_csv(server: Running) -> None:
    key = server.account()
    assert server.convert(image(), headers=bearer(key)).is_success
    response = get_account(server, "/usage", key, Accept="text/csv")
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert response.headers["X-Credits-Remaining"] == "49"
    dressed(response)
    (row,) = csv.DictReader(response.text.splitlines())
    (day,) = account_data(get_account(server, "/usage", key))["by_day"]
    assert row == {name: str(value) for name, value in day.items()}
    assert get_account(server, "/usage", key, Accept="text/csv, application/json").json()["data"]["by_day"]
    assert get_account(server, "/usage", server.account(), Accept="text/csv").text.splitlines() == [
        "date,conversions,failed,credits,bytes_in,bytes_out"
    ]


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-02-30", "2026-2", "0000-01", "9999-12", "month", "2026-02-1x"]
)
def test_invalid_periods(server: Running, text: str) -> None:
    with pytest.raises(InvalidParameter):
        parse_period(text, NOON)


def test_a_wrong_period(server: Running) -> None:
    problem(get_account(server, "/usage?period=2026-13", server.account()), 400, "invalid_parameter", param="period")


def test_periods() -> None:
    month = parse_period(None, NOON)
    assert format_timestamp(month.start) == "2026-02-01 00:00:00"
    assert format_timestamp(month.end) == "2026-03-01 00:00:00"
    assert format_timestamp(parse_period("2025-12", NOON).end) == "2026-01-01 00:00:00"
    since = parse_period("2026-02-09", NOON)
    assert (format_timestamp(since.start), since.end) == ("2026-02-09 00:00:00", NOON + 1)
    assert format_timestamp(parse_period("0472-03-27", NOON).start) == "0472-03-27 00:00:00"
