"""What the command prints before it does any work: its version, completions, and why it cannot start."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from storage.database import Database
from storage.transaction import Transaction
from tests.support.command_line import COMMAND, run_command

_COMMANDS = [("serve", "--port", "0"), ("account", "list")]


def _hide(folder: Path, package: str) -> str:
    """Returns a PYTHONPATH on which the package cannot be imported."""
    (folder / "hidden").mkdir()
    error = f"raise ModuleNotFoundError('No module named {package}', name='{package}')"
    (folder / "hidden" / f"{package}.py").write_text(error)
    return str(folder / "hidden")


def _check_message(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("convertd: ")
    assert done.stderr.count("\n") == 1
    for part in parts:
        assert part in done.stderr


def test_the_version(tmp_path: Path) -> None:
    done = run_command(tmp_path, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"convertd \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_database_does_not_run(tmp_path: Path, command: tuple[str, ...]) -> None:
    url = "postgresql://user:sesame@127.0.0.1:1/name"

    done = run_command(tmp_path, *command, CONVERTD_DATABASE_URL=url)

    _check_message(done, "cannot use the database", "Connection refused", "CONVERTD_DATABASE_URL")
    assert "sesame" not in done.stderr


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_driver_of_postgresql_is_missing(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = _hide(tmp_path, "psycopg")

    done = run_command(tmp_path, *command, PYTHONPATH=path, CONVERTD_DATABASE_URL="postgresql://127.0.0.1/name")

    _check_message(done, "psycopg", "pip install 'convertd[postgres]'")


def test_the_driver_of_s3_is_missing(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": _hide(tmp_path, "obstore"), "CONVERTD_BLOB_URL": "s3://bucket/files"}
    created = run_command(tmp_path, "account", "create", "--email", "a@example.test", "--name", "Test", **environment)
    assert created.returncode == 0

    for command in (("serve", "--port", "0"), ("account", "delete", "a@example.test", "--yes")):
        _check_message(run_command(tmp_path, *command, **environment), "obstore", "pip install 'convertd[s3]'")

    assert "a@example.test" in run_command(tmp_path, "account", "list", **environment).stdout


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_database_belongs_to_a_newer_release(tmp_path: Path, command: tuple[str, ...]) -> None:
    def upgrade(transaction: Transaction) -> None:
        insert = "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01 00:00:00')"
        transaction.connection.execute_sql(insert)

    database = Database(f"sqlite:///{tmp_path / 'data' / 'convertd.db'}")
    database.run_blocking(upgrade)
    database.close()

    _check_message(run_command(tmp_path, *command), "newer release", "Install that release")


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.parametrize("data_dir", ["/proc/data", "file"])
def test_the_data_folder_cannot_be_written_to(tmp_path: Path, command: tuple[str, ...], data_dir: str) -> None:
    (tmp_path / "file").write_text("not a folder")

    done = run_command(tmp_path, *command, CONVERTD_DATA_DIR=data_dir)

    _check_message(done, data_dir, "CONVERTD_DATA_DIR")


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_file_system_is_read_only(small_disk: Path, command: tuple[str, ...]) -> None:
    create = ("account", "create", "--email", "a@example.test", "--name", "Test")
    assert run_command(small_disk, *create).returncode == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    _check_message(run_command(small_disk, *command), "CONVERTD_DATA_DIR")


@pytest.mark.parametrize("command", _COMMANDS)
def test_the_file_is_no_database(tmp_path: Path, command: tuple[str, ...]) -> None:
    (tmp_path / "other.db").write_text("This file is not a database. " * 100)

    done = run_command(tmp_path, *command, CONVERTD_DATABASE_URL=f"sqlite:///{tmp_path / 'other.db'}")

    _check_message(done, "file is not a database", "CONVERTD_DATABASE_URL")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("convertd ", {"serve", "convert", "formats", "account", "config", "doctor"}),
        ("convertd account ", {"create", "list", "show", "delete", "grant", "audit"}),
        ("convertd convert --max-b", {"--max-bytes"}),
        ("convertd convert --overw", {"--overwrite"}),
    ],
)
def test_completions(tmp_path: Path, words: str, expected: set[str]) -> None:
    number = str(len(words.split(" ")) - 1)

    done = run_command(tmp_path, _CONVERTD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=number)

    assert set(done.stdout.split()) == expected


def test_completion_is_installed(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = f"{COMMAND} --install-completion; exit $?"

    subprocess.run([bash, "-c", script], check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})

    assert "convertd" in (tmp_path / ".bashrc").read_text()
