"""A full blob store and a full database: requests are refused without a charge, and no files are left."""

import logging
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path

import httpx
import pytest

from config.logs import OutageFilter, TextFormatter
from storage.tables import ledger_audit
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually

_JSON = {"Accept": "application/json"}


def _fill(folder: Path) -> Path:
    filler = folder / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return filler


def _refused(server: Running, response: httpx.Response) -> None:
    problem(response, 503, "not_ready", reason="disk_full", retryable=True)
    assert int(response.headers["Retry-After"]) > 0
    assert eventually(lambda: not server.work_files())


@pytest.fixture
def lines() -> Iterator[Callable[[], list[str]]]:
    """The lines of the log without those about payments: warnings and errors."""
    stream, root = StringIO(), logging.getLogger()
    handler = logging.StreamHandler(stream)
    handler.setLevel(logging.WARNING)
    handler.addFilter(OutageFilter())
    handler.setFormatter(TextFormatter())
    root.addHandler(handler)
    yield lambda: [line for line in stream.getvalue().splitlines() if "convertd.payments" not in line]
    root.removeHandler(handler)


def _balance(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["meta"]["credits_remaining"])


def _sound(server: Running) -> bool:
    return not server.database.run_blocking(ledger_audit.check)


def test_files_that_cannot_be_stored(
    servers: Servers, small_disk: Path, data_dir: Path, lines: Callable[[], list[str]]
) -> None:
    data_dir.mkdir()
    (data_dir / "blobs").symlink_to(small_disk)
    with servers.running(data_dir) as server:
        key, filler = server.account(5), _fill(small_disk)
        form = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}, "headers": _JSON}

        _refused(server, server.request("POST", "/convert", key, **form))
        for _ in range(3):
            _refused(server, server.request("POST", "/files/upload", key, files=form["files"]))

        assert [line.partition(" request_id=")[0][20:] for line in lines()] == [
            "ERROR convertd.web request failed: No space left on device"
        ]
        assert list(small_disk.iterdir()) == [filler]
        assert _balance(server, key) == 5
        filler.unlink()
        assert server.request("POST", "/convert", key, **form).status_code == 200
        assert _balance(server, key) == 4
        assert _sound(server)


def test_charges_that_cannot_be_written(
    servers: Servers, small_disk: Path, data_dir: Path, lines: Callable[[], list[str]]
) -> None:
    with servers.running(data_dir, database_url=f"sqlite:///{small_disk / 'convertd.db'}") as server:
        key, filler = server.account(5), _fill(small_disk)
        form = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}, "headers": _JSON}

        for _ in range(3):
            _refused(server, server.request("POST", "/convert", key, **form))

        assert len(lines()) == 1
        assert "The disk of the database is full." in lines()[0]
        filler.unlink()
        assert _balance(server, key) == 5
        assert not list((data_dir / "blobs").iterdir())
        assert server.request("POST", "/convert", key, **form).status_code == 200
        assert _balance(server, key) == 4
        assert _sound(server)


def test_a_database_that_another_keeps_locked(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        key = server.account(5)
        assert server.request("GET", "/account", key).status_code == 200
        other = sqlite3.connect(data_dir / "convertd.db", isolation_level=None)
        other.execute("BEGIN EXCLUSIVE")

        response = server.request(
            "POST", "/convert", key, files={"file": ("a.png", sample("png"))}, data={"output_format": "webp"}
        )

        other.execute("ROLLBACK")
        other.close()
        problem(response, 503, "not_ready", retryable=True)
        assert int(response.headers["Retry-After"]) > 0
        assert _balance(server, key) == 5
        assert _sound(server)
        assert eventually(lambda: not server.work_files())
