"""/healthz, /livez, /readyz, /version."""

from pathlib import Path

import pytest

from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.servers.in_process import Running, Servers


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz", "/version"])
def test_probes_have_the_headers_too(server: Running, path: str) -> None:
    response = http.get(server.url + path)
    assert response.status_code == 200
    dressed(response)


def test_health_is_one_word(server: Running) -> None:
    assert http.get(f"{server.url}/healthz").json() == {"status": "ok"}


def test_not_ready_without_a_data_folder(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        data_dir.rename(data_dir.with_name("elsewhere"))
        problem(http.get(f"{server.url}/readyz"), 503, "not_ready", retryable=True)
        data_dir.with_name("elsewhere").rename(data_dir)
        assert http.get(f"{server.url}/readyz").json() == {"status": "ok"}
