"""`convertd serve` as a process: log messages, the data folder, maintenance and shutdown."""

import asyncio
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from benchmarks.processes import ConvertdServer, child_processes
from storage.database import Database, Transaction
from storage.tables import accounts, backfills, deliveries, ledger, ledger_audit, models, webhook_models, webhooks
from storage.tables.deliveries import RETENTION
from storage.tables.ledger import Hold, ServerInstance
from storage.tables.webhooks import EVENTS
from tests.support.requests import http
from tests.support.samples.forms import FORM, TARGET, conversion_request, form, part
from tests.support.samples.forms import image as image_of
from tests.support.samples.storage import OWNER, USE, open_account, read_totals
from tests.support.servers.in_process import Servers, eventually, open_work_files
from tests.support.servers.load import create_accounts, sqlite_url
from web.services.operation.closing import complete
from web.services.operation.maintenance import lock_data_folder, server_instance

_ONE_WORKER = {"CONVERTD_WORKERS": "1"}


def _runs_job(data_dir: Path, pid: int) -> bool:
    """Whether there is a result in memory, and a large upload is open a second time for a job."""
    found = open_work_files(data_dir, pid)
    return len(found) == 3 and sum(name.startswith("/memfd") for name in found) == 1


def test_sigterm_waits_for_running_requests(tmp_path: Path) -> None:
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    systemd.settimeout(60)
    systemd.bind(f"\0{tmp_path}"[:100])
    notified = {"NOTIFY_SOCKET": f"@{tmp_path}"[:100]}
    with systemd, ConvertdServer(tmp_path, {**_ONE_WORKER, **notified}) as server:
        assert [systemd.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        body = form(part(image_of("BMP", (2500, 2000)), 'name="file"; filename="private.bmp"'), TARGET)
        responses: list[httpx.Response] = []
        url = f"{server.api}/convert"
        headers = {**FORM, "Authorization": f"Bearer {key}"}
        assert http.get(f"{server.api}/account?token=secret", headers=headers).status_code == 200

        def send_request() -> None:
            responses.append(http.post(url, content=body, headers=headers, timeout=30))

        client = threading.Thread(target=send_request)
        client.start()
        assert eventually(lambda: _runs_job(tmp_path, server.pid))
        assert server.stop() == 0
        client.join()
        assert [response.status_code for response in responses] == [200]
        assert responses[0].headers["Connection"] == "close"
        assert not list((tmp_path / "jobs").iterdir())
    log = server.log()
    assert "POST /api/v1/convert status=200" in log
    assert "Traceback" not in log
    assert "private" not in log
    assert "secret" not in log


@pytest.mark.long
def test_a_stopped_fork_server_is_replaced_and_does_not_delay_the_shutdown(tmp_path: Path) -> None:
    keys = create_accounts(sqlite_url(tmp_path), 6)  # each needs a process of its own
    body = form(part(image_of("PNG"), 'name="file"; filename="a.png"'), TARGET)
    with ConvertdServer(tmp_path, _ONE_WORKER) as server:
        responses: list[httpx.Response] = []

        def convert(key: str) -> None:
            headers = {**FORM, "Authorization": f"Bearer {key}"}
            # The server has stopped before it accepted the connection, or before it read the request.
            with suppress(httpx.NetworkError, httpx.RemoteProtocolError):
                responses.append(http.post(f"{server.api}/convert", content=body, headers=headers, timeout=60))

        def convert_together() -> list[threading.Thread]:
            threads = [threading.Thread(target=convert, args=(key,)) for key in keys]
            for thread in threads:
                thread.start()
            return threads

        _stop_fork_server(server.pid)
        for thread in convert_together():
            thread.join()
        assert len(responses) == len(keys)
        assert {response.status_code for response in responses} <= {200, 503}
        convert(keys[0])
        assert responses[-1].status_code == 200

        _stop_fork_server(server.pid)
        threads = convert_together()
        assert eventually(lambda: len(open_work_files(tmp_path, server.pid)) >= 2)
        assert server.stop() == 0
        for thread in threads:
            thread.join()
        assert {response.status_code for response in responses} <= {200, 503}


@pytest.mark.long
def test_a_killed_server_leaves_no_upload_and_the_next_removes_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as data_folder, TemporaryDirectory() as temporary:
        data_dir = Path(data_folder)
        for folder in (data_folder, temporary):
            Path(folder).chmod(0o711)
        monkeypatch.setenv("TMPDIR", temporary)
        workers = data_dir / "workers"
        (key,) = create_accounts(sqlite_url(data_dir), 1)
        with ConvertdServer(data_dir, _ONE_WORKER) as server:
            (base,) = workers.iterdir()
            assert list(base.iterdir())
            (supervisor,) = child_processes(server.pid)
            with _large_upload(data_dir, server, key):
                server.process.send_signal(signal.SIGSTOP)
                os.killpg(supervisor, signal.SIGKILL)  # before the server ends: it would remove the folders
                server.kill()
        assert list((data_dir / "jobs").iterdir()) == []
        assert list(base.iterdir())

        with ConvertdServer(data_dir, _ONE_WORKER) as server:
            assert not base.exists()
            assert len(list(workers.iterdir())) == 1
            assert not list(Path(temporary).iterdir())
            server.process.send_signal(signal.SIGIO)
            assert server.stop() == 0
        assert not list(workers.iterdir())


@contextmanager
def _large_upload(data_dir: Path, server: ConvertdServer, key: str) -> Iterator[None]:
    """An upload to the server that is not complete, but so large that it is on the disk, in files without names."""
    body = form(part(image_of("BMP", (1500, 1000)), 'name="file"; filename="a.bmp"'), TARGET)
    posting = f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {key}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(conversion_request(posting, body)[:-10])
        assert eventually(lambda: _on_disk(data_dir, server.pid))
        assert list((data_dir / "jobs").iterdir()) == []
        yield


def _on_disk(data_dir: Path, pid: int) -> bool:
    """Whether all uploads are on the disk."""
    found = open_work_files(data_dir, pid)
    return bool(found) and all(name.startswith(f"{data_dir}/jobs/") for name in found)


def _stop_fork_server(server: int) -> None:
    """Stops the process of the server's fork server that forks workers. The workers go on."""
    (supervisor,) = child_processes(server)
    os.kill(supervisor, signal.SIGSTOP)


async def test_failures_are_logged_and_late_work_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("lost")

    completed, late = asyncio.ensure_future(asyncio.sleep(0, "done")), asyncio.ensure_future(asyncio.sleep(60))
    await complete(completed, fail(), late, seconds=0.1)
    await asyncio.wait([late])
    assert (completed.result(), late.cancelled()) == ("done", True)
    (record,) = caplog.records
    assert record.exc_info
    assert str(record.exc_info[1]) == "lost"


def test_servers_run_backfills(servers: Servers, data_dir: Path) -> None:
    database = Database(f"sqlite:///{data_dir / 'convertd.db'}")
    account = open_account(database, 50).id
    database.run_blocking(ledger.settle, database.run_blocking(ledger.reserve, account, 1, OWNER), USE)
    database.run_blocking(Transaction.execute, models.UsageDay.delete())
    assert database.run_blocking(ledger_audit.check)
    for name in ("ended_holds", "usage_day"):
        database.run_blocking(Transaction.insert, models.Backfill.insert(name=name, position=""))
    with servers.running(data_dir):
        assert eventually(lambda: database.run_blocking(backfills.pending) == ())
        assert database.run_blocking(ledger_audit.check) == ()
    database.close()


def test_servers_delete_old_deliveries_and_secrets(servers: Servers, data_dir: Path) -> None:
    past = Database(f"sqlite:///{data_dir / 'convertd.db'}", clock=lambda: time.time() - RETENTION)
    account = open_account(past).id
    webhook = past.run_blocking(webhooks.add, account, "http://10.0.0.1/", EVENTS).webhook.webhook_id
    past.run_blocking(webhooks.replace_secret, webhook)
    past.run_blocking(deliveries.add, account, "job.completed", dict)
    past.run_blocking(webhooks.disable, webhook, "gone")
    with servers.running(data_dir):
        assert eventually(lambda: not past.run_blocking(Transaction.all, webhook_models.Delivery.select()))
        assert eventually(lambda: len(past.run_blocking(Transaction.all, webhook_models.SigningSecret.select())) == 1)
    past.close()


@pytest.fixture
def existing_dir(data_dir: Path) -> Path:
    data_dir.mkdir()
    return data_dir


def test_each_run_of_a_server_has_its_id(existing_dir: Path) -> None:
    first, second = server_instance(existing_dir), server_instance(existing_dir)

    assert first.server == second.server
    assert first.boot != second.boot


def test_a_copy_has_a_server_of_its_own(existing_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    original = server_instance(existing_dir)
    copy = Path(shutil.copytree(existing_dir, tmp_path / "copy"))
    copied = server_instance(copy)

    assert copied.server != original.server
    assert "copied or moved" in caplog.text
    assert (server_instance(existing_dir).server, server_instance(copy).server) == (original.server, copied.server)


@pytest.mark.parametrize("part", ["host", "device", "inode", None])
def test_each_part_of_the_place_tells_a_copy(existing_dir: Path, part: str | None) -> None:
    """On another machine, the folder can have the same device and inode."""
    folder = existing_dir.stat()
    place = {"host": os.uname().nodename, "device": folder.st_dev, "inode": folder.st_ino}
    if part is not None:
        place[part] = 1
    (existing_dir / "server").write_text("srv_1 {host} {device}:{inode}".format(**place))

    assert (server_instance(existing_dir).server == "srv_1") is (part is None)


def test_an_id_of_an_earlier_version_is_replaced(existing_dir: Path) -> None:
    """It does not tell whether the folder was copied."""
    (existing_dir / "server").write_text("srv_1")

    assert server_instance(existing_dir).server != "srv_1"


def test_a_server_in_a_copy_keeps_holds_of_the_first_one(servers: Servers, existing_dir: Path, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with servers.running(existing_dir, database_url=url) as first:
        ((name, boot),) = first.database.run_blocking(
            lambda transaction: transaction.rows(models.Server.select(models.Server.name, models.Server.boot))
        )
        shutil.copytree(existing_dir, tmp_path / "copy")
        hold = first.database.run_blocking(_hold, ServerInstance(name, boot))
        with servers.running(tmp_path / "copy", database_url=url) as second:
            assert read_totals(second.database).held == 1
        assert first.database.run_blocking(ledger.release, hold.account, hold.id) == 50


def _hold(transaction: Transaction, owner: ServerInstance) -> Hold:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=50, verified=True)
    return ledger.reserve(transaction, account.id, 1, owner)


def test_no_other_user_can_take_the_lock(existing_dir: Path) -> None:
    (existing_dir / "lock").touch(0o666)  # as earlier versions created it

    with lock_data_folder(existing_dir):
        assert (existing_dir / "lock").stat().st_mode & 0o777 == 0o600
