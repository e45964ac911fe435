"""Pages are served under the host of the base URL only, so that no other site can use them as its own.

The name of such a site can resolve to the address of the server (DNS rebinding): its requests are those of a browser
from the same origin, and only their Host header tells.
"""

import re
from collections.abc import Iterator

import pytest

from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import BROWSER_HEADERS
from tests.support.servers.in_process import Running, Servers
from web.routes import PAGE_RESOURCES, TRIAL_RESOURCES

_REBOUND = {"Host": "rebound.example:8000", "Origin": "http://rebound.example:8000", "Sec-Fetch-Site": "same-origin"}
_PAGES = [
    (method, re.sub(r"\((.*?)\)", lambda group: "none" if "[" in group[1] else group[1].partition("|")[0], pattern))
    for pattern, handler in (*PAGE_RESOURCES, *TRIAL_RESOURCES)
    for method in handler.methods
    if method in ("GET", "POST")
]


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
