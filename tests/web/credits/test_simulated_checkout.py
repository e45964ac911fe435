"""The simulated checkout needs the code that the server logs at its start."""

import re
from pathlib import Path

import pytest

from config.settings import is_loopback
from storage.tables import ledger_audit
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.servers.in_process import Running, Servers


def checkout(server: Running, pack: str = "pro") -> tuple[dict[str, str], str]:
    """Returns the headers of a new account and the URL of its checkout on the server's port."""
    auth = {"Authorization": f"Bearer {server.account(credits=0)}"}
    data = http.post(f"{server.api}/credits/purchase", json={"pack": pack}, headers=auth).json()["data"]
    assert data["checkout_url"] == f"http://localhost:8000/checkout/{data['session_id']}"
    return auth, data["checkout_url"].replace("http://localhost:8000", server.url)


def account(server: Running, auth: dict[str, str]) -> tuple[int, str]:
    data = http.get(f"{server.api}/account", headers=auth).json()["data"]
    return data["credits_remaining"], data["tier"]


def test_payment(server: Running) -> None:
    auth, page = checkout(server)
    shown = http.get(page)
    assert shown.status_code == 200
    assert "simulation" in shown.text
    assert "15.00 EUR" in shown.text
    assert "{" not in shown.text.partition("<body>")[2]
    assert "form-action 'self'" in shown.headers["Content-Security-Policy"]
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]
    for _ in range(2):
        response = http.post(f"{page}/pay", data={"code": f" {server.checkout_code}\n"})
        assert response.status_code == 303
        assert account(server, auth) == (2000, "paid")
    assert "is paid" in http.get(page).text
    assert server.database.run_blocking(ledger_audit.check) == ()


def test_decline_and_cancel(server: Running) -> None:
    auth, page = checkout(server)
    declined = http.post(f"{page}/decline")
    assert declined.status_code == 303
    assert "was declined" in http.get(server.url + declined.headers["Location"]).text
    cancelled = http.post(f"{page}/cancel")
    assert cancelled.headers["Location"].startswith("http://localhost:8000/dashboard?purchase=pur_")
    assert account(server, auth) == (0, "free")
    paid = http.post(f"{page}/pay", data={"code": server.checkout_code})
    assert paid.headers["Location"] in cancelled.headers["Location"]
    assert account(server, auth) == (2000, "paid")


def test_a_plain_proxy_does_not_let_others_buy(server: Running) -> None:
    """A proxy that adds no header, as a tunnel of bytes does: the request is like one of this machine."""
    auth, page = checkout(server)
    assert http.get(page).status_code == 200
    code = server.checkout_code
    for wrong in ({}, {"code": ""}, {"code": code[:-1]}, {"code": code.swapcase()}, {"code": "é" * len(code)}):
        refused = http.post(f"{page}/pay", data=wrong)
        assert refused.status_code == 400
        assert 'role="alert"' in refused.text
        assert code not in refused.text
    problem(
        http.post(f"{page}/pay", data={"code": code}, headers={"Host": "convert.example"}), 400, "invalid_parameter"
    )
    assert account(server, auth) == (0, "free")


def test_unknown_sessions(server: Running) -> None:
    for session in ("cs_simulated_0", "cs_simulated_" + "0" * 22, "%2e%2e", "cs_test_1"):
        problem(http.get(f"{server.url}/checkout/{session}"), 404, "not_found")
        problem(http.post(f"{server.url}/checkout/{session}/pay"), 404, "not_found")


def test_each_start_logs_a_new_code(servers: Servers, data_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    with servers.running(data_dir, simulated_checkout=True) as server:
        _, page = checkout(server)
        before = _logged_code(caplog)
        path = page.removeprefix(server.url)
    caplog.clear()
    with servers.running(data_dir, simulated_checkout=True) as server:
        codes = (before, _logged_code(caplog))
        pay = [http.post(f"{server.url}{path}/pay", data={"code": code}) for code in codes]

    assert [response.status_code for response in pay] == [400, 303]


def _logged_code(caplog: pytest.LogCaptureFixture) -> str:
    (code,) = re.findall(r"checkout is simulated: with the code (\w{12}), credits are free", caplog.text)
    return str(code)


def test_no_simulation_by_default(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, simulated_checkout=True) as before:
        auth, page = checkout(before)
        path = page.removeprefix(before.url)
    with servers.running(data_dir) as server:
        problem(http.post(f"{server.api}/credits/purchase", json={"pack": "pro"}, headers=auth), 500, "server_error")
        problem(http.get(server.url + path), 404, "not_found")
        problem(http.post(f"{server.url}{path}/pay", headers={"Host": "localhost"}), 404, "not_found")
        assert account(server, auth) == (0, "free")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "127.0.0.1", "127.8.9.1", "::1", "[::1]", "::ffff:127.0.0.1"]
)
def test_loopback_hosts(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", [None, "", "0.0.0.0", "::", "10.0.0.1", "localhost.example", "127.0.0.1.example", "1", "::2"]
)
def test_other_hosts(host: str | None) -> None:
    assert not is_loopback(host)
