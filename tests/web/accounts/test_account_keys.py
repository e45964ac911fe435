"""/account/keys: issue, rotate and revoke API keys."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from tests.support.requests import http
from tests.support.requests.account_requests import account_data, bearer, get_account
from tests.support.requests.checks import problem
from tests.support.servers.in_process import Running, Servers


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
