"""Expired files cannot be read and are deleted, also after failures."""

import os
import time
from pathlib import Path

from storage.database import Transaction
from storage.tables import models
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Servers, eventually


def blobs(data_dir: Path) -> list[Path]:
    return [path for path in (data_dir / "blobs").rglob("*") if path.is_file()]


def _rows(transaction: Transaction) -> int:
    return len(transaction.all(models.File.select())) + len(transaction.all(models.Batch.select()))


def _expire(transaction: Transaction) -> None:
    for table in (models.File, models.Batch):
        transaction.execute(table.update(expires_at=1))


def test_nothing_is_left(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_paid=1000) as server:
        batch = server.request("POST", "/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
        file = server.upload(image(), path=f"/batch/{batch}/files")["file_id"]
        made = server.convert(image(), headers={"Accept": "application/json"}).json()["data"]["file_id"]
        server.request("POST", f"/batch/{batch}/convert", json={"output_format": "png", "file_ids": [file]})
        assert len(blobs(data_dir)) == 3
        assert server.request("GET", f"/files/{made}/download").status_code == 200
        server.database.run_blocking(_expire)
        for path in (f"/files/{made}", f"/files/{made}/download", f"/files/{file}", f"/batch/{batch}"):
            problem(server.request("GET", path), 404, "not_found")
    with servers.running(data_dir) as server:
        assert eventually(lambda: not blobs(data_dir))
        assert eventually(lambda: server.database.run_blocking(_rows) == 0)


def test_orphaned_blobs_are_deleted(servers: Servers, data_dir: Path) -> None:
    folder = data_dir / "blobs"
    folder.mkdir(parents=True)
    for name, age in (("blob_left", 7200), ("put_left", 7200), ("blob_young", 60)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    with servers.running(data_dir) as server:
        kept = server.convert(image(), headers={"Accept": "application/json"}).json()["data"]["file_id"]
        assert eventually(lambda: len(blobs(data_dir)) == 2)
        assert (folder / "blob_young").exists()
        assert server.request("GET", f"/files/{kept}/download").status_code == 200
