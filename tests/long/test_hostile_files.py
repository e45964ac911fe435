"""Hostile files over HTTP, beside the conversions of another account."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from tests.support.requests import http
from tests.support.samples.hostile import hostile_files
from tests.support.samples.hostile_outcomes import DONE, Canary, Hostile, Outcome
from tests.support.servers.load import Clients, assert_no_work_files, charged, create_accounts, sqlite_url

pytestmark = pytest.mark.long

_CONCURRENCY = 4
_SETTINGS = {"CONVERTD_WORKERS": str(_CONCURRENCY + 2)}  # other clients need not wait for jobs with long deadlines
_TIMEOUT = 120  # seconds, longer than the deadline of a job


def test_hostile_files_are_charged_only_if_converted(tmp_path: Path) -> None:
    """An account sends all hostile files, four at a time, while another converts.

    Each file has an allowed outcome and costs a credit only if it is converted; nothing outside is read or requested.
    The other account's conversions succeed at the first attempt.
    """
    key, other_key = create_accounts(sqlite_url(tmp_path), 2)
    secret = tmp_path / "secret.svg"
    secret.write_text("<svg/>")
    visitors: list[asyncio.StreamWriter] = []

    async def convert_all(others: Clients) -> list[tuple[Hostile, Outcome]]:
        async with await asyncio.start_server(lambda _, writer: visitors.append(writer), "127.0.0.1", 0) as listener:
            canary = Canary(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/a.svg", secret)
            files = hostile_files()
            attack = asyncio.gather(*(_convert(others.api, key, files, canary) for _ in range(_CONCURRENCY)))
            await others.convert_while(attack, concurrency=1)
            return [pair for pairs in attack.result() for pair in pairs]

    with ConvertdServer(tmp_path, _SETTINGS) as server:
        others = Clients(server.api, other_key)
        outcomes = asyncio.run(convert_all(others))
        assert_no_work_files(server)
    assert [(file.name, outcome) for file, outcome in outcomes if outcome not in file.allowed] == []
    assert len(outcomes) == len(list(hostile_files()))
    assert visitors == []
    assert secret.read_text() == "<svg/>"
    assert set(others.statuses) == {200}
    assert charged(sqlite_url(tmp_path)) == others.succeeded + [outcome for _, outcome in outcomes].count(DONE)


async def _convert(api: str, key: str, files: Iterator[Hostile], canary: Canary) -> list[tuple[Hostile, Outcome]]:
    """Converts files one after the other until none is left."""
    outcomes = []
    async with http.AsyncClient(timeout=_TIMEOUT, headers={"Authorization": f"Bearer {key}"}) as client:
        for file in files:
            content = await asyncio.to_thread(file.make, canary)
            form: dict[str, Any] = {"files": {"file": ("a", content)}, "data": {"output_format": file.target}}
            # The jobs of an account that keep ending by their deadline wait for one slot, some of them too long.
            while True:
                response = await client.post(f"{api}/convert", **form)
                if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                    break
                await asyncio.sleep(int(response.headers["Retry-After"]))
            outcomes.append((file, _outcome(response)))
    return outcomes


def _outcome(response: httpx.Response) -> Outcome:
    if response.is_success:
        return DONE
    error = response.json()["error"]
    return str(error["code"]), str(error.get("reason") or "")
