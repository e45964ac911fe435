"""A server that is killed during a batch: a repeat with the same idempotency key is charged once."""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger_audit
from tests.support.requests import http
from tests.support.samples.forms import picture

pytestmark = pytest.mark.slow

_FILES, _CREDITS = 12, 50


def _account(transaction: Transaction) -> str:
    account = accounts.create(transaction, "batch@example.com", "Batch", free_credits=_CREDITS)
    return api_keys.issue(transaction, account.id, "Batch").text


def _used(transaction: Transaction) -> tuple[int, int]:
    account = accounts.find(transaction, "batch@example.com")
    assert account is not None
    return account.credits_used_total, account.credits_held


def _convert_batch(api: httpx.Client, batch: str, body: Mapping[str, object]) -> httpx.Response:
    return api.post(f"/batch/{batch}/convert", json=body, headers={"Idempotency-Key": "once"}, timeout=60)


def _convert_until_killed(api: httpx.Client, batch: str, body: Mapping[str, object]) -> None:
    with suppress(httpx.TransportError):
        _convert_batch(api, batch, body)


def test_a_batch_that_is_cut_off_is_charged_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'convertd.db'}"
    database = Database(url)
    headers = {"Authorization": f"Bearer {database.run_blocking(_account)}"}
    server = ConvertdServer(tmp_path)
    with server, http.Client(base_url=server.api, headers=headers) as api:
        batch = api.post("/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
        large = picture("JPEG", (700, 500))
        files = [api.post(f"/batch/{batch}/files", files={"file": large}).json()["data"] for _ in range(_FILES)]
        body = {"output_format": "png", "file_ids": [file["file_id"] for file in files]}
        client_thread = threading.Thread(target=_convert_until_killed, args=(api, batch, body))
        client_thread.start()
        while database.run_blocking(_used)[0] < 3:
            time.sleep(0.01)
        assert api.get(f"/batch/{batch}").json()["data"]["status"] == "processing"
        server.process.kill()
        client_thread.join()
        before = database.run_blocking(_used)[0]
    assert 3 <= before < _FILES
    with server, http.Client(base_url=server.api, headers=headers) as api:
        assert api.get(f"/batch/{batch}").json()["data"]["status"] == "partial"
        data = _convert_batch(api, batch, body).json()["data"]
        again = _convert_batch(api, batch, body)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json()["data"] == data
        assert (data["successful"], data["failed"]) == (_FILES, 0)
        assert api.get(f"/batch/{batch}").json()["data"]["status"] == "completed"
        for entry in data["results"]:
            path = entry["download_url"].removeprefix("/api/v1")
            assert len(api.get(path).content) == entry["processed_size"]
    assert database.run_blocking(_used) == (_FILES, 0)
    assert database.run_blocking(ledger_audit.check) == ()
    database.close()
