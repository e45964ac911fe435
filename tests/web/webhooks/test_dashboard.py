"""The dashboard's page of webhooks, over plain HTTP."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.support.requests import http
from tests.support.requests.account_requests import signed_in
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Receiver, reply
from tests.support.servers.webhook_sender import LOOPBACK

PAGE = "/dashboard/webhooks"


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with servers.running(tmp_path_factory.mktemp("data"), url_allow=LOOPBACK, rate_limit_free=1000) as running:
        yield running


def test_create_test_repeat_rotate_and_delete(server: Running) -> None:
    with Receiver(reply(500)) as receiver, signed_in(server, server.account()) as client:
        assert PAGE in client.get("/dashboard").text
        created = client.post(f"{PAGE}/new", data={"url": f"{receiver.url}/<hook>"})
        assert (created.status_code, created.headers["Location"]) == (303, PAGE)
        assert "path=/dashboard" in created.headers["Set-Cookie"].lower()
        page = client.get(PAGE).text
        (secret,) = re.findall(r"whsec_[A-Za-z0-9+/]{43}=", page.replace("&#x3D;", "="))
        assert f"{receiver.url}/&lt;hook&gt;" in page
        assert secret not in client.get(PAGE).text  # it is shown once

        (webhook,) = set(re.findall(r"webhook_\w{22}", page))
        assert client.post(f"{PAGE}/{webhook}/test").headers["Location"] == PAGE
        assert eventually(lambda: '<td data-label="response" class="bad-text">500</td>' in client.get(PAGE).text)
        (delivery,) = set(re.findall(r"delivery_\w{22}", client.get(PAGE).text))
        receiver.respond = reply(204)
        assert client.post(f"{PAGE}/deliveries/{delivery}/redeliver").status_code == 303
        assert eventually(lambda: '<td data-label="response">204</td>' in client.get(PAGE).text)
        assert {request.headers["webhook-id"] for request in receiver.requests} == {delivery}

        assert client.post(f"{PAGE}/{webhook}/rotate").status_code == 303
        (rotated,) = re.findall(r"whsec_[A-Za-z0-9+/]{43}=", client.get(PAGE).text.replace("&#x3D;", "="))
        assert rotated != secret
        assert client.post(f"{PAGE}/{webhook}/delete").status_code == 303
        assert webhook not in client.get(PAGE).text


def test_the_own_secret(server: Running) -> None:
    with signed_in(server, server.account()) as client:
        assert client.post(f"{PAGE}/secret").headers["Location"] == PAGE
        assert "whsec_" in client.get(PAGE).text
        assert "whsec_" not in client.get(PAGE).text


def test_a_secret_that_somebody_planted_is_not_shown(server: Running) -> None:
    planted = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
    with signed_in(server, server.account()) as client:
        client.cookies.set("convertd_new_secret", planted)
        assert planted not in client.get(PAGE).text


def test_errors_are_shown(server: Running) -> None:
    with signed_in(server, server.account()) as client:
        for path, data, status, text in (
            ("new", {"url": "http://10.0.0.1/"}, 400, "public address"),
            ("new", {}, 400, "must begin with"),
            ("webhook_0/test", {}, 404, "No such webhook"),
            ("webhook_0/delete", {}, 404, "No such webhook"),
            ("deliveries/delivery_0/redeliver", {}, 404, "No such delivery"),
        ):
            response = client.post(f"{PAGE}/{path}", data=data)
            assert response.status_code == status
            assert text in response.text
        for number in range(5):
            assert client.post(f"{PAGE}/new", data={"url": f"https://app.example/{number}"}).status_code == 303
        assert "Delete one of them" in client.post(f"{PAGE}/new", data={"url": "https://app.example/"}).text


def test_without_a_session(server: Running) -> None:
    assert 'name="key"' in http.get(f"{server.url}{PAGE}").text
    for path in ("new", "secret", "webhook_0/test", "deliveries/delivery_0/redeliver"):
        response = http.post(f"{server.url}{PAGE}/{path}", data={}, headers={"Origin": server.url})
        assert (response.status_code, response.headers["Location"]) == (303, "/dashboard")
