"""Signatures with the time of an authority, which a task reaches by its executor."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asn1crypto import tsp

from engine import ConversionError, OptionValues
from engine.executor import LocalExecutor, Task
from engine.formats import ANY_FILE
from engine.network import WebRequest, WebResponse, only_to
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import run_tool
from tests.support.samples.certificates import pkcs12_file, time_authority
from tests.support.samples.pdf_documents import REGISTRY, document
from tests.support.servers.receiver import Received, Receiver, Send, reply

pytestmark = pytest.mark.asyncio(loop_scope="session")
_Answer = Callable[[tsp.TimeStampReq], bytes]


def _granted(request: tsp.TimeStampReq) -> bytes:
    return bytes(time_authority().request_tsa_response(request).dump())


def _refused(request: tsp.TimeStampReq) -> bytes:
    status = tsp.PKIStatusInfo({"status": tsp.PKIStatus("rejection")})
    return bytes(tsp.TimeStampResp({"status": status}).dump())


def _of_another(request: tsp.TimeStampReq) -> bytes:
    request["message_imprint"]["hashed_message"] = bytes(32)
    return _granted(request)


def _authority(make: _Answer) -> Receiver:
    def respond(request: Received, send: Send) -> None:
        assert request.headers["content-type"] == "application/timestamp-query"
        reply(200, make(tsp.TimeStampReq.load(request.body)))(request, send)

    return Receiver(respond, "127.0.0.2")


async def _sign(executor: LocalExecutor, folder: Path, tool: str, options: OptionValues) -> bytes:
    paths = [folder / "a.pdf", folder / "a.p12"]
    for path, data in zip(paths, (document("A", 1), pkcs12_file()), strict=True):
        path.write_bytes(data)
    plan = REGISTRY.plan([REGISTRY.formats["pdf"], ANY_FILE], "pdf", tool, options, ("certificate",))
    job = FileJob(Task.of(plan, options, input_names=("a", "a.p12")), paths, folder / "result.pdf")
    await run_files(executor, job)
    return job.output.read_bytes()


def _verify(signed: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_tool("pdf-verify", signed).data)["signatures"]
    return found


async def test_a_signature_has_a_timestamp(executor: LocalExecutor, tmp_path: Path) -> None:
    with _authority(_granted) as server:
        stage = {"tool": "pdf-sign", "certificate": "certificate", "timestamp_url": server.url}
        for tool, options in (("pdf-sign", {"timestamp_url": server.url}), ("pdf-pipe", {"stages": [stage]})):
            signed = await _sign(executor, tmp_path, tool, options)

            (found,) = await asyncio.to_thread(_verify, signed)
            assert (found["valid"], found["timestamp"]["authority"], found["timestamp"]["valid"]) == (
                True,
                "Clock",
                True,
            )


@pytest.mark.parametrize("make", [_refused, _of_another, lambda request: b"<html>"])
async def test_an_answer_without_the_timestamp_is_refused(
    executor: LocalExecutor, tmp_path: Path, make: _Answer
) -> None:
    with _authority(make) as server, pytest.raises(ConversionError) as refused:
        await _sign(executor, tmp_path, "pdf-sign", {"timestamp_url": server.url})

    assert (refused.value.reason, refused.value.param) == ("unreachable", "timestamp_url")


async def test_addresses_have_the_rules_of_urls(executor: LocalExecutor, tmp_path: Path) -> None:
    with Receiver(address="127.0.0.1") as inner, Receiver(reply(404), "127.0.0.2") as missing:
        expected = {
            inner.url: "forbidden_address",
            missing.url: "http_status",
            "ftp://127.0.0.2/": "invalid_url",
            "http://127.0.0.2:1/": "unreachable",
        }
        for url, reason in expected.items():
            with pytest.raises(ConversionError) as refused:
                await _sign(executor, tmp_path, "pdf-sign", {"timestamp_url": url})
            assert (refused.value.code, refused.value.reason) == ("invalid_parameter", reason)
        assert inner.connections == 0


async def test_a_task_reaches_only_its_urls() -> None:
    asked: list[str] = []

    async def fetch(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        asked.append(request.url)
        return WebResponse(request.number, 200)

    urls = ("https://a.example/", "https://b.example/")
    found = await asyncio.gather(*(only_to(urls[:1], fetch)(WebRequest(0, "POST", url), 1, 1) for url in urls))

    assert ([one.failure for one in found], asked) == (["", "forbidden_address"], [urls[0]])
