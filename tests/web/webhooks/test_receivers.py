"""What receives messages: the client's function, and the servers of the docs."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from standardwebhooks import Webhook

from benchmarks.processes import free_port
from convertd_client import InvalidWebhook, verify_webhook
from tests.support.requests import http
from tests.support.servers.in_process import eventually
from web.docs.code_samples import WEBHOOK_SAMPLES

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
OTHER = f"whsec_{base64.b64encode(bytes(32)).decode()}"
BODY = '{"type":"job.completed","timestamp":"2026-11-23T12:00:00Z","data":{"job_id":"job_1","tag":"größe"}}'


def headers(*secrets: str, body: str = BODY, age: float = 0) -> dict[str, str]:
    """The headers of a message that is `age` seconds old."""
    at = datetime.now(UTC) - timedelta(seconds=age)
    signatures = [Webhook(secret).sign("delivery_1", at, body) for secret in secrets]
    return {
        "Webhook-Id": "delivery_1",
        "Webhook-Timestamp": str(int(at.timestamp())),
        "Webhook-Signature": " ".join(signatures),
    }


@pytest.mark.parametrize("secrets", [(SECRET,), (OTHER, SECRET), (SECRET, OTHER)])
@pytest.mark.parametrize("body", [BODY, BODY.encode()])
def test_messages_are_verified(secrets: tuple[str, ...], body: str | bytes) -> None:
    message = verify_webhook(body, headers(*secrets, age=290), SECRET)
    assert (message.id, message.type, message.timestamp) == ("delivery_1", "job.completed", "2026-11-23T12:00:00Z")
    assert message.data == {"job_id": "job_1", "tag": "größe"}


@pytest.mark.parametrize(
    ("secret", "body", "age", "changes"),
    [
        (OTHER, BODY, 0, {}),
        (SECRET, BODY.replace("job_1", "job_2"), 0, {}),
        (SECRET, BODY, 0, {"Webhook-Id": "delivery_2"}),
        (SECRET, BODY, 310, {}),
        (SECRET, BODY, -310, {}),
        (SECRET, BODY, 0, {"Webhook-Timestamp": "now"}),
        (SECRET, BODY, 0, {"Webhook-Signature": "v2,x"}),
        (SECRET, BODY, 0, {"Webhook-Signature": "größe"}),
        (SECRET, BODY, 0, {"Webhook-Signature": None}),
        ("whsec_?", BODY, 0, {}),
    ],
)
def test_what_is_forged_or_old_is_refused(secret: str, body: str, age: float, changes: dict[str, str | None]) -> None:
    sent = {name: value for name, value in (headers(SECRET, age=age) | changes).items() if value is not None}
    with pytest.raises(InvalidWebhook):
        verify_webhook(body, sent, secret)


COMMANDS = {"Python": (sys.executable, "receiver.py"), "Node.js": ("node", "receiver.mjs")}


@contextmanager
def running(language: str, folder: Path, port: int) -> Iterator[Path]:
    """Runs the server of the docs. Yields the file with its output."""
    program, name = COMMANDS[language]
    (folder / name).write_text(WEBHOOK_SAMPLES[language])
    output = folder / "output"
    environment = os.environ | {"WEBHOOK_SECRET": SECRET, "PORT": str(port)}
    with output.open("w") as file:
        process = subprocess.Popen([program, name], cwd=folder, env=environment, stdout=file, stderr=file)
        try:
            yield output
        finally:
            process.terminate()
            process.wait(10)


def post(port: int, sent: dict[str, str]) -> httpx.Response | None:
    try:
        return http.post(f"http://127.0.0.1:{port}/", content=BODY.encode(), headers=sent, timeout=20)
    except httpx.ConnectError:
        return None


@pytest.mark.parametrize("language", WEBHOOK_SAMPLES)
def test_the_servers_of_the_docs(language: str, tmp_path: Path) -> None:
    port = free_port()
    with running(language, tmp_path, port) as output:
        assert eventually(lambda: post(port, {}) is not None, 30)
        answers = [post(port, sent) for sent in (headers(SECRET), headers(OTHER), headers(SECRET, age=310), {})]
        assert [answer and answer.status_code for answer in answers] == [204, 400, 400, 400]
        assert post(port, headers(OTHER, SECRET)) is not None
        assert eventually(lambda: output.read_text().count("delivery_1 job.completed") == 2)
        assert "job_1" in output.read_text()
