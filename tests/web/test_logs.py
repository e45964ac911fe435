"""The log of a server: one line a request, the request's id on all that belongs to it, and nobody's secrets."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from config.logs import JsonFormatter, TextFormatter
from engine.errors import OutOfMemory, WorkerCrashed
from engine.executor import Job, JobLimits, JobResult
from tests.support import http
from tests.support.samples import sample
from tests.support.servers import Running, Servers, eventually

CANARY = "canary"
FORMATTERS = (TextFormatter(), JsonFormatter())


class Lines(logging.Handler):
    """What is logged, as both formats write it."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.entries: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == "httpx":  # the tests' own client
            return
        text, line = (formatter.format(record) for formatter in FORMATTERS)
        self.texts += [text, line]
        self.entries.append(json.loads(line))

    def of(self, request_id: str, logger: str = "convertd.access") -> list[dict[str, Any]]:
        """The entries of that logger about a request."""
        return [e for e in self.entries if (e["logger"], e.get("request_id")) == (logger, request_id)]


@contextmanager
def listening() -> Iterator[Lines]:
    lines, root = Lines(), logging.getLogger()
    level = root.level
    root.setLevel(logging.INFO)
    root.addHandler(lines)
    try:
        yield lines
    finally:
        root.removeHandler(lines)
        root.setLevel(level)


def one(lines: Lines, answer: httpx.Response, logger: str = "convertd.access") -> dict[str, Any]:
    """The one entry about the request that was answered so."""
    request_id = answer.headers["X-Request-Id"]
    assert eventually(lambda: bool(lines.of(request_id, logger)))
    (entry,) = lines.of(request_id, logger)
    return entry


class Dying:
    """An executor whose jobs die, of one thing or another."""

    def __init__(self, *errors: Exception) -> None:
        self._errors = iter(errors)

    async def run(self, job: Job, limits: JobLimits = JobLimits()) -> JobResult:
        raise next(self._errors)

    async def ready(self) -> bool:
        return True


def test_a_conversion_is_one_line(server: Running) -> None:
    with listening() as lines:
        answer = server.convert(sample("png"), "webp", quality="80")
        entry = one(lines, answer)
    assert (entry["message"], entry["status"], entry["code"]) == ("POST /api/v1/convert", 200, None)
    assert (entry["input_format"], entry["output_format"], entry["engine"]) == ("png", "webp", "in_process")
    assert (entry["credits"], entry["sent"]) == (1, len(answer.content))
    assert entry["received"] > len(sample("png"))
    assert re.fullmatch(r"acct_\w{22}", entry["account"])
    assert isinstance(entry["ms"], int)


def test_a_conversion_with_warnings(server: Running) -> None:
    with listening() as lines:
        assert one(lines, server.convert(sample("jpeg"), "png", quality="80"))["warnings"] == "quality_ignored"


def test_a_batch_is_one_line(server: Running) -> None:
    batch = server.ask("POST", "/batch", json={"output_format": "gif"}).json()["data"]["batch_id"]
    files = [server.upload(sample("png"), path=f"/batch/{batch}/files")["file_id"] for _ in range(2)]
    with listening() as lines:
        body = {"file_ids": files, "output_format": "gif"}
        entry = one(lines, server.ask("POST", f"/batch/{batch}/convert", json=body))
    assert (entry["message"], entry["credits"]) == ("POST /api/v1/batch/{}/convert", 2)


def test_what_fails_tells_why(server: Running) -> None:
    with listening() as lines:
        answer = server.convert(sample("png")[:100], "webp")
        assert one(lines, answer)["code"] == "processing_failed"
        told = one(lines, answer, "convertd.conversions")
    assert (told["reason"], told["input_format"], told["output_format"]) == ("corrupt_input", "png", "webp")


def test_a_job_that_dies_is_told_with_its_request(servers: Servers, data_dir: Path) -> None:
    dying = Dying(WorkerCrashed("Crashed.", details={"exit_code": -11}), OutOfMemory("Killed."))
    with servers.running(data_dir, dying) as server, listening() as lines:
        crashed = one(lines, server.convert(sample("png")), "convertd.conversions")
        killed = one(lines, server.convert(sample("png")), "convertd.conversions")
    assert (crashed["reason"], crashed["exit_code"]) == ("worker_crashed", -11)
    assert killed["reason"] == "out_of_memory"


def test_nobodys_secrets(servers: Servers, server: Running) -> None:
    name = f"{CANARY}.png"
    with listening() as lines:
        answers = [
            server.convert(sample("png"), "webp", name=name),
            server.convert(sample("png")[:100], "webp", name=name),
            server.convert(CANARY.encode(), CANARY, name=name, headers={"Idempotency-Key": CANARY}),
            server.ask("POST", "/pdf/delete-pages", files={"file": (name, b"%PDF-1.7")}, data={"password": CANARY}),
            server.ask("GET", f"/files/{CANARY}"),
            http.get(f"{server.url}/{CANARY}?{CANARY}={CANARY}", headers={"User-Agent": CANARY, "Cookie": CANARY}),
            http.get(f"{server.api}/account", headers={"Authorization": f"Bearer cvd_live_{CANARY}"}),
            http.get(f"{server.api}/verify?token={CANARY}"),
            http.get(f"{server.api}/verify?token={'ca' * 32}", headers={"Accept": "application/json"}),
            http.post(f"{server.api}/register", json={"email": f"{CANARY}@example.com", "name": CANARY}),
            http.post(f"{server.api}/webhooks/stripe", content=CANARY, headers={"Stripe-Signature": CANARY}),
            http.post(f"{server.url}/dashboard/sign-in", data={"key": f"cvd_live_{CANARY}"}),
        ]
        server.upload(sample("png"), name=name)
        for answer in answers:
            one(lines, answer)
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
    executor = Dying(*(RuntimeError(secret) for secret in secrets))
    with servers.running(data_dir, executor) as server, listening() as lines:
        for _ in secrets:
            entry = one(lines, server.convert(sample("png")), "convertd.web")
            assert "RuntimeError" in entry["traceback"]
    assert CANARY not in "\n".join(lines.texts)
