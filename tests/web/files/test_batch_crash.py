"""A server that is killed during a batch: a repeat with the same idempotency key is charged once."""

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually
from tests.support.servers.load import charged, create_accounts, sqlite_url

pytestmark = pytest.mark.slow

_FILES = 12


def _known(api: httpx.Client, batch: str) -> Any:
    return api.get(f"/batch/{batch}").json()["data"]


def _convert_batch(api: httpx.Client, batch: str, body: Mapping[str, object]) -> httpx.Response:
    return api.post(f"/batch/{batch}/convert", json=body, headers={"Idempotency-Key": "once"}, timeout=60)


def _convert_until_killed(api: httpx.Client, batch: str, body: Mapping[str, object]) -> None:
    with suppress(httpx.TransportError):
        _convert_batch(api, batch, body)


def test_a_batch_that_is_cut_off_is_charged_once(tmp_path: Path) -> None:
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    headers = {"Authorization": f"Bearer {key}"}
    server = ConvertdServer(tmp_path)
    with server, http.Client(base_url=server.api, headers=headers) as api:
        batch = api.post("/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
        large = image("JPEG", (700, 500))
        files = [api.post(f"/batch/{batch}/files", files={"file": large}).json()["data"] for _ in range(_FILES)]
        body = {"output_format": "png", "file_ids": [file["file_id"] for file in files]}
        client_thread = threading.Thread(target=_convert_until_killed, args=(api, batch, body))
        client_thread.start()
        assert eventually(lambda: _known(api, batch)["processed"] >= 3)
        assert _known(api, batch)["status"] == "processing"
        server.process.kill()
        client_thread.join()
    with server, http.Client(base_url=server.api, headers=headers) as api:
        before = _known(api, batch)
        assert before["status"] == "partial"
        assert 3 <= before["processed"] < _FILES
        data = _convert_batch(api, batch, body).json()["data"]
        again = _convert_batch(api, batch, body)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json()["data"] == data
        assert (data["successful"], data["failed"]) == (_FILES, 0)
        assert _known(api, batch)["status"] == "completed"
        for entry in data["results"]:
            path = entry["download_url"].removeprefix("/api/v1")
            assert len(api.get(path).content) == entry["processed_size"]
    assert charged(sqlite_url(tmp_path)) == _FILES
