"""The `convertd account` commands, next to a running server."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import Result

from tests.support import http
from tests.support.checks import problem
from tests.support.command_line import invoke
from tests.support.servers import Running


def account(folder: Path, *arguments: str) -> Result:
    return invoke(folder.parent, "account", *arguments, CONVERTD_DATA_DIR=str(folder))


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
