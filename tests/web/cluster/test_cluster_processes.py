"""`convertd serve` and `convertd worker` as processes, and the TLS files of a cluster."""

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
from tests.support.command_line import invoke
from tests.support.requests import http
from tests.support.samples.forms import image
from tests.support.servers.in_process import eventually
from tests.support.servers.load import CREDITS, create_accounts, sqlite_url
from tests.support.servers.stores import S3Server
from web.workers.certificates import ROLES, create_certificates

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
@pytest.mark.long
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    created = tmp_path_factory.mktemp("certificates") / "cluster"
    create_certificates(created, days=1)
    return created


def _context(folder: Path, purpose: ssl.Purpose) -> ssl.SSLContext:
    """A context as Dask makes them: both sides have a certificate, and names are not checked."""
    context = ssl.create_default_context(purpose, cafile=folder / "ca.pem")
    context.verify_mode, context.check_hostname = ssl.CERT_REQUIRED, False
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return context


def _connect(client: Path, server: Path) -> None:
    """Lets a process connect to another, in memory. Raises SSLError."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        _context(client, ssl.Purpose.SERVER_AUTH).wrap_bio(down, up),
        _context(server, ssl.Purpose.CLIENT_AUTH).wrap_bio(up, down, server_side=True),
    ]
    while sides:
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                pass


@pytest.mark.parametrize("client", ROLES)
def test_processes_connect_to_schedulers_and_workers(folder: Path, client: str) -> None:
    for server in ("scheduler", "worker"):
        _connect(folder / client, folder / server)
    with pytest.raises(ssl.SSLError, match="unsuitable certificate purpose"):
        _connect(folder / client, folder / "server")


def test_certificates_of_another_cluster_are_refused(folder: Path, tmp_path: Path) -> None:
    create_certificates(tmp_path / "other", days=1)
    for client, server in ((folder, tmp_path / "other"), (tmp_path / "other", folder)):
        with pytest.raises(ssl.SSLCertVerificationError):
            _connect(client / "server", server / "scheduler")


def test_keys_are_private(folder: Path) -> None:
    keys = [*folder.glob("*/key.pem")]
    assert {path.parent.name for path in keys} == {"authority", *ROLES}
    assert {path.stat().st_mode & 0o777 for path in keys} == {0o600}
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o700}
    assert not (folder / "worker" / "authority").exists()


def test_the_command_creates_what_is_missing(tmp_path: Path) -> None:
    command = ("cluster", "certificates", str(tmp_path / "made"))
    first, again = (invoke(tmp_path, *command) for _ in range(2))
    assert (first.exit_code, len(first.stdout.splitlines())) == (0, 4)
    assert (again.exit_code, again.stdout) == (0, "")
    for file in (tmp_path / "made" / "worker").iterdir():
        file.unlink()
    (tmp_path / "made" / "worker").rmdir()
    assert invoke(tmp_path, *command).stdout == f"{tmp_path}/made/worker\n"
    _connect(tmp_path / "made" / "server", tmp_path / "made" / "worker")


def test_a_folder_without_its_authority(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    done = invoke(tmp_path, "cluster", "certificates", str(tmp_path))
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{tmp_path}/authority is missing" in done.stderr
