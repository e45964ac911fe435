"""`convertd serve` and `convertd worker` as processes: conversions on a worker, and none without one."""

import os
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import httpx
import pytest
from PIL import Image

from benchmarks.processes import ConvertdServer, ConvertdWorker, SchedulerProcess
from storage.ids import new_id
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually
from tests.support.servers.load import CREDITS, create_accounts, sqlite_url
from tests.support.servers.s3_server import S3Server
from web.workers.certificates import create_certificates

_README = Path(__file__).parents[3] / "config" / "README.md"


def tls_variables(folder: Path, process: str) -> dict[str, str]:
    """The variables of README for a process, `scheduler`, `client` or `worker`, whose files are in this folder."""
    lines = re.findall(r"^(DASK_DISTRIBUTED__COMM__\w+)=(\S+)$", _README.read_text(), re.MULTILINE)
    return {
        name.replace("CLIENT", process.upper()): value.replace("/etc/convertd/cluster", str(folder))
        for name, value in lines
    }


def certified(folder: Path) -> list[dict[str, str]]:
    """Creates certificates. Returns the variables of a scheduler, a server and a worker."""
    create_certificates(folder, days=1)
    processes = {"scheduler": "scheduler", "server": "client", "worker": "worker"}
    return [tls_variables(folder / role, process) for role, process in processes.items()]


def assert_certificate_required(port: int, authority: Path) -> None:
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", port)) as connection:
        encrypted = context.wrap_socket(connection)
        with pytest.raises(ssl.SSLError, match="certificate required"), encrypted:
            encrypted.recv(1)


def noise() -> bytes:
    """A BMP of 6.75 MB whose PNG is as large."""
    with BytesIO() as file:
        Image.frombytes("RGB", (1500, 1500), os.urandom(3 * 1500 * 1500)).save(file, "bmp")
        return file.getvalue()


def transfers(store: S3Server, prefix: str) -> Counter[str]:
    """The requests for contents by server and worker: of a server without signed URLs, in parts if more than 5 MiB."""
    lines = [line for line in store.log().splitlines() if f"/{prefix}/" in line]
    kinds = {
        "server reads": r"GET [^?]* HTTP",
        "server writes in parts": r"POST [^?]*\?uploads",
        "worker reads": r"GET .*X-Amz-Signature=",
        "worker writes": r"PUT .*/result_.*X-Amz-Signature=",
    }
    return Counter(kind for line in lines for kind, pattern in kinds.items() if re.search(pattern, line))


def request(
    api: str, auth: dict[str, str], path: str, content: bytes | None, target: str, **headers: str
) -> httpx.Response:
    """Posts a file, or JSON without one, with an output format if that is not empty."""
    data = {"output_format": target} if target else {}
    body = {"files": {"file": ("photo.png", content)}, "data": data} if content else {"json": data}
    return http.post(f"{api}{path}", headers={**auth, **headers}, timeout=60, **body)


def check_transfers(post: Callable[..., httpx.Response], store: S3Server, prefix: str) -> None:
    """Contents travel between worker and store, unless they come from the client or go to it."""
    content = noise()
    file_id = post("/files/upload", content, "").json()["data"]["file_id"]
    before = transfers(store, prefix)
    stored = post(f"/files/{file_id}/convert", None, "png")
    assert (stored.status_code, stored.json()["data"]["original_size"]) == (200, len(content))
    of_stored = transfers(store, prefix)
    assert of_stored - before == {"worker reads": 1, "worker writes": 1}

    keyed = post("/convert", content, "png", **{"Idempotency-Key": "key"})
    assert keyed.content[1:4] == b"PNG"
    of_keyed = transfers(store, prefix) - of_stored
    assert of_keyed == {"server writes in parts": 1, "worker reads": 1, "worker writes": 1, "server reads": 1}
    again = post("/convert", content, "png", **{"Idempotency-Key": "key"})
    assert (again.content, again.headers["ETag"]) == (keyed.content, keyed.headers["ETag"])


@pytest.mark.slow
def test_a_server_converts_on_a_worker(tmp_path: Path, s3_server: S3Server) -> None:
    """Over TLS, and with files on S3 that the worker has no credentials of."""
    (tmp_path / "server").mkdir()
    of_scheduler, of_server, of_worker = certified(tmp_path / "tls")
    with SchedulerProcess(of_scheduler) as scheduler:
        prefix = new_id("cluster")
        settings = {"CONVERTD_CLUSTER": scheduler.address, "CONVERTD_BLOB_URL": s3_server.url(prefix)}
        with ConvertdServer(tmp_path / "server", {**settings, **s3_server.environment, **of_server}) as server:
            (key,) = create_accounts(sqlite_url(tmp_path / "server"), 1)
            auth = {"Authorization": f"Bearer {key}"}

            post = partial(request, server.api, auth)

            def convert(content: bytes, target: str) -> httpx.Response:
                return post("/convert", content, target)

            def ready() -> httpx.Response:
                return http.get(f"{server.url}/readyz")

            refused = convert(image(), "webp")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            assert int(refused.headers["Retry-After"]) > 0
            assert ready().json()["error"]["details"]["cluster"]["connected"]

            with ConvertdWorker(tmp_path / "worker", scheduler.address, of_worker, 1, "2GiB") as worker:
                assert eventually(lambda: ready().status_code == 200, 30)
                small = convert(image(), "webp")
                assert (small.status_code, small.content[8:12]) == (200, b"WEBP")
                large = convert(image(size=(1500, 1500)), "bmp")
                assert (large.status_code, large.content[:2]) == (200, b"BM")
                assert ready().json()["cluster"]["usable"] == 1
                assert "1 of version" in http.get(f"{server.url}/status").text
                check_transfers(post, s3_server, prefix)
                assert worker.stop() == 0

            assert_certificate_required(scheduler.port, tmp_path / "tls" / "server" / "ca.pem")
            account = http.get(f"{server.api}/account", headers=auth).json()["data"]
            assert account["credits_remaining"] == CREDITS - 4
