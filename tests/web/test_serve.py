"""The server as a process: it says where it listens, and ends in good order."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.support import http
from tests.support.servers import eventually, made_key
from tests.support.web_samples import FORM, TARGET, form, part
from tests.support.web_samples import picture as picture_of

PROGRAM = (
    "import asyncio; from config.settings import load_settings; from web.app import serve;"
    "asyncio.run(serve(load_settings(), '127.0.0.1', 0))"
)


@contextmanager
def process(data_dir: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    environment = {**os.environ, "CONVERTD_DATA_DIR": str(data_dir), "CONVERTD_WORKERS": "1"}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stderr=subprocess.PIPE, text=True
    ) as running:
        lines: list[str] = []
        assert running.stderr is not None
        reading = threading.Thread(target=lines.extend, args=(running.stderr,))
        reading.start()
        try:
            yield running, lines
        finally:
            running.kill()
            reading.join()


def test_a_request_that_runs_is_finished_on_sigterm(tmp_path: Path) -> None:
    key = made_key(tmp_path)
    with process(tmp_path) as (running, lines):
        assert eventually(lambda: any("listening on" in line for line in lines), 20)
        found = re.search(r"listening on (http://\S+:\d+)", "".join(lines))
        assert found
        body = form(part(picture_of("BMP", (2500, 2000)), 'name="file"; filename="private.bmp"'), TARGET)
        answers: list[httpx.Response] = []
        url = f"{found[1]}/api/v1/convert?token=secret"
        headers = {**FORM, "Authorization": f"Bearer {key}"}

        def ask() -> None:
            answers.append(http.post(url, content=body, headers=headers, timeout=30))

        client = threading.Thread(target=ask)
        client.start()
        assert eventually(lambda: any((tmp_path / "jobs").glob("*/result.*")))
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
        client.join()
        assert [answer.status_code for answer in answers] == [200]
        assert answers[0].headers["Connection"] == "close"
        assert not list((tmp_path / "jobs").iterdir())
    log = "".join(lines)
    assert "POST /api/v1/convert status=200" in log
    assert "Traceback" not in log
    assert "private" not in log
    assert "secret" not in log
