"""The servers of the documentation that receive webhooks take genuine messages, and refuse others."""

import os
import shutil
import socket
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType

import httpx
import pytest
from standardwebhooks import Webhook

from tests.support.servers.in_process import eventually
from web.docs.code_samples import WEBHOOK_SAMPLES

pytestmark = pytest.mark.long

_COMMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Python": (sys.executable, "receiver.py"),
        "JavaScript": ("node", "receiver.mjs"),
        "PHP": ("sh", "-c", "exec php -S 127.0.0.1:$PORT receiver.php"),
        "Go": ("go", "run", "receiver.go"),
        "Java": ("java", "receiver.java"),
    }
)
_BODY = '{"type":"job.completed","timestamp":"now","data":{"job_id":"job_1","name":"Zoë"}}'


def test_there_is_one_in_each_language() -> None:
    assert {*WEBHOOK_SAMPLES} == {*_COMMANDS}


@pytest.mark.parametrize("language", [name for name, command in _COMMANDS.items() if shutil.which(command[0])])
def test_a_receiver(language: str, tmp_path: Path) -> None:
    secret = f"whsec_{b64encode(os.urandom(24)).decode()}"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = _COMMANDS[language]
    (tmp_path / command[-1].split()[-1]).write_text(WEBHOOK_SAMPLES[language])
    environment = {**os.environ, "WEBHOOK_SECRET": secret, "PORT": str(port)}
    output = tmp_path / "output.txt"

    def post(body: str, signed: str = _BODY, at: datetime | None = None, of: str = secret) -> int:
        when = at or datetime.now(UTC)
        signature = Webhook(of).sign("msg_1", when, signed)
        named = {"id": "msg_1", "timestamp": str(int(when.timestamp())), "signature": f"v1,AAAA {signature}"}
        headers = {f"webhook-{name}": value for name, value in named.items()}
        return httpx.post(f"http://127.0.0.1:{port}/", content=body.encode(), headers=headers).status_code

    def answers() -> bool:
        try:
            return httpx.post(f"http://127.0.0.1:{port}/").status_code == 400
        except httpx.TransportError:
            return False

    with output.open("w") as printed:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=printed, stderr=subprocess.DEVNULL, start_new_session=True
        )
    try:
        assert eventually(answers)
        assert post(_BODY) == 204
        assert post(_BODY.replace("job_1", "job_2")) == 400
        assert post(_BODY, at=datetime.now(UTC) - timedelta(hours=1)) == 400
        assert post(_BODY, of=f"whsec_{b64encode(os.urandom(24)).decode()}") == 400
        assert eventually(lambda: "job_1" in output.read_text())
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    (line,) = [line for line in output.read_text().splitlines() if "msg_1" in line]
    assert "job.completed" in line
