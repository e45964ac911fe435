"""`convertd serve` as a process: log messages and graceful shutdown."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import pytest

from benchmarks.processes import ConvertdServer, child_processes
from tests.support.requests import http
from tests.support.samples.forms import FORM, TARGET, conversion_request, form, part
from tests.support.samples.forms import image as image_of
from tests.support.servers.in_process import eventually, open_work_files
from tests.support.servers.load import create_accounts, sqlite_url

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
        assert http.get(f"{server.api}/account?token=secret", headers=headers).status_code == 400

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
    """Stops all processes of the server's fork server."""
    (supervisor,) = child_processes(server)
    for pid in (*child_processes(supervisor), supervisor):
        os.kill(pid, signal.SIGSTOP)
