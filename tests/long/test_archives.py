"""The ZIP of a whole batch of large results: what it needs of the server, and how soon it begins."""

import re
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.processes import ConvertdServer
from config.pricing import MIB
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.load import create_accounts, sqlite_url

pytestmark = pytest.mark.long

_FILES = 50
_RESULT = 2000 * 1500 * 3  # bytes of a BMP
_MAX_GROWTH = 16 * MIB
_FIRST_BYTE = 0.1  # seconds


def _peak_memory(pid: int) -> int:
    """The largest resident size of the process in bytes since `_forget_peak`."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def _forget_peak(pid: int) -> int:
    """Returns the resident size of the process in bytes."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return _peak_memory(pid)


def test_the_zip_of_a_batch_is_streamed(tmp_path: Path) -> None:
    """450 MB of 50 results, twice: the first byte within 0.1 s, and at most 16 MiB of memory more than before."""
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    archive = tmp_path / "batch.zip"
    with (
        ConvertdServer(tmp_path) as server,
        http.Client(base_url=server.api, headers={"Authorization": f"Bearer {key}"}, timeout=120) as client,
    ):
        batch = client.post("/batch", json={"output_format": "bmp"}).json()["data"]["batch_id"]
        content = image(size=(2000, 1500))

        def add(_number: int) -> str:
            response = client.post(f"/batch/{batch}/files", files={"file": ("photo.jpg", content)})
            return str(response.json()["data"]["file_id"])

        with ThreadPoolExecutor(4) as pool:
            ids = list(pool.map(add, range(_FILES)))
        body = {"output_format": "bmp", "file_ids": ids}
        assert client.post(f"/batch/{batch}/convert", json=body).json()["data"]["successful"] == _FILES
        delays = []
        for _ in range(2):
            before, started = _forget_peak(server.pid), time.monotonic()
            with client.stream("GET", f"/batch/{batch}/download") as response, archive.open("wb") as file:
                for number, block in enumerate(response.iter_raw()):
                    if not number:
                        delays.append(time.monotonic() - started)
                    file.write(block)
            assert archive.stat().st_size > _FILES * _RESULT
            assert _peak_memory(server.pid) < before + _MAX_GROWTH
        assert min(delays) < _FIRST_BYTE
    subprocess.run(["unzip", "-tq", archive], check=True, stdout=subprocess.DEVNULL)
