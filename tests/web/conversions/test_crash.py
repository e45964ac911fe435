"""A server that is killed under load: every response is charged exactly once."""

import asyncio
from pathlib import Path

import pytest

from benchmarks.processes import ConvertdServer
from tests.support.servers.load import Clients, charged, create_accounts, kill_with_its_processes, repeat

pytestmark = pytest.mark.slow

_KILL_INTERVAL = 0.5  # seconds


@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
def test_each_response_is_charged_once(tmp_path: Path, url: str, request: pytest.FixtureRequest) -> None:
    """The server is killed in the middle of conversions, ends with all its processes, and starts again.

    That is repeated as often as `--rounds`.
    """
    rounds = int(request.config.getoption("--rounds"))
    (key,) = create_accounts(url, 1)
    with ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": url}) as server:
        clients = Clients(server.api, key, (64, 48))

        def kill_and_start() -> None:
            kill_with_its_processes(server)
            server.start()

        async def convert_during_kills() -> None:
            kills = asyncio.create_task(repeat(rounds, _KILL_INTERVAL, kill_and_start))
            await clients.convert_while(kills, concurrency=4)

        asyncio.run(convert_during_kills())
        spent = charged(url)
    assert clients.statuses[0] > 0
    assert set(clients.statuses) <= {0, 200, 409, 429, 500, 503}
    assert clients.wrong_results == 0
    assert spent == clients.succeeded > 0
