"""A day in production, as the README has it: what it says to do is done, to a service with accounts in it."""

from __future__ import annotations

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

from storage import accounts, keyring
from storage.database import Database
from tests import plain
from tests.storage.postgres import find_binaries, running_server
from tests.test_readme import section

_EMAIL = "you@example.com"
_CREDITS = 50

Run: TypeAlias = Callable[[str], str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What stands for /opt/convertd."""
    (tmp_path / "data").mkdir()
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    return tmp_path


def _shell(folder: Path, **environment: str) -> Run:
    """Runs commands as they are printed, and gives what they print."""
    known = {**os.environ, "CONVERTD_DATA_DIR": str(folder / "data"), **environment}

    def run(commands: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", commands], cwd=folder, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def _commands(topic: str, nth: int = 0) -> str:
    """The nth block of commands below those words."""
    after = section("A day in production").partition(f"**{topic}")[2]
    found: list[str] = re.findall(r"```sh\n(.*?)```", after, re.DOTALL)
    return found[nth]


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    with closing(Database(url)) as database:
        yield database


def _prepare(url: str) -> str:
    """Makes the account, and gives its key."""
    with _opened(url) as database:
        made = database.run_blocking(accounts.create, _EMAIL, "You", free_credits=_CREDITS, verified=True)
        return database.run_blocking(keyring.issue, made.id, "You").text


def _grant(url: str, credits: int) -> int:
    """What the account has then."""
    with _opened(url) as database:
        return database.run_blocking(accounts.grant, _EMAIL, credits)


def test_the_ledger_in_sqlite_comes_back(folder: Path) -> None:
    url = f"sqlite:///{folder / 'data' / 'convertd.db'}"
    run = _shell(folder, BACKUP=str(folder / "ledger.db"))
    _prepare(url)

    with closing(Database(url)):  # as the service has it
        run(_commands("Back up"))
        _grant(url, 7)
    run(_commands("Restore"))

    assert _grant(url, 1) == _CREDITS + 1


def test_the_ledger_in_postgresql_comes_back(folder: Path) -> None:
    binaries = find_binaries()
    assert binaries is not None, "PostgreSQL is not installed here"
    with running_server(binaries) as url:
        run = _shell(folder, BACKUP=str(folder / "ledger.dump"), CONVERTD_DATABASE_URL=url)
        _prepare(url)

        run(_commands("Restore", 1))
        _grant(url, 7)
        run(_commands("Restore", 2))

        assert _grant(url, 1) == _CREDITS + 1


def test_keys_are_rotated_credits_given_and_requests_found(folder: Path) -> None:
    log = folder / "log"
    journal = folder / "journalctl"
    journal.write_text(f'#!/bin/sh\n[ "$*" = "--unit convertd --output cat" ] && exec cat {log}\n')
    journal.chmod(0o755)
    key = _prepare(f"sqlite:///{folder / 'data' / 'convertd.db'}")
    with log.open("w") as told, _serving(folder, told.fileno(), log) as url:
        asked = plain.get(f"{url}/api/v1/account", headers={"Authorization": f"Bearer {key}"})
        environment = {"KEY": key, "REQUEST": asked.headers["X-Request-Id"], "PATH": f"{folder}:{os.environ['PATH']}"}
        run = _shell(folder, **environment)

        assert run(_commands("Give credits")) == f"{_CREDITS + 500}\n"
        rotated = _commands("Rotate").replace("localhost:8000", url.removeprefix("http://"))
        assert '"api_key": "cvd_live_' in run(rotated.replace("curl ", "curl --fail --no-progress-meter "))
        assert "/api/v1/account status=200" in run(_commands("Find"))


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
