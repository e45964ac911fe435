"""Sign-in with OpenID Connect, admins, and what people can do with their own data."""

import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from storage.tables import accounts, audit, ledger_audit
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.issuer import Issuer, new_key, running_issuer

ANN: dict[str, Any] = {
    "sub": "1",
    "email": "ann@team.example",
    "email_verified": True,
    "name": "Ann",
    "groups": ["admins"],
}


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with running_issuer() as running:
        yield running


@pytest.fixture(scope="module")
def team(servers: Servers, issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings: dict[str, Any] = {**issuer.settings(), "oidc_admin_group": "admins"}
    settings |= {"base_url": f"http://127.0.0.1:{port}/api/v1", "registration_domains": ["team.example"]}
    with servers.running(tmp_path_factory.mktemp("team"), port=port, **settings) as running:
        yield running


@pytest.fixture
def client(team: Running) -> Iterator[httpx.Client]:
    """A browser without a page open."""
    with httpx.Client(base_url=team.url, headers={"Origin": team.url}, follow_redirects=True) as opened:
        yield opened


def sign_in(client: httpx.Client, issuer: Issuer, changes: dict[str, Any] | None = None, **person: Any) -> str:
    """Signs a person in. Returns the text of the dashboard, or of the page with the error."""
    issuer.person, issuer.changes = person, changes or {}
    return client.get("/dashboard/oidc").text


def account_of(team: Running, email: str) -> accounts.StoredAccount | None:
    return team.database.run_blocking(accounts.find, email)


def test_a_colleague_gets_an_account_that_stays_theirs(team: Running, issuer: Issuer, client: httpx.Client) -> None:
    assert "Sign in with your organization" in client.get("/dashboard").text
    assert "ann@team.example" in sign_in(client, issuer, **ANN)
    ann = account_of(team, "ann@team.example")
    assert ann is not None
    assert (ann.name, ann.role, ann.credits_remaining, ann.verified_at is not None) == ("Ann", "admin", 50, True)

    client.cookies.clear()
    moved = {**ANN, "email": "ann.b@team.example", "groups": []}
    assert "ann@team.example" in sign_in(client, issuer, **moved)
    assert account_of(team, "ann.b@team.example") is None
    assert account_of(team, "ann@team.example").role == "member"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("person", "message"),
    [
        ({"sub": "2", "email_verified": False}, "has not verified"),
        ({"sub": "3", "email_verified": None}, "has not verified"),
        ({"sub": "4", "email": "ann@elsewhere.example"}, "no account here"),
    ],
)
def test_addresses_open_an_account_only_if_they_are_verified(
    team: Running, issuer: Issuer, client: httpx.Client, person: dict[str, Any], message: str
) -> None:
    if account_of(team, "ann@team.example") is None:
        team.database.run_blocking(accounts.create, "ann@team.example", "Ann", free_credits=0)
    page = sign_in(client, issuer, **{**ANN, **person})
    assert message in page
    assert "Sign out" not in page


@pytest.mark.parametrize(
    "changes", [{"iss": "https://other.example"}, {"aud": "another"}, {"nonce": "another"}, {"exp": 1}, {"sub": None}]
)
def test_tokens_for_others_are_refused(issuer: Issuer, client: httpx.Client, changes: dict[str, Any]) -> None:
    page = sign_in(client, issuer, changes, **{**ANN, "sub": "5"})
    assert "did not confirm who you are" in page


def test_tokens_of_others_are_refused(issuer: Issuer, client: httpx.Client) -> None:
    signer = issuer.signer
    issuer.signer = new_key()
    try:
        assert "did not confirm who you are" in sign_in(client, issuer, **{**ANN, "sub": "6"})
    finally:
        issuer.signer = signer


def test_a_callback_without_its_beginning_is_refused(issuer: Issuer, client: httpx.Client) -> None:
    issuer.person = ANN
    begun = client.get("/dashboard/oidc", follow_redirects=False)
    cookie = begun.headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Lax", "Path=/dashboard/oidc/callback"} <= set(cookie.split("; "))
    back = httpx.get(begun.headers["Location"]).headers["Location"]
    parts = urlsplit(back)
    assert client.get(f"{parts.path}?{parts.query.replace('state=', 'state=x')}").status_code == 400
    client.cookies.clear()
    assert client.get(f"{parts.path}?{parts.query}").status_code == 400
    assert client.get("/dashboard/jobs").text.count("Sign out") == 0


def test_admins_see_and_change_accounts_and_others_do_not(team: Running, issuer: Issuer, client: httpx.Client) -> None:
    sign_in(client, issuer, **{**ANN, "sub": "7", "email": "member@team.example", "groups": []})
    assert "/dashboard/admin" not in client.get("/dashboard").text
    member = account_of(team, "member@team.example")
    assert member is not None
    paths = ("/dashboard/admin", f"/dashboard/admin/accounts/{member.id}")
    assert [client.get(path).status_code for path in paths] == [404, 404]
    for action in (f"accounts/{member.id}/set", f"accounts/{member.id}/grant", "invite"):
        assert client.post(f"/dashboard/admin/{action}", data={"role": "admin"}).status_code == 404

    client.cookies.clear()
    sign_in(client, issuer, **{**ANN, "sub": "8", "email": "boss@team.example"})
    boss = account_of(team, "boss@team.example")
    assert boss is not None
    page = client.get("/dashboard/admin").text
    for text in ("member@team.example", "CONVERTD_OIDC_CLIENT_SECRET", "Sandbox", "Plugins: ", "ready", "Audit log"):
        assert text in page
    assert "secret of the client" not in page
    at = f"/dashboard/admin/accounts/{member.id}"
    client.post(f"{at}/set", data={"plan": "paid", "max_file_size": "500MB", "unmetered": "true", "role": "admin"})
    client.post(f"{at}/grant", data={"credits": "-20", "reason": "too many"})
    refused = client.post(f"{at}/grant", data={"credits": "-500", "reason": "too many"})
    assert (refused.status_code, "only 30 credits" in refused.text) == (400, True)
    assert client.post(f"{at}/set", data={"plan": "gold"}).status_code == 400
    changed = account_of(team, "member@team.example")
    assert changed is not None
    assert (changed.plan, changed.role, changed.credits_remaining) == ("paid", "admin", 30)
    assert client.post(f"/dashboard/admin/accounts/{boss.id}/delete").status_code == 400
    invited = client.post("/dashboard/admin/invite", data={"email": "new@other.example", "plan": "paid"})
    assert re.search(r'value="http://127\.0\.0\.1:\d+/dashboard/sign-in-link#token=[0-9a-f]{64}"', invited.text)
    client.post(f"{at}/delete")
    assert account_of(team, "member@team.example") is None
    other_site = client.post("/dashboard/admin/invite", data={"email": "x@y.example"}, headers={"Origin": "http://x"})
    assert other_site.status_code == 400

    found = team.database.run_blocking(lambda transaction: audit.list_page(transaction, limit=100)).values
    assert [one.action for one in found if one.actor == boss.id] == ["delete", "set", "invite", "grant", "set", "link"]
    assert team.database.run_blocking(ledger_audit.check) == ()


def test_people_export_and_delete_their_own_data(team: Running, issuer: Issuer, client: httpx.Client) -> None:
    sign_in(client, issuer, **{**ANN, "sub": "9", "email": "leaver@team.example"})
    shown = client.post("/dashboard/keys", data={"name": "a script"}).text
    found = re.search(r'id="key" readonly value="(cvd_live_\w+)"', shown)
    assert found is not None
    file = team.upload(sample("png"), "holiday.png", key=found[1])

    exported = client.get("/dashboard/data.json")
    assert exported.headers["Content-Disposition"] == 'attachment; filename="convertd-data.json"'
    data = exported.json()
    assert (data["account"][0]["email"], data["sign_ins"][0]["subject"]) == ("leaver@team.example", "9")
    assert (data["files"][0]["file_id"], data["files"][0]["original_name"]) == (file["file_id"], "holiday.png")
    assert (data["api_keys"][0]["name"], data["ledger"][0]["amount"]) == ("a script", 50)
    assert found[1] not in exported.text
    assert "sha256" not in exported.text
    assert "ann@team.example" not in exported.text

    assert client.post("/dashboard/delete", data={"email": "ann@team.example"}).status_code == 400
    client.post("/dashboard/delete", data={"email": "Leaver@team.example"})
    assert account_of(team, "leaver@team.example") is None
    assert "Sign out" not in client.get("/dashboard").text
    assert httpx.get(f"{team.api}/account", headers={"Authorization": f"Bearer {found[1]}"}).status_code == 401
    assert not [path for path in (team.data_dir / "blobs").rglob("*") if path.is_file()]
