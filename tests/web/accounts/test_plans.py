"""Plans: limits by the settings and by account, conversions that cost nothing, and who may register and try."""

import json
from collections.abc import Iterator
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from config.pricing import MIB
from storage.tables import accounts, ledger_audit
from tests.support.command_line import invoke
from tests.support.requests import batches, http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually

PLANS = {"team": {"max_file_size": "500MB", "requests_per_minute": 900, "unmetered": True}}
ADDRESS = {"email": "colleague@team.example", "name": "Colleague"}


@pytest.fixture(scope="module")
def team(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server of a team: nothing is sold, nobody registers without an invitation, and there are no trials."""
    settings: dict[str, Any] = {"plans": PLANS, "registration": "invite", "trials": 0}
    with servers.running(tmp_path_factory.mktemp("team"), **settings) as running:
        yield running


def command(team: Running, *arguments: str) -> Result:
    environment = {"CONVERTD_DATA_DIR": str(team.data_dir), "CONVERTD_PLANS": json.dumps(PLANS)}
    done = invoke(team.data_dir.parent, "account", *arguments, **environment)
    assert done.exit_code in (0, 2), done.stderr
    return done


def member(team: Running, email: str, *arguments: str) -> str:
    """The key of a new account without credits, which was changed by a command with these arguments."""
    made = command(team, "create", "--email", email, "--name", "Member", "--credits", "0")
    assert command(team, "set", email, *arguments).exit_code == 0
    return made.stdout.strip()


def emails(server: Running) -> list[str]:
    found = (message_from_bytes(path.read_bytes()) for path in sorted((server.data_dir / "outbox").glob("*.eml")))
    return [str(message["To"]) for message in found]


def test_conversions_of_an_unmetered_account_cost_nothing(team: Running) -> None:
    key = member(team, "unmetered@team.example", "--plan", "team", "--max-file-size", "1GB")

    data = team.request("GET", "/account", key).json()["data"]
    assert (data["tier"], data["max_file_size"], data["credits_remaining"]) == ("team", 1024 * MIB, 0)
    assert data["rate_limit"]["limit"] == 900

    form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}
    direct = team.request("POST", "/convert", key, **form)
    assert (direct.status_code, direct.headers["X-Credits-Remaining"]) == (200, "0")
    accepted = team.request("POST", "/convert", key, **form, headers={"Prefer": "respond-async"})
    assert accepted.status_code == 202
    path = f"/jobs/{accepted.json()['data']['job_id']}"
    assert eventually(lambda: team.request("GET", path, key).json()["data"]["status"] == "completed")
    batch = batches.create(team, key, "webp")
    converted = batches.convert(team, batch, key, batches.add(team, batch, key, sample("png"), sample("jpeg")), "webp")
    assert converted.json()["data"]["successful"] == 2

    usage = team.request("GET", "/account/usage", key).json()["data"]
    assert (usage["successful_conversions"], usage["credits_used"]) == (4, 0)
    assert team.database.run_blocking(ledger_audit.check) == ()


def test_limits_of_an_account_differ_from_its_plan_until_they_are_reset(team: Running) -> None:
    key = member(team, "limits@team.example", "--max-file-size", "300", "--metered", "--file-retention-seconds", "60")
    form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}
    assert len(sample("png")) > 300
    refused = team.request("POST", "/convert", key, **form)
    problem(refused, 413, "file_too_large", details={"max_file_size": 300})

    assert command(team, "set", "limits@team.example", "--reset", "--unmetered").exit_code == 0
    assert team.request("POST", "/convert", key, **form).status_code == 200
    limits = team.request("GET", "/account", key).json()["data"]["limits"]
    assert limits["file_retention_seconds"] == 86_400


@pytest.mark.parametrize(
    "wrong", [("--plan", "gold"), ("--max-file-size", "much"), ("--role", "owner"), ("--max-concurrent", "0")]
)
def test_wrong_values_change_nothing(team: Running, wrong: tuple[str, str]) -> None:
    email = f"wrong{wrong[0]}@team.example"
    member(team, email, "--plan", "team")
    refused = command(team, "set", email, *wrong)
    assert refused.exit_code == 2
    assert refused.stderr.startswith("convertd: ")
    assert json.loads(command(team, "show", email, "--json").stdout)["plan"] == "team"


def test_a_key_without_email(team: Running) -> None:
    command(team, "create", "--email", "lost@team.example", "--name", "Lost", "--unverified")
    key = command(team, "key", "lost@team.example").stdout.strip()
    assert team.request("GET", "/account", key).json()["data"]["email"] == "lost@team.example"
    actions = json.loads(command(team, "log", "--json").stdout)
    assert [one["action"] for one in actions[:2]] == ["key", "create"]
    assert key not in json.dumps(actions)


def test_only_the_invited_get_an_email_or_sign_in(team: Running) -> None:
    link = command(team, "invite", ADDRESS["email"], "--plan", "team", "--role", "admin").stdout.strip()
    answers = []
    for email in ("stranger@team.example", ADDRESS["email"]):
        answers.append(http.post(f"{team.api}/register", json={**ADDRESS, "email": email}))
    assert [answer.status_code for answer in answers] == [200, 200]
    assert eventually(lambda: emails(team) == [ADDRESS["email"]])

    page, token = link.split("#token=")
    assert page == "http://localhost:8000/dashboard/sign-in-link"
    origin = {"Origin": team.url}
    signed_in = http.post(f"{team.url}/dashboard/sign-in-link", data={"token": token}, headers=origin)
    assert signed_in.status_code == 303
    shown = json.loads(command(team, "show", ADDRESS["email"], "--json").stdout)
    assert (shown["plan"], shown["role"]) == ("team", "admin")
    assert shown["verified_at"] is not None


def test_nothing_is_sold(team: Running) -> None:
    key = member(team, "buyer@team.example", "--plan", "team")
    signed_in = http.post(f"{team.url}/dashboard/sign-in", data={"key": key}, headers={"Origin": team.url})
    cookie = {"Cookie": signed_in.headers["Set-Cookie"].partition(";")[0]}
    paths = ("/", "/docs", "/docs/limits", "/docs/account", "/docs/errors", "/register", "/dashboard")
    pages = [http.get(f"{team.url}{path}", headers=cookie).text for path in paths]
    described = http.get(f"{team.api}/openapi.json").text
    for text in (*pages, described):
        assert not [word for word in ("€", "EUR", "Price", "Buy", "buy a pack", "creditsPurchase") if word in text]
    refused = team.request("POST", "/credits/purchase", key, json={"pack": "starter"})
    problem(refused, 500, "server_error", reason="checkout_not_configured")


def test_trials_are_off(team: Running) -> None:
    assert "conversions left today" not in http.get(team.url).text.replace(" hidden", "")
    for path in ("convert", "preview", "identify"):
        form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}
        url, headers = f"{team.url}/try/{path}", {"Origin": team.url}
        refused = http.post(url, headers=headers, files=form["files"], data=form["data"])
        problem(refused, 429, "rate_limit_exceeded", reason="trials")


def test_closed_registration_and_domains(servers: Servers, tmp_path: Path) -> None:
    with servers.running(tmp_path / "closed", registration="closed") as closed:
        refused = http.post(f"{closed.api}/register", json=ADDRESS)
        problem(refused, 404, "not_found", reason="registration_closed")
        assert "Get an API key" not in http.get(f"{closed.url}/status").text
        assert "/register" not in http.get(f"{closed.api}/openapi.json").json()["paths"]
        assert "/register<" not in http.get(f"{closed.url}/sitemap.xml").text
    with servers.running(tmp_path / "domains", registration_domains=["team.example"]) as domains:
        assert http.post(f"{domains.api}/register", json=ADDRESS).status_code == 200
        refused = http.post(f"{domains.api}/register", json={**ADDRESS, "email": "a@other.example"})
        problem(refused, 400, "invalid_parameter", param="email")


@pytest.mark.long
def test_packs_are_settings(servers: Servers, tmp_path: Path) -> None:
    packs = {"small": {"credits": 10, "amount": 200}}
    with servers.running(tmp_path / "shop", simulated_checkout=True, packs=packs) as shop:
        key = shop.account()
        opened = shop.request("POST", "/credits/purchase", key, json={"pack": "small"}).json()["data"]
        assert (opened["credits"], opened["amount"]) == (10, 200)
        refused = shop.request("POST", "/credits/purchase", key, json={"pack": "starter"})
        problem(refused, 400, "invalid_parameter", details={"available": ["small"]})
        document = http.get(f"{shop.api}/openapi.json").json()
        body = document["paths"]["/credits/purchase"]["post"]["requestBody"]["content"]["application/json"]
        assert body["schema"]["properties"]["pack"]["enum"] == ["small"]
        assert "€2" in http.get(shop.url).text


def test_a_plan_that_is_not_among_the_settings_is_ignored(team: Running) -> None:
    key = member(team, "gone@team.example")
    account = team.database.run_blocking(accounts.find, "gone@team.example")
    assert account is not None
    team.database.run_blocking(lambda transaction: accounts.change(transaction, account.id, plan="gone"))
    assert team.request("GET", "/account", key).json()["data"]["tier"] == "free"
    assert team.database.run_blocking(accounts.unknown_plans, PLANS) == ("gone",)
