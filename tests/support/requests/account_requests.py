"""Requests for the data of an account."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from tests.support.requests import http
from tests.support.requests.checks import dressed
from tests.support.servers.in_process import Running


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def get_account(server: Running, path: str, key: str, **headers: str) -> httpx.Response:
    return http.get(f"{server.api}/account{path}", headers={**bearer(key), **headers})


def account_data(response: httpx.Response) -> dict[str, Any]:
    assert response.status_code == 200, response.text
    dressed(response)
    assert response.headers["Cache-Control"] == "no-store"
    found: dict[str, Any] = response.json()["data"]
    return found


def posted(server: Running, path: str, form: dict[str, str]) -> httpx.Response:
    """Submits a form from the same origin."""
    return http.post(server.url + path, data=form, headers={"Origin": server.url})


@contextmanager
def signed_in(server: Running, key: str) -> Iterator[httpx.Client]:
    """Returns a client with a session."""
    with http.Client(base_url=server.url, headers={"Origin": server.url}) as client:
        response = client.post("/dashboard/sign-in", data={"key": f" {key} "})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")
        yield client
