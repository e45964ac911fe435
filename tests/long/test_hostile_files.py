"""Hostile files, plugins and system calls beside conversions of others."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import ConvertdServer, free_port
from engine import ConversionError
from engine.registry import load_registry
from tests.support import sabotages
from tests.support.command_line import run_command
from tests.support.executors.refused_calls import EXPECTED_REFUSALS, refused_calls
from tests.support.requests import http
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.generated import sample
from tests.support.samples.hostile import DONE, Canary, Hostile, Outcome, hostile_files
from tests.support.servers.load import Clients, assert_no_work_files, charged, create_accounts, sqlite_url

pytestmark = pytest.mark.long
_CONCURRENCY = 4
_SETTINGS = {"CONVERTD_WORKERS": str(_CONCURRENCY + 2)}  # other clients need not wait for jobs with long deadlines
_TIMEOUT = 120  # seconds, longer than the deadline of a job
_REGISTRY = load_registry()
_PAIRS = _REGISTRY.catalogue()


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


@pytest.mark.parametrize("what", [*sabotages.REFUSED, *sabotages.HARMLESS])
def test_the_server_starts_and_serves(what: str, tmp_path: Path) -> None:
    source, _ = sabotages.REFUSED.get(what, ("", ""))
    folder, imports = tmp_path / "modules", tmp_path / "imports"
    folder.mkdir()
    counted = f"open({str(imports)!r}, 'a').write('once ')\n"
    sabotages.install(folder, "odd", (source or sabotages.HARMLESS[what]).replace("\nfrom", f"\n{counted}from", 1))
    metrics = free_port()
    variables = {"PYTHONPATH": str(folder), "CONVERTD_METRICS_PORT": str(metrics), "CONVERTD_DATA_DIR": str(tmp_path)}
    account = run_command(tmp_path, "account", "create", "--email", "a@example.com", "--name", "Ann", **variables)
    with ConvertdServer(tmp_path, variables) as server:
        key = {"Authorization": f"Bearer {account.stdout.strip()}"}
        files, data = {"file": ("a.png", sample("png"))}, {"output_format": "jpeg"}
        answer = http.post(f"{server.api}/convert", headers=key, files=files, data=data, timeout=30)
        state, page = http.get(f"{server.url}/readyz").json(), http.get(f"{server.url}/status").text
        values = http.get(f"http://127.0.0.1:{metrics}/metrics").text
        document = http.get(f"{server.api}/openapi.json", timeout=30)
        log = server.log()
        assert server.stop() == 0

    assert answer.content[:3] == b"\xff\xd8\xff"
    assert document.status_code == 200
    up = 0.0 if source else 1.0
    assert f'convertd_plugin_up{{plugin="odd",version="1.0"}} {up}' in values
    if source:
        assert state == {"status": "degraded", "reasons": ["the plugin odd does not work"]}
        assert "does not work" in page
        assert "plugin 'odd' is left out: " in log
    else:
        assert state == {"status": "ok"}
        assert imports.read_text().split() == ["once"] * 3  # in the trial, in the server and in the fork server


def test_a_detection_that_fails_later_is_switched_off(tmp_path: Path) -> None:
    """It fails for files that are in no trial."""
    folder = tmp_path / "modules"
    folder.mkdir()
    source = sabotages.HARMLESS["import prints"].replace("pass", 'if content[:7] == b"trigger": raise IndexError')
    sabotages.install(folder, "odd", source)
    with ConvertdServer(tmp_path, {"PYTHONPATH": str(folder)}) as server:
        for _ in range(3):
            http.post(f"{server.url}/try/identify", files={"file": ("a", b"trigger")}, headers={"Origin": server.url})
        state = http.get(f"{server.url}/readyz").json()
        log = server.log()

    assert state == {"status": "degraded", "reasons": ["the plugin odd does not work"]}
    assert "plugin odd: the detection of odd0 is switched off: IndexError" in log


@pytest.mark.skipif(not load_corpus(), reason="there is no corpus")
def test_conversions_of_the_corpus_make_no_other_calls() -> None:
    """Every sound or damaged file, to all of its outputs. Those that need the limits of a sandbox are left out."""
    files = [entry for entry in load_corpus() if entry.sound or entry.category == "bad"]

    refused = refused_calls([(str(entry.path), target) for entry in files for target in _targets(entry)])

    assert {call: plans for call, plans in refused.items() if call not in EXPECTED_REFUSALS} == {}


def _targets(entry: Entry) -> list[str]:
    try:
        source = _REGISTRY.identify(entry.path)
    except ConversionError:  # damaged beyond recognition
        return []
    return [plan.target.name for plan in _PAIRS if plan.source is source]
