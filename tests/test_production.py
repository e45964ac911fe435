"""The commands of "Daily operation" in config/README.md work as printed, for a service with accounts."""

import gzip
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from storage.database import Database
from storage.tables import accounts, api_keys
from tests.support.readme import read
from tests.support.requests import http

_OPERATION = read("config/README.md").section("Daily operation")
_EXECUTED = (*("Back up", "Restore", "Archive past months", "Add credits", "Rotate secrets", "Find a request"),)
_EMAIL = "you@example.com"
_CREDITS = 50

Run: TypeAlias = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that takes the place of /opt/convertd."""
    (tmp_path / "data").mkdir()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def _shell(folder: Path, **environment: str) -> Run:
    """Returns a function that runs commands as printed, and returns their output."""
    known = {**os.environ, "CONVERTD_DATA_DIR": str(folder / "data"), **environment}

    def run(commands: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", commands], cwd=folder, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _commands(heading: str) -> str:
    """The shell block below that heading."""
    (block,) = _OPERATION.section(heading).blocks("sh")
    return block


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    with closing(Database(url)) as database:
        yield database


def _prepare(url: str) -> str:
    """Creates the account. Returns its API key."""
    with _opened(url) as database:
        made = database.run_blocking(accounts.create, _EMAIL, "You", free_credits=_CREDITS, verified=True)
        return database.run_blocking(api_keys.issue, made.id, "You").text


def _grant(url: str, credits: int) -> int:
    """Adds credits. Returns the new balance."""
    with _opened(url) as database:
        return database.run_blocking(accounts.grant, _EMAIL, credits)


def test_every_block_is_executed() -> None:
    assert [_commands(heading) for heading in _EXECUTED] == _OPERATION.blocks("sh")


def test_a_backup_is_restored(folder: Path) -> None:
    url = f"sqlite:///{folder / 'data' / 'convertd.db'}"
    backup = str(folder / "backup.tar")
    _prepare(url)

    with closing(Database(url)):  # open, as while the service runs
        _shell(folder, BACKUP=backup)(_commands("Back up"))
        _grant(url, 7)
    _shell(folder, BACKUP=backup, CONVERTD_DATA_DIR=str(folder / "new"))(_commands("Restore"))

    assert _grant(f"sqlite:///{folder / 'new' / 'convertd.db'}", 1) == _CREDITS + 1


def test_past_months_are_archived(folder: Path) -> None:
    _prepare(f"sqlite:///{folder / 'data' / 'convertd.db'}")
    _shell(folder, ARCHIVE=str(folder / "archive.jsonl.gz"), MONTH="2026-01")(_commands("Archive past months"))
    assert gzip.decompress((folder / "archive.jsonl.gz").read_bytes()) == b""


def test_keys_are_rotated_credits_given_and_requests_found(folder: Path) -> None:
    log = folder / "log"
    journal = folder / "journalctl"
    journal.write_text(f'#!/bin/sh\n[ "$*" = "--unit convertd --output cat" ] && exec cat {log}\n')
    journal.chmod(0o755)
    key = _prepare(f"sqlite:///{folder / 'data' / 'convertd.db'}")
    with log.open("w") as output, _serving(folder, output.fileno(), log) as url:
        response = http.get(f"{url}/api/v1/account", headers={"Authorization": f"Bearer {key}"})
        request_id = response.headers["X-Request-Id"]
        environment = {"CONVERTD_API_KEY": key, "REQUEST": request_id, "PATH": f"{folder}:{os.environ['PATH']}"}
        run = _shell(folder, **environment)

        assert run(_commands("Add credits")) == f"{_CREDITS + 500}\n"
        rotated = _commands("Rotate secrets").replace("localhost:8000", url.removeprefix("http://"))
        assert '"api_key": "cvd_live_' in run(rotated.replace("curl ", "curl --fail --no-progress-meter "))
        assert "/api/v1/account status=200" in run(_commands("Find a request"))


@contextmanager
def _serving(folder: Path, output: int, log: Path) -> Iterator[str]:
    command = (folder / ".venv" / "bin" / "convertd", "serve", "--port", "0")
    with subprocess.Popen(command, stderr=output, cwd=folder) as server:
        try:
            while (found := re.search(r"listening on (\S+);", log.read_text())) is None:
                assert server.poll() is None
                time.sleep(0.05)
            yield found[1]
        finally:
            server.kill()
