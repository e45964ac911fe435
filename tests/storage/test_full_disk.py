"""A PostgreSQL server with a full disk: transactions fail as a whole and succeed again once there is space."""

import errno
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from storage.database import Database
from storage.tables import accounts, ledger, ledger_audit
from storage.tables.ledger import Hold
from tests.conftest import MakeUrl
from tests.support.samples.storage import OWNER, USE, open_account

_SIZE = "4m"


@pytest.fixture
def small_disk(postgres: str) -> Iterator[Path]:
    """A small file system with the tablespace `small`."""
    with tempfile.TemporaryDirectory(prefix="convertd-disk-") as name, psycopg.connect(postgres, autocommit=True) as db:
        folder = Path(name) / "disk"
        folder.mkdir()
        folder.parent.chmod(0o755)
        ((data,),) = db.execute("SHOW data_directory").fetchall()
        owner = Path(data).stat()
        options = f"size={_SIZE},mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if os.geteuid() or subprocess.run(mount, stderr=subprocess.DEVNULL, check=False).returncode:
            pytest.skip("file systems cannot be mounted here")
        db.execute(f"CREATE TABLESPACE small LOCATION '{folder}'".encode())
        yield folder
        db.execute("DROP TABLESPACE small")
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _holds_until_it_is_full(database: Database, account: str) -> list[Hold]:
    holds = list[Hold]()
    while True:
        try:
            holds.append(database.run_blocking(ledger.reserve, account, 1, OWNER, 60))
        except OSError as full:
            if full.errno != errno.ENOSPC:
                raise
            return holds


def test_a_full_disk_rolls_back_and_recovers(small_disk: Path, new_postgres_url: MakeUrl) -> None:
    url = f"{new_postgres_url()}%20-cdefault_tablespace%3Dsmall"
    database = Database(url)
    try:
        account = open_account(database, 100_000).id
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))

        holds = _holds_until_it_is_full(database, account)

        found = database.run_blocking(accounts.get, account)
        assert (found.credits_remaining, found.credits_held) == (100_000 - len(holds), len(holds))
        filler.unlink()
        more = database.run_blocking(ledger.reserve, account, 1, OWNER, 60)
        for hold in (*holds, more):
            database.run_blocking(ledger.settle, hold, USE)
        assert not database.run_blocking(ledger_audit.check)
    finally:
        database.close()
        with psycopg.connect(url, autocommit=True) as db:
            ((schema,),) = db.execute("SELECT current_schema()").fetchall()
            db.execute(f"DROP SCHEMA {schema} CASCADE".encode())
