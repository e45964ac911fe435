"""The pages over plain HTTP: security headers, caching, forms, sessions and the dashboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from tornado.escape import xhtml_escape

from tests.support import http
from tests.support.checks import dressed, problem
from tests.support.log_lines import captured_log, entry_of
from tests.support.outbox import emails_to, token_sent_to
from tests.support.servers import Running, Servers
from tests.support.web_samples import BROWSER_HEADERS
from web.api.error_catalogue import ERROR_CATALOGUE, WARNING_CATALOGUE
from web.api.errors import STATUS

PAGES = ("/", "/docs", "/register", "/developers/verify", "/status", "/dashboard")


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: failed sign-ins are counted per address."""
    with servers.running(tmp_path_factory.mktemp("pages"), rate_limit_paid=10_000) as running:
        yield running


@pytest.mark.parametrize("path", PAGES)
def test_security_headers(server: Running, path: str) -> None:
    response = http.get(server.url + path, headers=BROWSER_HEADERS)
    assert response.status_code == 200
    dressed(response)
    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = response.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?! type=\"module\" src=\"/static/)", response.text)
    assert not re.search(r"(src|href)=.(https?:)?//", response.text)
    assert response.headers["Cache-Control"] == "no-store"
    assert "Set-Cookie" not in response.headers
    assert http.head(server.url + path).status_code == 200


def test_verify_page_sends_no_referrer(server: Running) -> None:
    assert http.get(f"{server.url}/developers/verify").headers["Referrer-Policy"] == "no-referrer"


def test_assets_are_cached(server: Running) -> None:
    page = http.get(server.url).text
    assets = set(re.findall(r"/static/[\w.]+\?v=\w+", page))
    assert len(assets) >= 4
    for path in assets:
        response = http.get(server.url + path)
        assert response.status_code == 200
        assert "immutable" in response.headers["Cache-Control"]
        again = http.get(server.url + path, headers={"If-None-Match": response.headers["ETag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        dressed(response)
        head = http.head(server.url + path)
        assert (head.headers["Content-Length"], head.content) == (str(len(response.content)), b"")
    for path in ("/static/site.css", "/static/site.css?v=0"):
        assert http.get(server.url + path).headers["Cache-Control"] == "no-cache"
    assert http.get(f"{server.url}/static/site.css").headers["Content-Type"] == "text/css; charset=utf-8"
    assert http.get(f"{server.url}/static/try.js").headers["Content-Type"] == "text/javascript; charset=utf-8"
    for name in ("none.css", "..%2fapp.py", "%2e%2e", "", "../app.py", "%00", "a" * 300):
        problem(http.get(f"{server.url}/static/{name}"), 404, "not_found")


def test_static_files_answer_to_get_only_and_are_logged(server: Running) -> None:
    for verb in ("POST", "BREW"):
        problem(http.request(verb, f"{server.url}/static/site.css"), 405, "method_not_allowed")
    with captured_log() as lines:
        entry = entry_of(lines, http.get(f"{server.url}/static/site.css"))
    assert (entry["message"], entry["status"]) == ("GET /static/{}", 200)


def test_errors_are_html_for_browsers_and_json_otherwise(server: Running) -> None:
    problem(http.get(f"{server.url}/checkout/none"), 404, "not_found")
    shown = http.get(f"{server.url}/checkout/none", headers=BROWSER_HEADERS)
    assert shown.status_code == 404
    assert "No such page." in shown.text
    assert shown.headers["X-Request-Id"] in shown.text


def test_docs_cover_every_error_code() -> None:
    assert set(ERROR_CATALOGUE) == set(STATUS)


def test_docs_list_every_option_and_warning(server: Running, servers: Servers) -> None:
    text = http.get(f"{server.url}/docs").text
    anchors = re.findall(r'id="([^"]+)"', text)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r'href="#([^"]+)"', text)) <= set(anchors)
    taken = {name: option for plan in servers.registry.catalogue() for name, option in plan.options.items()}
    rows = dict(re.findall(r'<tr id="option-(\w+)">(.*?)</tr>', text))
    assert {*rows} == {*taken}
    for name, row in rows.items():
        assert f">{xhtml_escape(taken[name].values)}<" in row
        assert xhtml_escape(taken[name].schema["description"]).partition("`")[0] in row
    assert re.search(r">from any; to [^<]*\bjpeg\b", rows["quality"])
    assert re.search(r">from [^<]*\bpdf\b[^<]*; to any<", rows["password"])
    for code, meaning in WARNING_CATALOGUE.items():
        row = re.search(rf'<tr id="{code}">(.*?)</tr>', text)
        assert row is not None
        assert meaning.partition("`")[0] in row[1]


def test_status_page(server: Running) -> None:
    text = http.get(f"{server.url}/status").text
    assert "This server is ready" in text
    assert "pdf_tools" in text
    assert str(server.data_dir) not in text


def posted(server: Running, path: str, form: dict[str, str]) -> httpx.Response:
    """Submits a form from the same origin."""
    return http.post(server.url + path, data=form, headers={"Origin": server.url})


class TestRegistration:
    def test_without_scripts(self, server: Running) -> None:
        form = {"email": "fay@example.test", "name": "Fay & <b>Co</b>"}
        response = posted(server, "/register", form)
        assert response.status_code == 200
        assert "fay@example.test" in response.text
        assert token_sent_to(server, "fay@example.test")

    @pytest.mark.parametrize(("field", "value"), [("email", '"><script>'), ("name", "x")])
    def test_invalid_input_is_reported_and_kept(self, server: Running, field: str, value: str) -> None:
        form = {"email": "gil@example.test", "name": "Gil's app", field: value}
        response = posted(server, "/register", form)
        assert response.status_code == 400
        assert f'id="{field}"' in response.text.partition("aria-invalid")[0].rpartition("<input")[2]
        assert "<script>" not in response.text
        assert "Gil" in response.text or "gil@example.test" in response.text
        assert emails_to(server.data_dir, "gil@example.test") == []

    def test_rate_limit(self, server: Running) -> None:
        form = {"email": "hal@example.test", "name": "Hal"}
        answers = [posted(server, "/register", form) for _ in range(6)]
        assert [response.status_code for response in answers] == [200] * 5 + [429]
        assert "Retry-After" in answers[-1].headers


class TestForms:
    @pytest.mark.parametrize(
        "headers",
        [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {}],
    )
    @pytest.mark.parametrize("path", ["/register", "/dashboard/sign-in", "/dashboard/keys", "/dashboard/credits"])
    def test_cross_site_forms_are_rejected(self, server: Running, path: str, headers: dict[str, str]) -> None:
        form = {"email": "ivy@example.test", "name": "Ivy", "key": server.key}
        with http.Client(headers={"User-Agent": "a browser"}) as client:
            response = client.post(server.url + path, data=form, headers={"Cookie": "other=1", **headers})
        problem(response, 400, "invalid_parameter", reason="cross_site")
        assert "Set-Cookie" not in response.headers
        assert emails_to(server.data_dir, "ivy@example.test") == []

    @pytest.mark.parametrize("body", [b"key=%ff", b"a&" * 60, b"\xff", b"key=" + b"x" * 70_000])
    def test_malformed_bodies(self, server: Running, body: bytes) -> None:
        headers = {"Origin": server.url, "Content-Type": "application/x-www-form-urlencoded"}
        response = http.post(f"{server.url}/dashboard/sign-in", content=body, headers=headers)
        assert response.status_code in (400, 401, 413)


@contextmanager
def signed_in(server: Running, key: str) -> Iterator[httpx.Client]:
    """Returns a client with a session."""
    with http.Client(base_url=server.url, headers={"Origin": server.url}) as client:
        response = client.post("/dashboard/sign-in", data={"key": f" {key} "})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")
        yield client


class TestSessions:
    def test_cookie_attributes(self, server: Running) -> None:
        response = posted(server, "/dashboard/sign-in", {"key": server.account()})
        cookie = response.headers["Set-Cookie"].lower()
        for part in ("httponly", "samesite=strict", "path=/dashboard", "max-age=43200"):
            assert part in cookie
        assert "secure" not in cookie

    def test_cookie_is_secure_behind_https(self, servers: Servers, tmp_path: Path) -> None:
        with servers.running(tmp_path, base_url="https://convert.example/api/v1") as server:
            for origin, status in (("https://convert.example", 303), ("https://other.example", 400)):
                response = http.post(
                    f"{server.url}/dashboard/sign-in", data={"key": server.key}, headers={"Origin": origin}
                )
                assert response.status_code == status
                assert ("secure" in response.headers.get("Set-Cookie", "").lower()) == (status == 303)

    def test_wrong_key(self, server: Running) -> None:
        response = posted(server, "/dashboard/sign-in", {"key": "cvd_live_x"})
        assert response.status_code == 401
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
            token = client.cookies["convertd_session"]
            problem(
                client.get("/api/v1/account", headers={"Cookie": f"convertd_session={token}"}), 401, "invalid_api_key"
            )
            assert "Access-Control-Allow-Credentials" not in client.get("/dashboard").headers

    def test_sign_out(self, server: Running) -> None:
        with signed_in(server, server.account()) as client:
            token = client.cookies["convertd_session"]
            assert 'id="credits"' in client.get("/dashboard").text
            assert client.post("/dashboard/sign-out").headers["Location"] == "/"
            again = client.get("/dashboard", headers={"Cookie": f"convertd_session={token}"})
            assert 'id="credits"' not in again.text

    def test_session_ends_when_its_key_is_revoked(self, server: Running) -> None:
        key = server.account()
        with signed_in(server, key) as client:
            made = server.request("POST", "/account/keys", key).json()["data"]
            old = next(
                one["key_id"]
                for one in server.request("GET", "/account/keys", key).json()["data"]["keys"]
                if one["key_id"] != made["key_id"]
            )
            server.request("DELETE", f"/account/keys/{old}", made["api_key"])
            assert 'id="credits"' not in client.get("/dashboard").text

    @pytest.mark.parametrize("path", ["/keys", "/keys/key_x/revoke", "/credits", "/usage.csv"])
    def test_requests_without_a_session_are_redirected(self, server: Running, path: str) -> None:
        method = "GET" if path.endswith("csv") else "POST"
        response = http.request(method, f"{server.url}/dashboard{path}", headers={"Origin": server.url})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")


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
