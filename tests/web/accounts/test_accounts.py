"""Registration, /account, /account/usage and /account/keys, and the charts of the dashboard."""

import csv
import re
import secrets
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from storage.field_types import format_timestamp
from storage.tables import accounts
from storage.tables.usage import DayUsage, PairUsage
from tests.support.requests import http
from tests.support.requests.account_requests import account_data, bearer, get_account
from tests.support.requests.checks import dressed, problem
from tests.support.samples.forms import BROWSER_HEADERS, image
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.mail_server import email_to, emails_to, token_sent_to
from web.api.errors import InvalidParameter
from web.api.fields import parse_period
from web.locale.languages import ENGLISH
from web.services.accounts import usage_report
from web.services.accounts.accounts import ONCE_PER_MAILBOX

UNKNOWN = "ab" * 32
TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
NOON = int(datetime(2026, 2, 10, 12, tzinfo=UTC).timestamp())
NOVEMBER = 1_793_491_200  # 2026-11-01


def register(server: Running, **body: Any) -> httpx.Response:
    return http.post(f"{server.api}/register", json=body)


def verify(server: Running, token: str, **headers: str) -> httpx.Response:
    return http.get(f"{server.api}/verify", params={"token": token}, headers=headers)


def test_register_and_verify(server: Running) -> None:
    response = register(server, email="Ann@Example.test", name="  Ann's app ")
    assert response.status_code == 200
    dressed(response)
    data = response.json()["data"]
    assert (data["email"], data["verification_sent"]) == ("Ann@example.test", True)
    assert isinstance(data["message"], str)

    token = token_sent_to(server, "Ann@example.test")
    shown = verify(server, token)
    assert shown.status_code == 200
    assert shown.headers["Cache-Control"] == "no-store"
    key = shown.json()["data"]
    assert set(key) == {*("api_key", "key_id", "key_prefix", "email", "name", "tier", "credits_remaining", "message")}
    assert re.fullmatch(r"cvd_live_[0-9A-Za-z]{38}", key["api_key"])
    assert key["api_key"].startswith(key["key_prefix"])
    assert (key["name"], key["tier"], key["credits_remaining"]) == ("Ann's app", "free", 50)

    account = http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key['api_key']}"})
    assert account.json()["data"]["email"] == "Ann@example.test"
    problem(verify(server, token), 404, "not_found")


def test_known_address_gets_the_same_response_and_another_key(server: Running) -> None:
    first = register(server, email="bob@example.test", name="Bob")
    old = verify(server, token_sent_to(server, "bob@example.test")).json()["data"]
    second = register(server, email="BOB@example.test", name="Bob")
    assert second.status_code == first.status_code == 200
    answers = [{**response.json()["data"], "email": ""} for response in (first, second)]
    assert answers[0] == answers[1]
    assert set(first.headers) == set(second.headers)
    assert "already" in email_to(server, "bob@example.test", 2)

    new = verify(server, token_sent_to(server, "bob@example.test", 2)).json()["data"]
    assert (new["email"], new["credits_remaining"]) == ("bob@example.test", 50)
    assert new["api_key"] != old["api_key"]
    for key in (old, new):
        response = http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key['api_key']}"})
        assert response.status_code == 200


def test_only_json_get_requests_use_the_token(server: Running) -> None:
    register(server, email="cleo@example.test", name="Cleo")
    token = token_sent_to(server, "cleo@example.test")
    for headers in ({}, BROWSER_HEADERS):
        response = http.head(f"{server.api}/verify", params={"token": token}, headers=headers)
        assert (response.status_code, response.content) == (303 if headers else 200, b"")
        assert response.headers["Cache-Control"] == "no-store"
    for headers in (BROWSER_HEADERS, {"Accept": "*/*", "Sec-Fetch-Mode": "navigate"}, {"Accept": "text/html"}):
        response = verify(server, token, **headers)
        assert response.status_code == 303
        assert response.headers["Location"] == f"/developers/verify#token={token}"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "no-referrer"
        assert "cvd_live_" not in response.text
    verified = verify(server, token.upper(), Accept="application/json, text/html")
    assert verified.json()["data"]["api_key"].startswith("cvd_live_")


@pytest.mark.parametrize("query", ["", "?token=", "?token=abc", f"?token={'g' * 64}", f"?token={UNKNOWN}0"])
def test_malformed_tokens(server: Running, query: str) -> None:
    for headers in ({}, BROWSER_HEADERS):
        problem(http.get(f"{server.api}/verify{query}", headers=headers), 400, "invalid_parameter", param="token")


def test_unknown_tokens(server: Running) -> None:
    problem(verify(server, UNKNOWN), 404, "not_found")


@pytest.mark.parametrize(
    ("body", "param"),
    [({"email": "nobody", "name": "Application"}, "email"), ({"email": "a@example.test", "name": "a\u0007b"}, "name")],
)
def test_invalid_fields(server: Running, body: dict[str, Any], param: str) -> None:
    problem(register(server, **body), 400, "invalid_parameter", param=param)


def test_five_emails_per_hour_and_mailbox(server: Running) -> None:
    for email in (
        "dora@example.test",
        "DORA@example.test",
        "dora+1@example.test",
        "dora+2@example.test",
        "dora+@Example.test",
    ):
        assert register(server, email=email, name="D.").is_success
    for email in ("Dora@example.test", "dora+3@example.test"):
        refused = register(server, email=email, name="D.")
        problem(refused, 429, "rate_limit_exceeded", reason="registrations")
        assert 3_500 < int(refused.headers["Retry-After"]) <= 3_600
        assert refused.headers["RateLimit-Policy"] == '"default";q=5;w=3600'
    assert register(server, email="emil@example.test", name="Emil").is_success


def test_fifty_registrations_per_day_and_ip_address(servers: Servers, data_dir: Path) -> None:
    proxy = "127.0.0.1"
    with servers.running(data_dir, trusted_proxies=(proxy,)) as server, http.Client(base_url=server.api) as client:
        for number in range(50):
            body = {"email": f"person{number}@example.test", "name": "Person"}
            assert client.post("/register", json=body).is_success
        late = {"email": "late@example.test", "name": "Late"}
        for _ in range(6):  # they do not count for the email address, which others could block otherwise
            refused = client.post("/register", json=late)
            problem(refused, 429, "rate_limit_exceeded")
            assert int(refused.headers["Retry-After"]) > 86_000
        assert client.post("/register", json=late, headers={"X-Forwarded-For": "192.0.2.1"}).is_success


@pytest.mark.parametrize(("once", "credits"), [(True, [50, 0, 0]), (False, [50, 50, 50])], ids=["once", "each"])
def test_free_credits_of_a_mailbox(servers: Servers, data_dir: Path, credits: list[int], *, once: bool) -> None:
    settings: dict[str, Any] = {"mailbox_credits_once": True} if once else {}
    with servers.running(data_dir, **settings) as server:
        for email, expected in zip(
            ("fay@example.test", "fay+1@example.test", "FAY+2@example.test"), credits, strict=True
        ):
            sent = register(server, email=email, name="Fay").json()["data"]
            account = verify(server, token_sent_to(server, email)).json()["data"]
            assert account["credits_remaining"] == expected
            assert account["api_key"]
            page = http.get(f"{server.url}/register").text
            mail = " ".join(email_to(server, email).split())
            assert [ONCE_PER_MAILBOX in text for text in (sent["message"], page, mail)] == [once] * 3
            assert (ONCE_PER_MAILBOX in account["message"]) == (once and expected == 0)


def test_the_address_of_the_client_is_kept_until_the_account_is_deleted(server: Running) -> None:
    register(server, email="gil@example.test", name="Gil")
    verify(server, token_sent_to(server, "gil@example.test"))
    account = server.database.run_blocking(accounts.find, "gil@example.test")
    assert account is not None
    assert account.address == "127.0.0.1"
    server.database.run_blocking(accounts.delete, "gil@example.test")
    assert server.database.run_blocking(accounts.get, account.id).address is None


@pytest.mark.parametrize(
    "headers", [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}]
)
def test_pages_of_other_sites_cannot_register(server: Running, headers: dict[str, str]) -> None:
    email = f"kim-{secrets.token_hex(4)}@example.test"
    body = f'{{"email": "{email}", "name": "Kim"}}'.encode()
    sent = http.post(f"{server.api}/register", content=body, headers={"Content-Type": "text/plain", **headers})
    problem(sent, 400, "invalid_parameter", reason="cross_site", param="Origin")
    assert emails_to(server.data_dir, email) == []
    own = http.post(f"{server.api}/register", content=body, headers={"Origin": server.url})
    assert own.status_code == 200


def test_nobody_registers_without_email(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, base_url="https://convert.example/api/v1") as server:
        response = register(server, email="lea@example.test", name="Lea")
        problem(response, 500, "server_error", reason="email_not_configured", retryable=False)
        page = http.post(
            f"{server.url}/register",
            data={"email": "lea@example.test", "name": "Lea"},
            headers={"Host": "convert.example", "Sec-Fetch-Site": "same-origin", **BROWSER_HEADERS},
        )
        assert (page.status_code, "does not send email" in page.text) == (500, True)
    assert not (data_dir / "outbox").exists()


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
    reset = int(response.headers["X-RateLimit-Reset"])
    assert account["rate_limit"] == {"limit": 60, "window_seconds": 60, "remaining": 59, "reset": reset}
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


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: wrong keys are counted by address."""
    with servers.running(tmp_path_factory.mktemp("keys"), rate_limit_paid=10_000) as running:
        yield running


def post(server: Running, path: str, key: str, body: Any = None) -> httpx.Response:
    return http.post(f"{server.api}/account/keys{path}", headers=bearer(key), json=body)


def only_key(server: Running, key: str) -> dict[str, Any]:
    (found,) = account_data(get_account(server, "/keys", key))["keys"]
    return dict(found)


def works(server: Running, key: str) -> bool:
    return get_account(server, "", key).status_code == 200


def test_a_new_key(server: Running) -> None:
    key = server.account()
    made = account_data(post(server, "", key, {"name": "second"}))
    assert made["name"] == "second"
    assert made["api_key"].startswith(made["key_prefix"])
    assert works(server, made["api_key"])
    listed = account_data(get_account(server, "/keys", key))
    assert (listed["total"], {one["name"] for one in listed["keys"]}) == (2, {"Test", "second"})
    assert all("api_key" not in one for one in listed["keys"])
    assert account_data(post(server, "", key))["name"] == "Test"
    problem(post(server, "", key, {"name": "x"}), 400, "invalid_parameter", param="name")
    problem(post(server, "", key, ["x"]), 400, "invalid_parameter", reason="malformed")


def test_rotation_with_a_grace_period(server: Running) -> None:
    key = server.account()
    old = only_key(server, key)
    new = account_data(post(server, f"/{old['key_id']}/rotate", key))
    assert works(server, key)
    assert works(server, new["api_key"])
    keys = {one["key_id"]: one for one in account_data(get_account(server, "/keys", key))["keys"]}
    ends = datetime.strptime(keys[old["key_id"]]["expires_at"], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
    assert 86_390 < ends - time.time() < 86_410
    assert keys[new["key_id"]]["expires_at"] is None


def test_rotation_without_a_grace_period(server: Running) -> None:
    key = server.account()
    new = account_data(post(server, f"/{only_key(server, key)['key_id']}/rotate", key, {"grace_period_seconds": 0}))
    problem(get_account(server, "", key), 401, "invalid_api_key")
    assert works(server, new["api_key"])


@pytest.mark.parametrize("grace", [-1, 604_801, True, 1.5, "60", None])
def test_wrong_grace(server: Running, grace: object) -> None:
    key = server.account()
    response = post(server, f"/{only_key(server, key)['key_id']}/rotate", key, {"grace_period_seconds": grace})
    problem(response, 400, "invalid_parameter", param="grace_period_seconds")


def test_revoking(server: Running) -> None:
    key = server.account()
    first = only_key(server, key)["key_id"]
    path = f"{server.api}/account/keys"
    problem(http.delete(f"{path}/{first}", headers=bearer(key)), 400, "invalid_parameter", reason="last_key")
    second = account_data(post(server, "", key))
    assert account_data(http.delete(f"{path}/{first}", headers=bearer(key))) == {"key_id": first, "revoked": True}
    problem(get_account(server, "", key), 401, "invalid_api_key")
    assert works(server, second["api_key"])
    problem(http.delete(f"{path}/{first}", headers=bearer(second["api_key"])), 404, "not_found")


def test_every_day_has_a_column() -> None:
    day = DayUsage("2026-11-02", conversions=8, failed=2, credits=6, bytes_in=1, bytes_out=1)
    chart = usage_report.daily_chart([day], NOVEMBER, NOVEMBER + 3 * 86_400)
    assert [column.day for column in chart.columns] == [date(2026, 11, number) for number in (1, 2, 3)]
    first, second, third = chart.columns
    assert (first.usage, second.usage, third.usage) == (None, day, None)
    assert chart.top == 8
    assert (second.succeeded, second.failed) == (usage_report.HEIGHT * 6 / 8, usage_report.HEIGHT * 2 / 8)
    assert 0 <= first.x < second.x < third.x
    assert third.x + third.width <= usage_report.WIDTH


@pytest.mark.parametrize(
    ("most", "top"), [(0, 4), (1, 4), (5, 8), (9, 10), (11, 20), (21, 40), (99, 100), (100, 100), (101, 200)]
)
def test_half_of_the_scale_is_an_integer(most: int, top: int) -> None:
    day = DayUsage("2026-11-01", conversions=most, failed=0, credits=0, bytes_in=0, bytes_out=0)
    assert usage_report.daily_chart([day], NOVEMBER, NOVEMBER + 1).top == top


def test_less_frequent_pairs_share_one_bar() -> None:
    pairs = [PairUsage("png", f"f{number}", count=20 - number, credits=0) for number in range(10)]
    bars = usage_report.pair_bars(pairs)
    assert len(bars) == 9
    assert (bars[0].label, bars[0].count, bars[0].share) == ("png → f0", 20, 87.0)
    assert (bars[-1].label, bars[-1].count, bars[-1].share) == ("", 23, 100)
    assert usage_report.pair_bars([]) == ()


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 kB"), (5 << 30, "5.0 GB")])
def test_sizes(number: int, text: str) -> None:
    assert ENGLISH.size(number) == text
