"""The TLS files of a cluster: who may connect to whom, and what a second run keeps."""

import ssl
from pathlib import Path

import pytest

from tests.support.command_line import invoke
from web.workers.certificates import ROLES, create_certificates


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
