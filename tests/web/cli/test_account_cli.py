"""The `convertd account` commands, next to a running server."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import Result

from storage.blobs.blob_store import open_blob_store
from storage.tables import ledger_audit
from tests.support.command_line import invoke
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers
from tests.support.servers.stores import shared_stores


def account(folder: Path, *arguments: str, answer: str = "") -> Result:
    return invoke(folder.parent, "account", *arguments, answer=answer, CONVERTD_DATA_DIR=str(folder))


def create(folder: Path, email: str, *arguments: str) -> Result:
    return account(folder, "create", "--email", email, "--name", "Test", *arguments)


def account_response(server: Running, key: str) -> httpx.Response:
    return http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key}"})


def test_create_prints_only_the_key(server: Running) -> None:
    done = create(server.data_dir, "alone@example.test")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 1
    assert "alone@example.test" in done.stderr
    data = account_response(server, done.stdout.strip()).json()["data"]
    assert (data["email"], data["name"], data["credits_remaining"]) == ("alone@example.test", "Test", 50)


def test_create_with_credits_and_json(server: Running) -> None:
    done = create(server.data_dir, "json@example.test", "--credits", "3", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    made = json.loads(done.stdout)
    assert set(made) == {"api_key", "key_id", "email"}
    assert account_response(server, made["api_key"]).json()["data"]["credits_remaining"] == 3


def test_create_unverified_without_credits(server: Running) -> None:
    done = create(server.data_dir, "unverified@example.test", "--unverified", "--credits", "0")
    problem(account_response(server, done.stdout.strip()), 403, "key_not_verified")


def test_grant(server: Running) -> None:
    assert create(server.data_dir, "grant@example.test").exit_code == 0
    done = account(server.data_dir, "grant", "GRANT@example.test", "25")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "75\n", "")


def test_credits_are_removed_for_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert create(folder, "less@example.test").exit_code == 0

    done = account(folder, "grant", "less@example.test", "-20", "--reason", "granted  twice")
    refused = account(folder, "grant", "less@example.test", "-31", "--reason", "too many")

    assert (done.exit_code, done.stdout, done.stderr) == (0, "30\n", "")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith("convertd: ")
    assert "30 credits" in refused.stderr
    shown = json.loads(account(folder, "show", "less@example.test", "--json").stdout)
    assert {(grant["amount"], grant["reason"]) for grant in shown["grants"]} == {(50, None), (-20, "granted twice")}
    assert "granted twice" in account(folder, "show", "less@example.test").stdout
    assert account(folder, "audit").exit_code == 0


def test_create_prints_where_the_database_is(tmp_path: Path) -> None:
    done = create(tmp_path / "data", "a@example.test")
    assert f"sqlite:///{tmp_path / 'data' / 'convertd.db'}\n" in done.stderr


def test_list_and_show(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    key = create(folder, "first@example.test", "--credits", "7").stdout.strip()
    assert create(folder, "second@example.test").exit_code == 0

    listed = {one["email"]: one for one in json.loads(account(folder, "list", "--json").stdout)}
    assert listed.keys() == {"first@example.test", "second@example.test"}
    shown = json.loads(account(folder, "show", "FIRST@example.test", "--json").stdout)
    assert shown.items() >= listed["first@example.test"].items()
    assert (shown["name"], shown["credits_remaining"], shown["stored_bytes"]) == ("Test", 7, 0)
    assert [one["key_prefix"] for one in shown["keys"]] == [key[:15]]
    for done in (account(folder, "list"), account(folder, "show", "first@example.test")):
        assert done.exit_code == 0
        assert "first@example.test" in done.stdout
        assert key not in done.stdout


@pytest.fixture(params=["alone", "shared"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The settings of the stores: none for SQLite and a folder; PostgreSQL, Redis and S3."""
    if request.param == "alone":
        yield {}
        return
    database_url = request.getfixturevalue("new_postgres_url")()
    with shared_stores(tmp_path, database_url, request.getfixturevalue("s3_server")) as settings:
        yield settings


async def _blobs(folder: Path, url: str | None) -> set[str]:
    return {key async for key in open_blob_store(url, folder / "blobs").list(0)}


def test_delete(servers: Servers, data_dir: Path, stores: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The keys end and the files are erased while a server runs."""
    for name, value in stores.items():
        monkeypatch.setenv(f"CONVERTD_{name.upper()}", value)
    with servers.running(data_dir, **stores) as server:
        emails = ("first@example.test", "second@example.test")
        keys = [create(data_dir, email).stdout.strip() for email in emails]
        for key in keys:
            server.upload(sample("jpeg"), key=key)
        before = asyncio.run(_blobs(data_dir, stores.get("blob_url")))

        done = account(data_dir, "delete", "FIRST@example.test", "--yes")

        assert (done.exit_code, done.stdout) == (0, "")
        assert done.stderr == "convertd: deleted the account first@example.test; stored files erased: 1.\n"
        problem(account_response(server, keys[0]), 401, "invalid_api_key")
        assert account_response(server, keys[1]).status_code == 200
        left = asyncio.run(_blobs(data_dir, stores.get("blob_url")))
        assert len(before - left) == 1
        assert "first@example.test" not in account(data_dir, "list").stdout
        assert account(data_dir, "show", "first@example.test").stderr == "convertd: No such account.\n"
        assert account(data_dir, "audit").exit_code == 0
        assert create(data_dir, "first@example.test").exit_code == 0


def test_delete_asks_first(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert create(folder, "a@example.test").exit_code == 0
    for answer in ("n\n", "\n", ""):
        done = account(folder, "delete", "a@example.test", answer=answer)
        assert done.exit_code == 1
        assert "Delete the account a@example.test with 50 credits" in done.stderr
    assert account(folder, "delete", "a@example.test", answer="y\n").exit_code == 0
    assert account(folder, "delete", "a@example.test", "--yes").exit_code == 1


def test_audit(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert create(folder, "audit@example.test").exit_code == 0
    done = account(folder, "audit")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "convertd: the ledger is consistent.\n")

    with closing(sqlite3.connect(folder / "convertd.db")) as database, database:
        database.execute("UPDATE account SET balance = balance + 1")
    done = account(folder, "audit")
    assert (done.exit_code, done.stdout.count("\n"), done.stderr) == (1, 1, "")
    assert "the entries sum to the balance plus held credits" in done.stdout


def test_audit_of_many_accounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_audit, "PAGE", 2)
    folder = tmp_path / "data"
    for number in range(5):
        assert create(folder, f"{number}@example.test").exit_code == 0
    with closing(sqlite3.connect(folder / "convertd.db")) as database, database:
        database.execute("UPDATE account SET used = used + 1 WHERE email <> '3@example.test'")
    done = account(folder, "audit")
    assert done.exit_code == 1
    assert len({line.partition(":")[0] for line in done.stdout.splitlines()}) == 4


def test_duplicate_and_unknown_email_addresses(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert create(folder, "twice@example.test").exit_code == 0
    for done in (create(folder, "Twice@example.test"), account(folder, "grant", "nobody@example.test", "1")):
        assert (done.exit_code, done.stdout) == (1, "")
        assert done.stderr.startswith("convertd: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("create", "--email", "nobody", "--name", "Test"),
        ("create", "--email", "a@example.test", "--name", "T"),
        ("create", "--email", "a@example.test"),
        ("create", "--email", "a@example.test", "--name", "Test", "--credits", "-1"),
        ("grant", "a@example.test", "0"),
        ("grant", "a@example.test", "-5"),
        ("grant", "a@example.test", "-5", "--reason", " "),
        ("grant", "a@example.test", "--reasons", "5"),
        ("grant", "a@example.test", "many"),
        ("grant", "nobody", "1"),
    ],
)
def test_invalid_arguments_exit_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = invoke(tmp_path, "account", *arguments, CONVERTD_DATA_DIR=str(tmp_path / "data"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr
    assert isinstance(done.exception, SystemExit)
    assert not (tmp_path / "data").exists()
