"""The service that the tests are about: at CONVERTD_URL, or one that they start."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conformance.service import Keys, Service, png


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """The service, with a key that has credits."""
    url, key = os.environ.get("CONVERTD_URL"), os.environ.get("CONVERTD_API_KEY")
    if url is None:
        with _started(tmp_path_factory.mktemp("service")) as own, own.client:
            yield own
        return
    assert key, "CONVERTD_API_KEY is not set"
    remote = Service(url.rstrip("/").removesuffix("/api/v1"), Keys(key))
    with remote.client:
        yield remote


@contextmanager
def _started(folder: Path) -> Iterator[Service]:
    """A server of the command `convertd` beside this Python, with accounts of all kinds."""
    command = Path(sys.executable).with_name("convertd")
    if not command.exists():
        pytest.skip("CONVERTD_URL is not set, and convertd is not installed beside this Python")
    settings = {"DATA_DIR": str(folder), "METRICS_PORT": "0", "SIMULATED_CHECKOUT": "true", "WORKERS": "2"}
    settings |= {"RATE_LIMIT_FREE": "100000", "RATE_LIMIT_ANONYMOUS": "100000", "SANDBOX": "best_effort"}
    environment = {**os.environ, **{f"CONVERTD_{name}": value for name, value in settings.items()}}

    def account(name: str, *options: str) -> str:
        arguments = [
            str(command),
            "account",
            "create",
            "--email",
            f"{name}@example.com",
            "--name",
            name,
            "--json",
            *options,
        ]
        made = subprocess.run(arguments, env=environment, check=True, capture_output=True, text=True)
        return str(json.loads(made.stdout)["api_key"])

    keys = Keys(
        account("main", "--credits", "10000"),
        account("unverified", "--unverified"),
        account("empty", "--credits", "0"),
        folder / "outbox",
    )
    log = folder / "log"
    with log.open("w") as stream:
        process = subprocess.Popen([command, "serve", "--port", "0"], env=environment, stderr=stream)
    try:
        while not (found := re.search(r"listening on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        yield Service(found[1], keys)
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.fixture(scope="session")
def jpeg(service: Service) -> bytes:
    """A JPEG of 8x6 pixels."""
    response = service.convert(png(), "jpeg")
    assert response.status_code == 200, response.text
    return response.content
