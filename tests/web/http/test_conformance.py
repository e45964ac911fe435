"""The conformance tests against servers that are set up as in production."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.processes import ConvertdServer, ConvertdWorker, RedisServer, SchedulerProcess
from tests.support.servers.load import create_accounts, sqlite_url
from tests.support.servers.proxies import HaproxyServer, NginxServer

_ROOT = Path(__file__).parents[3]


@pytest.mark.long
@pytest.mark.parametrize("way", ["processes", "nginx", "haproxy", "cluster"])
def test_the_service_conforms(way: str, tmp_path: Path, redis_server: RedisServer) -> None:
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    settings = {"CONVERTD_REDIS_URL": redis_server.url, "CONVERTD_TRUSTED_PROXIES": "127.0.0.1"}
    trust: dict[str, str] = {}
    with ExitStack() as stack:
        if way == "cluster":
            scheduler = stack.enter_context(SchedulerProcess())
            files = {"CONVERTD_BLOB_URL": (tmp_path / "blobs").as_uri()}
            settings |= {"CONVERTD_CLUSTER": scheduler.address, **files}
            stack.enter_context(ConvertdWorker(tmp_path / "worker", scheduler.address, files))
        server = ConvertdServer(tmp_path, settings, processes=1 if way == "cluster" else 2)
        url = stack.enter_context(server).url
        if way == "nginx":
            url = stack.enter_context(NginxServer(tmp_path, server.port)).url
            trust = {"SSL_CERT_FILE": str(tmp_path / "localhost.pem")}
        elif way == "haproxy":
            url = stack.enter_context(HaproxyServer(tmp_path, server.port)).url
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", _ROOT / "tests" / "conformance"],
            env={**os.environ, **trust, "CONVERTD_URL": url, "CONVERTD_API_KEY": key},
            capture_output=True,
            text=True,
            check=False,
        )
    print(done.stdout)
    assert done.returncode == 0
