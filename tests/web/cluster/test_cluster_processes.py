"""`convertd serve` and `convertd worker` as processes: conversions on a worker, and none without one."""

import re
import socket
import ssl
from pathlib import Path

import httpx
import pytest

from benchmarks.processes import ConvertdServer, ConvertdWorker, SchedulerProcess
from tests.support.requests import http
from tests.support.samples.forms import picture
from tests.support.servers.in_process import eventually
from tests.support.servers.load import CREDITS, create_accounts, sqlite_url
from web.cluster.certificates import create_certificates

_README = Path(__file__).parents[3] / "config" / "README.md"


def tls_variables(folder: Path, process: str) -> dict[str, str]:
    """The variables of README for a process, `scheduler`, `client` or `worker`, whose files are in this folder."""
    lines = re.findall(r"^(DASK_DISTRIBUTED__COMM__\w+)=(\S+)$", _README.read_text(), re.MULTILINE)
    return {
        name.replace("CLIENT", process.upper()): value.replace("/etc/convertd/cluster", str(folder))
        for name, value in lines
    }


def assert_certificate_required(port: int, authority: Path) -> None:
    context = ssl.create_default_context(cafile=authority)
    context.check_hostname = False
    with socket.create_connection(("127.0.0.1", port)) as connection:
        encrypted = context.wrap_socket(connection)
        with pytest.raises(ssl.SSLError, match="certificate required"), encrypted:
            encrypted.recv(1)


@pytest.mark.slow
def test_a_server_converts_on_a_worker(tmp_path: Path) -> None:
    """Over TLS."""
    (tmp_path / "server").mkdir()
    create_certificates(tmp_path / "tls", days=1)
    of_scheduler, of_server, of_worker = (
        tls_variables(tmp_path / "tls" / role, process)
        for role, process in (("scheduler", "scheduler"), ("server", "client"), ("worker", "worker"))
    )
    with SchedulerProcess(of_scheduler) as scheduler:
        settings = {"CONVERTD_CLUSTER": scheduler.address, "CONVERTD_BLOB_URL": f"file://{tmp_path}/blobs"}
        with ConvertdServer(tmp_path / "server", {**settings, **of_server}) as server:
            (key,) = create_accounts(sqlite_url(tmp_path / "server"), 1)
            auth = {"Authorization": f"Bearer {key}"}

            def convert(content: bytes, target: str) -> httpx.Response:
                files, data = {"file": ("photo.png", content)}, {"output_format": target}
                return http.post(f"{server.api}/convert", files=files, data=data, headers=auth, timeout=60)

            def ready() -> httpx.Response:
                return http.get(f"{server.url}/readyz")

            refused = convert(picture(), "webp")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "not_ready")
            assert int(refused.headers["Retry-After"]) > 0
            assert ready().json()["error"]["details"]["cluster"]["connected"]

            with ConvertdWorker(tmp_path / "worker", scheduler.address, of_worker, 1, "2GiB") as worker:
                assert eventually(lambda: ready().status_code == 200, 30)
                small = convert(picture(), "webp")
                assert (small.status_code, small.content[8:12]) == (200, b"WEBP")
                large = convert(picture(size=(1500, 1500)), "bmp")
                assert (large.status_code, large.content[:2]) == (200, b"BM")
                assert ready().json()["cluster"]["usable"] == 1
                assert "1 of version" in http.get(f"{server.url}/status").text
                assert worker.stop() == 0

            assert_certificate_required(scheduler.port, tmp_path / "tls" / "server" / "ca.pem")
            account = http.get(f"{server.api}/account", headers=auth).json()["data"]
            assert account["credits_remaining"] == CREDITS - 2
