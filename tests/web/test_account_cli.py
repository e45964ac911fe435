"""The account command, beside a server that runs."""

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
from tests.support.command_line import invoke, run_command
from tests.support.servers import Running


def account(folder: Path, *arguments: str) -> Result:
    return invoke(folder.parent, "account", *arguments, CONVERTD_DATA_DIR=str(folder))


def create(folder: Path, email: str, *arguments: str) -> Result:
    return account(folder, "create", "--email", email, "--name", "Test", *arguments)


def about(server: Running, key: str) -> httpx.Response:
    return http.get(f"{server.api}/account", headers={"Authorization": f"Bearer {key}"})


def test_the_key_alone_is_printed(server: Running) -> None:
    command = ("account", "create", "--email", "alone@example.test", "--name", "Test")
    done = run_command(server.data_dir, *command, CONVERTD_DATA_DIR=str(server.data_dir))
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "alone@example.test" in done.stderr
    data = about(server, done.stdout.strip()).json()["data"]
    assert (data["email"], data["name"], data["credits_remaining"]) == ("alone@example.test", "Test", 50)


def test_json_and_credits(server: Running) -> None:
    done = create(server.data_dir, "json@example.test", "--credits", "3", "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    made = json.loads(done.stdout)
    assert set(made) == {"api_key", "key_id", "email"}
    assert about(server, made["api_key"]).json()["data"]["credits_remaining"] == 3


def test_unverified_without_credits(server: Running) -> None:
    done = create(server.data_dir, "unverified@example.test", "--unverified", "--credits", "0")
    problem(about(server, done.stdout.strip()), 403, "key_not_verified")


def test_grant(server: Running) -> None:
    assert create(server.data_dir, "grant@example.test").exit_code == 0
    done = account(server.data_dir, "grant", "GRANT@example.test", "25")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "75\n", "")


def test_audit(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    assert create(folder, "audit@example.test").exit_code == 0
    done = account(folder, "audit")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "convertd: the ledger adds up.\n")

    with closing(sqlite3.connect(folder / "convertd.db")) as database, database:
        database.execute("UPDATE account SET balance = balance + 1")
    done = account(folder, "audit")
    assert (done.exit_code, done.stdout.count("\n"), done.stderr) == (1, 1, "")
    assert "the journal is the balance and what is held" in done.stdout


def test_taken_and_unknown_addresses(tmp_path: Path) -> None:
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
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = invoke(tmp_path, "account", *arguments, CONVERTD_DATA_DIR=str(tmp_path / "data"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr
    assert isinstance(done.exception, SystemExit)
    assert not (tmp_path / "data").exists()
