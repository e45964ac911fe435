"""Memory of a server's processes before, during and after bursts of conversions."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import server
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.measure import memory
from benchmarks.report import COLUMNS, Report, Row, at_most, equals
from benchmarks.server import Server
from benchmarks.workloads import LARGE, TINY
from engine.executor.pool import IDLE_SECONDS

_BURSTS = ((TINY, 16), (LARGE, 4))  # workloads and numbers of connections
_INTERVAL = 0.1  # seconds between two measurements
_START_TIME, _MARGIN = 2.0, 5.0  # seconds
_MAX_GROWTH = 1.25  # idle memory after a burst / before


def measure(seconds: float, idle: float = IDLE_SECONDS + _MARGIN) -> list[Report]:
    """Returns the memory for bursts of `seconds`, measured again `idle` seconds after each."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for workload, _ in _BURSTS:
            workload.write(folder)
        with server.running(folder) as running:
            return asyncio.run(_measure(running, folder, seconds, idle))


async def _measure(running: Server, folder: Path, seconds: float, idle: float) -> list[Report]:
    await asyncio.sleep(_START_TIME)
    bursts: list[Row] = []
    requirements: list[Row] = []
    for workload, connections in _BURSTS:
        plan = running.plan(workload, folder, seconds, connections)
        before = memory(running.pid)
        responses, peak = await _burst(plan, running.pid)
        after = memory(running.pid)
        await asyncio.sleep(idle)
        later = memory(running.pid)
        failed = sum(response.status != 200 for response in responses)
        bursts.append((f"{workload.title}, {connections} connections", len(responses), before, peak, after, later))
        requirements += [
            at_most(f"{workload.title}: memory afterwards / before", later / before, _MAX_GROWTH),
            equals(f"{workload.title}: failed requests", failed, 0),
        ]
    columns = ("burst", "requests", "before MiB", "peak MiB", "after MiB", f"{idle:g} s later MiB")
    return [
        Report(f"Memory of all processes, bursts of {seconds:g} s", columns, tuple(bursts)),
        Report("Requirements", COLUMNS, tuple(requirements)),
    ]


async def _burst(plan: LoadPlan, pid: int) -> tuple[Sequence[TimedResponse], float]:
    """Returns the responses and the peak memory."""
    load = asyncio.create_task(generate_load(plan))
    peak = 0.0
    while not load.done():
        peak = max(peak, await asyncio.to_thread(memory, pid))
        await asyncio.wait([load], timeout=_INTERVAL)
    return load.result(), peak
