"""Rate limits per minute."""

from pathlib import Path

from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Servers


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
        problem(
            http.post(f"{server.api}/convert", headers={"Content-Length": "0", **server.auth}),
            429,
            "rate_limit_exceeded",
        )


def test_all_keys_of_an_account_have_one_rate_limit(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_free=3) as server:
        first = server.account()
        second = server.request("POST", "/account/keys", first, json={"name": "second"}).json()["data"]["api_key"]
        remaining = [
            server.request("GET", "/account", key).headers["X-RateLimit-Remaining"] for key in (first, second, second)
        ]
        assert remaining == ["1", "0", "0"]
        problem(server.request("GET", "/account", first), 429, "rate_limit_exceeded")
