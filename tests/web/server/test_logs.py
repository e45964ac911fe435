"""The log of a server: one line per request, request ids, and no secrets."""

import re
from pathlib import Path

from engine.errors import OutOfMemory, WorkerCrashed
from tests.support.executors.fake import FailingExecutor
from tests.support.requests import http
from tests.support.requests.log_lines import captured_log, entry_of
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers

CANARY = "canary"


def test_a_conversion_is_one_line(server: Running) -> None:
    with captured_log() as lines:
        response = server.convert(sample("png"), "webp", quality="80")
        entry = entry_of(lines, response)
    assert (entry["message"], entry["status"], entry["code"]) == ("POST /api/v1/convert", 200, None)
    assert (entry["input_format"], entry["output_format"], entry["engine"]) == ("png", "webp", "in_process")
    assert (entry["credits"], entry["sent"]) == (1, len(response.content))
    assert entry["received"] > len(sample("png"))
    assert re.fullmatch(r"acct_\w{22}", entry["account"])
    assert isinstance(entry["ms"], int)


def test_a_conversion_with_warnings(server: Running) -> None:
    with captured_log() as lines:
        assert entry_of(lines, server.convert(sample("jpeg"), "png", quality="80"))["warnings"] == "quality_ignored"


def test_a_batch_is_one_line(server: Running) -> None:
    batch = server.request("POST", "/batch", json={"output_format": "gif"}).json()["data"]["batch_id"]
    files = [server.upload(sample("png"), path=f"/batch/{batch}/files")["file_id"] for _ in range(2)]
    with captured_log() as lines:
        body = {"file_ids": files, "output_format": "gif"}
        entry = entry_of(lines, server.request("POST", f"/batch/{batch}/convert", json=body))
    assert (entry["message"], entry["credits"]) == ("POST /api/v1/batch/{}/convert", 2)


def test_failures_are_logged_with_their_cause(server: Running) -> None:
    with captured_log() as lines:
        response = server.convert(sample("png")[:100], "webp")
        assert entry_of(lines, response)["code"] == "processing_failed"
        entry = entry_of(lines, response, "convertd.conversions")
    assert (entry["reason"], entry["input_format"], entry["output_format"]) == ("corrupt_input", "png", "webp")
    assert re.match(r"\w[\w.]*: .+ \(\S+\.py:\d+\)$", entry["cause"])
    assert entry["cause"] not in response.text


def test_a_killed_job_is_logged_with_its_request(servers: Servers, data_dir: Path) -> None:
    dying = FailingExecutor(WorkerCrashed("Crashed.", details={"exit_code": -11}), OutOfMemory("Killed."))
    with servers.running(data_dir, dying) as server, captured_log() as lines:
        crashed = entry_of(lines, server.convert(sample("png")), "convertd.conversions")
        killed = entry_of(lines, server.convert(sample("png")), "convertd.conversions")
    assert (crashed["reason"], crashed["exit_code"]) == ("worker_crashed", -11)
    assert killed["reason"] == "out_of_memory"


def test_secrets_and_private_data_are_not_logged(servers: Servers, server: Running) -> None:
    name = f"{CANARY}.png"
    with captured_log() as lines:
        answers = [
            server.convert(sample("png"), "webp", name=name),
            server.convert(sample("png")[:100], "webp", name=name),
            server.convert(CANARY.encode(), CANARY, name=name, headers={"Idempotency-Key": CANARY}),
            server.request("POST", "/pdf/delete-pages", files={"file": (name, b"%PDF-1.7")}, data={"password": CANARY}),
            server.request("GET", f"/files/{CANARY}"),
            http.get(f"{server.url}/{CANARY}?{CANARY}={CANARY}", headers={"User-Agent": CANARY, "Cookie": CANARY}),
            http.get(f"{server.api}/account", headers={"Authorization": f"Bearer cvd_live_{CANARY}"}),
            http.get(f"{server.api}/verify?token={CANARY}"),
            http.get(f"{server.api}/verify?token={'ca' * 32}", headers={"Accept": "application/json"}),
            http.post(f"{server.api}/register", json={"email": f"{CANARY}@example.com", "name": CANARY}),
            http.post(f"{server.api}/webhooks/stripe", content=CANARY, headers={"Stripe-Signature": CANARY}),
            http.post(f"{server.url}/dashboard/sign-in", data={"key": f"cvd_live_{CANARY}"}),
        ]
        server.upload(sample("png"), name=name)
        for response in answers:
            entry_of(lines, response)
    logged = "\n".join(text for text in lines.texts if "outbox" not in text and "convertd.email" not in text)
    assert CANARY not in logged.lower()
    assert "ca" * 32 not in logged
    assert server.key not in logged


def test_no_secret_in_a_traceback(servers: Servers, data_dir: Path) -> None:
    secrets = (
        f"postgresql://me:{CANARY}@db/convertd",
        f"redis://:{CANARY}@cache",
        f"{CANARY}@example.com",
        f"cvd_live_{CANARY}",
        f"sk_live_{CANARY}",
        f"whsec_{CANARY}",
        f"token={CANARY}",
    )
    executor = FailingExecutor(*(RuntimeError(secret) for secret in secrets))
    with servers.running(data_dir, executor) as server, captured_log() as lines:
        for _ in secrets:
            entry = entry_of(lines, server.convert(sample("png")), "convertd.web")
            assert "RuntimeError" in entry["traceback"]
    assert CANARY not in "\n".join(lines.texts)
