"""Who a client is, and how often it may ask: keys, addresses behind proxies, hosts, and limits per minute.

Pages are served under the host of the base URL only. The name of another site can resolve to the address of the server
(DNS rebinding): its requests are those of a browser from the same origin, and only their Host header tells.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import BROWSER_HEADERS, image
from tests.support.servers.in_process import Running, Servers
from web.http.authorization import client_address, client_network
from web.routes import PAGE_RESOURCES, TRIAL_RESOURCES

DOORS = (
    ("POST", "/convert"),
    ("POST", "/files/upload"),
    ("GET", "/files/file_1"),
    ("DELETE", "/files/file_1"),
    ("POST", "/files/file_1/convert"),
    ("GET", "/files/file_1/download"),
    ("POST", "/batch"),
    ("GET", "/batch/batch_1"),
    ("POST", "/batch/batch_1/files"),
    ("POST", "/batch/batch_1/convert"),
    ("POST", "/pdf/merge"),
    ("POST", "/pdf/delete-pages"),
    ("GET", "/account"),
    ("GET", "/account/usage"),
    ("GET", "/account/keys"),
    ("POST", "/credits/purchase"),
)
TRUSTED = (ip_network("10.0.0.0/8"), ip_network("::1"))
_REBOUND = {"Host": "rebound.example:8000", "Origin": "http://rebound.example:8000", "Sec-Fetch-Site": "same-origin"}
_PAGES = [
    (method, re.sub(r"\((.*?)\)", lambda group: "none" if "[" in group[1] else group[1].partition("|")[0], pattern))
    for pattern, handler in (*PAGE_RESOURCES, *TRIAL_RESOURCES)
    for method in handler.methods
    if method in ("GET", "POST")
]


@pytest.fixture(scope="module")
def closed(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A separate server: wrong keys are counted by address."""
    with servers.running(tmp_path_factory.mktemp("closed")) as running:
        yield running


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_a_key_is_needed(closed: Running, method: str, path: str) -> None:
    problem(closed.request(method, path, "none"), 401, "invalid_api_key")


@pytest.mark.parametrize(("method", "path"), DOORS)
def test_a_key_has_to_be_verified(closed: Running, method: str, path: str) -> None:
    problem(closed.request(method, path, closed.account(verified=False)), 403, "key_not_verified")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("1.2.3.4", None, "1.2.3.4"),
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("::1", "2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "9.9.9.9:4711", "9.9.9.9"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.1", "fe80::1%\nchosen", "fe80::1"),
        ("10.0.0.1", "8.8.8.8,,", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6," * 2000 + "9.9.9.9", "9.9.9.9"),
    ],
)
def test_client_address(peer: str, forwarded: str | None, client: str) -> None:
    assert client_address(peer, forwarded, TRUSTED) == client


def test_one_network_is_one_subscriber() -> None:
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff:1") == "2001:db8::/64"
    assert client_network("1.2.3.4") == "1.2.3.4"
    assert client_network("::ffff:1.2.3.4") == "1.2.3.4"


@pytest.fixture(scope="module")
def public(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose base URL is not on this machine."""
    base_url = "https://me:secret@Convert.example/api/v1"
    with servers.running(tmp_path_factory.mktemp("public"), base_url=base_url) as running:
        yield running


@pytest.mark.parametrize(("method", "path"), _PAGES)
def test_no_page_is_served_under_another_name(server: Running, method: str, path: str) -> None:
    response = http.request(method, server.url + path, headers=_REBOUND)

    problem(response, 400, "invalid_parameter", param="Host", reason="unknown_host")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version", "/api/v1/formats", "/api/v1/tools"])
def test_the_api_and_checks_of_health_take_any_host(server: Running, path: str) -> None:
    assert http.get(server.url + path, headers=_REBOUND).status_code == 200


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:1", "LOCALHOST:8000", "127.0.0.1:8000", "127.8.9.1", "[::1]:80"]
)
def test_every_name_of_this_machine_is_that_of_a_local_base_url(server: Running, host: str) -> None:
    assert http.get(server.url, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["convert.example", "CONVERT.example:443"])
def test_the_host_of_the_base_url_is_served_at_any_port(public: Running, host: str) -> None:
    assert http.get(public.url, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "convert.example.org", "www.convert.example", "[", ""])
def test_other_hosts_learn_the_address(public: Running, host: str) -> None:
    response = http.get(public.url, headers={**BROWSER_HEADERS, "Host": host})

    assert response.status_code == 400
    if host:
        assert "The pages are at https://Convert.example." in response.text


def test_rate_limit(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_anonymous=3) as server:
        answers = [http.get(f"{server.api}/formats") for _ in range(4)]
        assert [response.headers["X-RateLimit-Remaining"] for response in answers] == ["2", "1", "0", "0"]
        problem(answers[3], 429, "rate_limit_exceeded", retryable=True)
        assert 1 <= int(answers[3].headers["Retry-After"]) <= 60
        problem(http.get(f"{server.url}/nothing"), 404, "not_found")
        assert http.options(f"{server.api}/formats").status_code == 204
        assert http.get(f"{server.url}/healthz").status_code == 200
        assert server.convert(image()).headers["X-RateLimit-Remaining"] == "299"


def test_rate_limit_of_an_account(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_paid=1) as server:
        assert server.convert(image()).status_code == 200
        problem(server.convert(image()), 429, "rate_limit_exceeded")
        response = http.post(f"{server.api}/convert", headers={"Content-Length": "0", **server.auth})
        problem(response, 429, "rate_limit_exceeded")


def test_all_keys_of_an_account_have_one_rate_limit(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_free=3) as server:
        first = server.account()
        second = server.request("POST", "/account/keys", first, json={"name": "second"}).json()["data"]["api_key"]
        remaining = [
            server.request("GET", "/account", key).headers["X-RateLimit-Remaining"] for key in (first, second, second)
        ]
        assert remaining == ["1", "0", "0"]
        problem(server.request("GET", "/account", first), 429, "rate_limit_exceeded")
