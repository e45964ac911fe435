"""Test keys: nothing is charged, results say so, their number is limited, and they change no keys."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.pricing import TEST_CONVERSIONS
from tests.support.requests.account_requests import posted, signed_in
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running, Servers

_JSON = {"Accept": "application/json"}
_AS_JOB = {"Prefer": "respond-async, wait=60"}


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with servers.running(tmp_path_factory.mktemp("test-keys"), rate_limit_free=10_000) as running:
        yield running


@pytest.fixture
def live(server: Running) -> str:
    return server.account(credits=1)


@pytest.fixture
def test_key(server: Running, live: str) -> str:
    made = server.request("POST", "/account/keys", live, json={"mode": "test", "name": "CI"}).json()["data"]
    assert made["api_key"].startswith("cvd_test_")
    assert made["api_key"].startswith(made["key_prefix"])
    return str(made["api_key"])


def _convert(server: Running, key: str, **headers: str) -> Any:
    form: dict[str, Any] = {"files": {"file": ("a.png", image("PNG"))}, "data": {"output_format": "jpeg"}}
    return server.request("POST", "/convert", key, headers=headers, **form)


def _credits(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["data"]["credits_remaining"])


def test_conversions_cost_nothing_and_say_that_they_are_tests(server: Running, live: str, test_key: str) -> None:
    binary, described = _convert(server, test_key), _convert(server, test_key, **_JSON)
    paid = _convert(server, live, **_JSON)

    assert "test_mode" in binary.headers["X-Warnings"]
    assert [each["code"] for each in described.json()["data"]["warnings"]] == ["test_mode"]
    assert paid.json()["data"]["warnings"] == []
    assert _credits(server, test_key) == 0
    problem(_convert(server, live), 402, "no_credits")
    assert _convert(server, test_key).status_code == 200  # also without credits


def test_several_results_have_the_warning(server: Running, test_key: str) -> None:
    outputs = json.dumps([{"output_format": "jpeg"}, {"output_format": "gif"}])
    form: dict[str, Any] = {"files": {"file": ("a.png", image("PNG"))}, "data": {"outputs": outputs}}

    made = server.request("POST", "/convert", test_key, headers=_JSON, **form).json()["data"]

    for each in (made, *made["outputs"]):
        assert "test_mode" in [warning["code"] for warning in each["warnings"]]


def test_jobs_say_that_they_are_tests(server: Running, live: str, test_key: str) -> None:
    job = _convert(server, test_key, **_AS_JOB).json()["data"]
    paid = _convert(server, live, **_AS_JOB).json()["data"]

    assert (job["status"], job["test"]) == ("completed", True)
    assert [each["code"] for each in job["result"]["warnings"]] == ["test_mode"]
    assert (paid["test"], paid["result"]["warnings"]) == (False, [])
    assert {each["job_id"]: each["test"] for each in server.request("GET", "/jobs", live).json()["data"]["jobs"]} == {
        job["job_id"]: True,
        paid["job_id"]: False,
    }
    assert _credits(server, live) == 0


def test_the_conversions_of_a_day_are_limited(
    servers: Servers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TEST_CONVERSIONS == 100
    monkeypatch.setattr("web.services.accounts.key_modes.TEST_CONVERSIONS", 2)
    with servers.running(tmp_path) as server:
        live = server.account()
        test_key = server.request("POST", "/account/keys", live, json={"mode": "test"}).json()["data"]["api_key"]
        assert _convert(server, test_key).status_code == 200
        assert _convert(server, test_key, **_AS_JOB).status_code == 200
        for headers in ({}, _AS_JOB):
            refused = _convert(server, test_key, **headers)
            problem(refused, 429, "rate_limit_exceeded", reason="test_limit")
            assert int(refused.headers["Retry-After"]) > 60
        assert _convert(server, live).status_code == 200


def test_test_keys_change_no_keys_buy_nothing_and_open_no_session(server: Running, live: str, test_key: str) -> None:
    (own,) = [
        key["key_id"]
        for key in server.request("GET", "/account/keys", test_key).json()["data"]["keys"]
        if key["key_prefix"].startswith("cvd_test_")
    ]

    for method, path, body in (
        ("POST", "/account/keys", {}),
        ("POST", f"/account/keys/{own}/rotate", {}),
        ("DELETE", f"/account/keys/{own}", None),
        ("POST", "/credits/purchase", {"pack": "starter"}),
    ):
        sent: dict[str, Any] = {} if body is None else {"json": body}
        problem(server.request(method, path, test_key, **sent), 401, "invalid_api_key")
    assert "Use a live key" in posted(server, "/dashboard/sign-in", {"key": test_key}).text


def test_the_last_live_key_stays(server: Running, live: str, test_key: str) -> None:
    keys = server.request("GET", "/account/keys", live).json()["data"]["keys"]
    ids = {key["key_prefix"][:8]: key["key_id"] for key in keys}

    problem(
        server.request("DELETE", f"/account/keys/{ids['cvd_live']}", live), 400, "invalid_parameter", reason="last_key"
    )
    rotated = server.request("POST", f"/account/keys/{ids['cvd_test']}/rotate", live, json={}).json()["data"]
    assert rotated["api_key"].startswith("cvd_test_")
    assert server.request("DELETE", f"/account/keys/{rotated['key_id']}", live).status_code == 200
    with signed_in(server, live) as client:
        assert client.get("/dashboard").status_code == 200
