"""The dashboard over plain HTTP: sessions, new keys, purchases."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from storage.database import Transaction
from storage.tables import models, refunds
from storage.tables.refunds import Reversal
from tests.support.requests import http
from tests.support.requests.account_requests import posted, signed_in
from tests.support.requests.checks import problem
from tests.support.requests.log_lines import captured_log, entry_of
from tests.support.samples.forms import BROWSER_HEADERS, image
from tests.support.servers.in_process import Running, Servers


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: failed sign-ins are counted per address."""
    settings: dict[str, Any] = {"rate_limit_paid": 10_000, "rate_limit_free": 10_000, "simulated_checkout": True}
    with servers.running(tmp_path_factory.mktemp("dashboard"), **settings) as running:
        yield running


class TestSessions:
    def test_cookie_attributes(self, server: Running) -> None:
        response = posted(server, "/dashboard/sign-in", {"key": server.account()})
        cookie = response.headers["Set-Cookie"].lower() + ";"
        for part in ("httponly", "samesite=lax", "path=/;", "max-age=43200"):
            assert part in cookie
        assert "secure" not in cookie

    def test_cookie_is_secure_behind_https(self, servers: Servers, tmp_path: Path) -> None:
        with servers.running(tmp_path, base_url="https://convert.example/api/v1") as server:
            for origin, status in (("https://convert.example", 303), ("https://other.example", 400)):
                headers = {"Host": "convert.example", "Origin": origin}
                response = http.post(f"{server.url}/dashboard/sign-in", data={"key": server.key}, headers=headers)
                assert response.status_code == status
                assert ("secure" in response.headers.get("Set-Cookie", "").lower()) == (status == 303)

    def test_wrong_key(self, server: Running) -> None:
        response = posted(server, "/dashboard/sign-in", {"key": "cvd_live_x"})
        assert response.status_code == 401
        assert "begins with <code>cvd_live_</code> and has 47 characters" in response.text
        assert len(server.key) == 47
        assert "Set-Cookie" not in response.headers
        assert "cvd_live_x" not in response.text

    def test_failed_sign_ins_are_limited(self, servers: Servers, data_dir: Path) -> None:
        with servers.running(data_dir) as server, http.Client(headers={"Origin": server.url}) as client:
            answers = [client.post(f"{server.url}/dashboard/sign-in", data={"key": "none"}) for _ in range(31)]
        assert [response.status_code for response in answers] == [401] * 30 + [429]

    def test_unverified_account(self, server: Running) -> None:
        key = server.account(verified=False)
        response = posted(server, "/dashboard/sign-in", {"key": key})
        assert response.status_code == 403
        assert "Set-Cookie" not in response.headers

    def test_api_ignores_the_session_cookie(self, server: Running) -> None:
        with signed_in(server, server.account()) as client:
            token = client.cookies["convertd_account"]
            problem(
                client.get("/api/v1/account", headers={"Cookie": f"convertd_account={token}"}), 401, "invalid_api_key"
            )
            assert "Access-Control-Allow-Credentials" not in client.get("/dashboard").headers

    def test_sign_out(self, server: Running) -> None:
        with signed_in(server, server.account()) as client:
            token = client.cookies["convertd_account"]
            assert 'id="credits"' in client.get("/dashboard").text
            assert client.post("/dashboard/sign-out").headers["Location"] == "/"
            again = client.get("/dashboard", headers={"Cookie": f"convertd_account={token}"})
            assert 'id="credits"' not in again.text

    def test_session_ends_when_its_key_is_revoked(self, server: Running) -> None:
        key = server.account()
        with signed_in(server, key) as client:
            made = server.request("POST", "/account/keys", key).json()["data"]
            keys = server.request("GET", "/account/keys", key).json()["data"]["keys"]
            old = next(one["key_id"] for one in keys if one["key_id"] != made["key_id"])
            server.request("DELETE", f"/account/keys/{old}", made["api_key"])
            assert 'id="credits"' not in client.get("/dashboard").text

    @pytest.mark.parametrize("path", ["/keys", "/keys/key_x/revoke", "/credits", "/usage.csv"])
    def test_requests_without_a_session_are_redirected(self, server: Running, path: str) -> None:
        method = "GET" if path.endswith("csv") else "POST"
        response = http.request(method, f"{server.url}/dashboard{path}", headers={"Origin": server.url})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")


class TestNewKeys:
    def test_a_reload_creates_no_second_key(self, server: Running) -> None:
        key = server.account()
        with signed_in(server, key) as client:
            made = client.post("/dashboard/keys", data={"name": "second"})
            assert (made.status_code, made.headers["Location"], made.content) == (303, "/dashboard", b"")
            cookie = made.headers["Set-Cookie"].lower()
            assert all(part in cookie for part in ("httponly", "samesite=strict", "path=/dashboard", "max-age=60"))
            shown = [re.findall(r'value="(cvd_live_\w+)"', client.get("/dashboard").text) for _ in range(2)]
        assert [len(found) for found in shown] == [1, 0]
        assert server.request("GET", "/account", shown[0][0]).status_code == 200
        assert len(server.request("GET", "/account/keys", key).json()["data"]["keys"]) == 2

    def test_a_replaced_key_is_shown_once(self, server: Running) -> None:
        key = server.account()
        (own,) = [one["key_id"] for one in server.request("GET", "/account/keys", key).json()["data"]["keys"]]
        with signed_in(server, key) as client:
            assert client.post(f"/dashboard/keys/{own}/rotate").status_code == 303
            shown = [re.findall(r'value="(cvd_live_\w+)"', client.get("/dashboard").text) for _ in range(2)]
        assert [len(found) for found in shown] == [1, 0]

    def test_the_key_of_another_account_is_not_shown(self, server: Running) -> None:
        """An attacker who can set cookies cannot make an account use their key."""
        with signed_in(server, server.account()) as client:
            for text in (server.account(), "cvd_live_none", "<b>"):
                client.cookies.set("convertd_new_key", text, path="/dashboard")
                assert "shown only once" not in client.get("/dashboard").text

    def test_no_log_has_the_key(self, server: Running) -> None:
        with captured_log() as lines, signed_in(server, server.account()) as client:
            client.post("/dashboard/keys", data={"name": "second"})
            (text,) = re.findall(r'value="(cvd_live_\w+)"', client.get("/dashboard").text)
            entry_of(lines, client.get("/dashboard"))
        assert not any(text in line for line in lines.texts)

    def test_too_many_keys_are_an_error_with_its_documentation(self, server: Running) -> None:
        key = server.account()
        for _ in range(49):
            server.request("POST", "/account/keys", key, json={"name": "more"})
        with signed_in(server, key) as client:
            response = client.post("/dashboard/keys", data={"name": "more"})
        assert response.status_code == 400
        assert "Revoke one of them first." in response.text
        assert 'href="/docs/errors#invalid_parameter"' in response.text


def _refund(transaction: Transaction, purchase: str, amount: int) -> None:
    payment = transaction.first(models.Payment.select().where(models.Payment.purchase == purchase))
    assert payment is not None
    refunds.record(
        transaction, Reversal(f"re_{purchase}", payment.id, "refund", amount, amount, final=False), f"evt_{amount}"
    )


def _bought(server: Running, key: str, action: str) -> str:
    """Opens a checkout, and pays or declines. Returns the id of the purchase."""
    data = server.request("POST", "/credits/purchase", key, json={"pack": "pro"}).json()["data"]
    code = {"code": server.checkout_code}
    assert http.post(f"{server.url}/checkout/{data['session_id']}/{action}", data=code).status_code == 303
    return str(data["purchase_id"])


class TestPurchases:
    def test_an_unconfirmed_payment_reloads_the_page_until_it_is_confirmed(self, server: Running) -> None:
        key = server.account()
        purchase = _bought(server, key, "decline")
        with signed_in(server, key) as client:
            waiting = client.get(f"/dashboard?purchase={purchase}")
            cancelled = client.get(f"/dashboard?purchase={purchase}&cancelled=1")
            other = client.get(f"/dashboard?purchase={_bought(server, server.account(), 'pay')}")
        assert waiting.headers["Refresh"] == "5"
        assert "has not confirmed the payment yet" in waiting.text
        for response in (cancelled, other):
            assert "Refresh" not in response.headers
            assert 'role="status"' not in response.text

    def test_the_status_of_a_refunded_purchase(self, server: Running) -> None:
        key = server.account()
        purchase = _bought(server, key, "pay")
        with signed_in(server, key) as client:
            for reversed_amount, status in ((0, "paid"), (500, "partly refunded"), (1500, "refunded")):
                server.database.run_blocking(_refund, purchase, reversed_amount)
                table = client.get("/dashboard").text.partition('id="purchases"')[2].partition("</section>")[0]
                assert f'data-label="status">{status}<' in table
                assert f"<td>{status}" in client.get(f"/dashboard/purchases/{purchase}").text

    def test_receipts_of_other_accounts_and_of_unpaid_purchases(self, server: Running) -> None:
        mine = server.account()
        with signed_in(server, mine) as client:
            for purchase in (_bought(server, server.account(), "pay"), _bought(server, mine, "decline"), "pur_none"):
                response = client.get(f"/dashboard/purchases/{purchase}", headers=BROWSER_HEADERS)
                assert response.status_code == 404
                assert "No such receipt." in response.text

    @pytest.mark.parametrize("query", ["?purchase=pur_none", "?purchase=%00", "?purchase="])
    def test_unknown_purchases_are_ignored(self, server: Running, query: str) -> None:
        with signed_in(server, server.account()) as client:
            response = client.get(f"/dashboard{query}")
        assert response.status_code == 200
        assert "Refresh" not in response.headers
        assert 'role="status"' not in response.text


class TestDashboard:
    def test_keys_of_other_accounts_and_the_last_key_cannot_be_revoked(self, server: Running) -> None:
        mine, other = server.account(), server.account()
        (own,), (foreign,) = (
            [one["key_id"] for one in server.request("GET", "/account/keys", key).json()["data"]["keys"]]
            for key in (mine, other)
        )
        with signed_in(server, mine) as client:
            assert client.post(f"/dashboard/keys/{foreign}/revoke").status_code == 404
            assert client.post(f"/dashboard/keys/{own}/revoke").status_code == 400
            assert client.post("/dashboard/keys", data={"name": "x"}).status_code == 400
            assert client.post("/dashboard/credits", data={"pack": "none"}).status_code == 400
        assert server.request("GET", "/account", other).status_code == 200

    def test_periods(self, server: Running) -> None:
        key = server.account()
        with signed_in(server, key) as client:
            for query, status in (("", 200), ("?period=", 200), ("?period=2026-01", 200), ("?period=soon", 400)):
                assert client.get(f"/dashboard{query}").status_code == status
                assert client.get(f"/dashboard/usage.csv{query}").status_code == status

    def test_request_log_has_no_file_names_and_no_query_strings(self, server: Running) -> None:
        key = server.account()
        server.request("GET", "/account/usage?period=2026-01", key)
        server.request("POST", "/files/upload", key, files={"file": ("secret-name.png", b"no picture")})
        server.request("GET", f"/files/{'x' * 500}", key)
        with signed_in(server, key) as client:
            text = client.get("/dashboard").text
        log = text.partition("Latest requests")[2]
        assert "GET /account/usage<" in log
        assert "invalid_file_type" in log
        assert "secret-name" not in text
        assert "x" * 121 not in text

    def test_user_input_is_escaped(self, server: Running) -> None:
        key = server.account()
        server.request("POST", "/account/keys", key, json={"name": "<img src=x onerror=alert(1)>"})
        with signed_in(server, key) as client:
            assert "<img" not in client.get("/dashboard").text


class TestJobs:
    def test_jobs_are_listed_downloaded_and_deleted(self, server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("web.site.dashboard_jobs._SHOWN", 1)
        key, stranger = server.account(), server.account()
        jobs = [submitted(server, key, tag=tag) for tag in ("<older>", "newer")]
        with signed_in(server, key) as client:
            newest = client.get("/dashboard/jobs").text
            assert jobs[1]["job_id"] in newest
            assert jobs[0]["job_id"] not in newest
            older = client.get(unescape(re.findall(r'href="(/dashboard/jobs\?cursor=[^"]+)"', newest)[0])).text
            assert "&lt;older&gt;" in older
            assert jobs[1]["job_id"] not in older
            download = f"/dashboard/jobs/{jobs[0]['job_id']}/download"
            saved = client.get(download)
            assert saved.headers["Content-Disposition"].startswith("attachment")
            assert saved.content.startswith(b"RIFF")
            with signed_in(server, stranger) as other:
                assert other.get(download).status_code == 404
                for action in ("cancel", "delete"):
                    assert other.post(f"/dashboard/jobs/{jobs[0]['job_id']}/{action}").status_code == 404
            assert http.get(server.url + download).status_code == 303
            # The button is of a page from before the end: it must not delete the result.
            assert client.post(f"/dashboard/jobs/{jobs[0]['job_id']}/cancel").status_code == 303
            assert client.get(download).status_code == 200
            assert client.post(f"/dashboard/jobs/{jobs[0]['job_id']}/delete").status_code == 303
            assert client.get(download).status_code == 404
            assert client.get("/dashboard/jobs?cursor=x").status_code == 400

    def test_the_result_of_a_batch_is_a_zip(self, server: Running) -> None:
        key = server.account()
        batch = server.request("POST", "/batch", key, json={"output_format": "webp"}).json()["data"]["batch_id"]
        file = server.upload(image(), path=f"/batch/{batch}/files", key=key)["file_id"]
        body, headers = {"output_format": "webp", "file_ids": [file]}, {"Prefer": "respond-async, wait=60"}
        response = server.request("POST", f"/batch/{batch}/convert", key, json=body, headers=headers)
        assert response.status_code == 200, response.text
        job = response.json()["data"]
        with signed_in(server, key) as client:
            assert client.get(f"/dashboard/jobs/{job['job_id']}/download").content.startswith(b"PK")


def submitted(server: Running, key: str, **fields: str) -> Any:
    """A job that has ended."""
    files, data = {"file": ("a.jpg", image())}, {"output_format": "webp", **fields}
    headers = {"Prefer": "respond-async, wait=60"}
    response = server.request("POST", "/convert", key, files=files, data=data, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()["data"]
