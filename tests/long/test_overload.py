"""Ten times the load that a server can process: it keeps converting, refuses the rest at once, and recovers."""

import asyncio
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from statistics import median

import pytest

from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.processes import WORKERS, ConvertdServer
from benchmarks.report import p99
from tests.support.servers.load import charged, create_accounts, image, sqlite_url

pytestmark = pytest.mark.long

_FACTOR = 10  # load as a multiple of the capacity
_ACCOUNTS = 10
_MIN_GOODPUT = 0.9  # multiple of the capacity
_MAX_MEMORY = 512 << 10  # KiB, of the server process


def test_overload(tmp_path: Path, seconds: float) -> None:
    """For a minute, ten accounts send ten times the capacity, which is measured before and after.

    The server converts 90 % of the lower capacity, refuses the rest with 429 and Retry-After sooner than it converts,
    and then converts for another account. All successes are charged, refusals are not.
    """
    *keys, other_key = create_accounts(sqlite_url(tmp_path), _ACCOUNTS + 1)
    file = tmp_path / "photo.png"
    file.write_bytes(image((1200, 900)))
    with ConvertdServer(tmp_path) as server:
        plan = LoadPlan(f"{server.api}/convert", tuple(keys), str(file), seconds)
        before, overloaded, later, after = asyncio.run(_overload(plan, other_key))
        status = Path(f"/proc/{server.pid}/status").read_text()
    successes = [response for response in overloaded if response.status == HTTPStatus.OK]
    refusals = [response for response in overloaded if response.status == HTTPStatus.TOO_MANY_REQUESTS]
    assert len(successes) + len(refusals) == len(overloaded)
    assert _goodput(overloaded) >= _MIN_GOODPUT * min(_goodput(before), _goodput(after))
    assert refusals
    assert all(int(response.retry_after) > 0 for response in refusals)
    assert p99([response.seconds for response in refusals]) < median(response.seconds for response in successes)
    assert {response.status for response in (*before, *later, *after)} == {HTTPStatus.OK}
    assert int(status.split("VmHWM:")[1].split()[0]) <= _MAX_MEMORY
    assert charged(sqlite_url(tmp_path)) == len(before) + len(successes) + len(later) + len(after)


async def _overload(plan: LoadPlan, other_key: str) -> list[list[TimedResponse]]:
    """Returns the responses at the capacity, to the overload, to another account, and at the capacity again."""
    at_capacity = replace(plan, seconds=plan.seconds / 6, concurrency=2 * WORKERS)
    before = await generate_load(at_capacity)
    overloaded = await generate_load(replace(plan, rate=_FACTOR * _goodput(before)))
    later = await generate_load(replace(plan, keys=(other_key,), seconds=0.1, concurrency=1))
    return [before, overloaded, later, await generate_load(at_capacity)]


def _goodput(responses: list[TimedResponse]) -> float:
    """Successful conversions per second in the period in which requests were sent."""
    first, last = min(response.sent_at for response in responses), max(response.sent_at for response in responses)
    successes = sum(response.status == HTTPStatus.OK and response.received_at <= last for response in responses)
    return successes / (last - first)
