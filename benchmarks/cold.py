"""The first conversion of each family of formats after the start of a server, and a conversion by the command."""

import asyncio
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks import server
from benchmarks.load_generator import TimedResponse, generate_load
from benchmarks.measure import memory
from benchmarks.processes import CONVERTD
from benchmarks.report import COLUMNS, Report, Row, at_most, equals
from benchmarks.server import Server
from benchmarks.workloads import DRAWING, LAYERS, PAGE, WEB_PAGE, inputs
from engine.registry import load_registry

_WORKLOADS = (PAGE, DRAWING, WEB_PAGE, LAYERS)
_IDLE_SECONDS = 5.0  # from the start until the first conversion
_SECONDS = 5.0  # of each conversion, repeated
_REPETITIONS = 5  # of the command in each round


@dataclass(frozen=True)
class _Start:
    """The responses of each workload after a start, and the memory in MiB when ready, idle and afterwards."""

    responses: Sequence[Sequence[TimedResponse]]
    memory: tuple[float, float, float]
    ready_seconds: float


def measure(rounds: int) -> list[Report]:
    """Returns the times of first and later conversions, the memory of the servers, and the times of the command."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for workload in _WORKLOADS:
            workload.write(folder)
        (folder / "photo.heic").write_bytes(inputs(load_registry())["heic"])
        starts: list[_Start] = []
        commands: list[tuple[float, float]] = []
        for _ in range(rounds):
            with server.running(folder) as running:
                starts.append(asyncio.run(_measure_start(running, folder)))
            commands += [_measure_command(folder) for _ in range(_REPETITIONS)]
    times: list[Row] = []
    requirements: list[Row] = []
    for number, workload in enumerate(_WORKLOADS):
        runs = [start.responses[number] for start in starts]
        first = 1000 * median(run[0].seconds for run in runs)
        later = 1000 * median(response.seconds for run in runs for response in run[1:])
        times.append((workload.title, first, later, first / later))
        requirements.append(at_most(f"{workload.title}: first / later", first / later, 1.5))
    used = [median(moments) for moments in zip(*(start.memory for start in starts), strict=True)]
    wall, cpu = (1000 * median(values) for values in zip(*commands, strict=True))
    failed = sum(response.status != 200 for start in starts for run in start.responses for response in run)
    requirements += [
        at_most("seconds until ready", median(start.ready_seconds for start in starts), 1.7),
        at_most("memory afterwards, MiB", used[-1], 330),
        at_most("command, ms", wall, 200),
        equals("failed requests", failed, 0),
    ]
    title = f"Conversions {_IDLE_SECONDS:g} s after the start ({rounds} starts)"
    return [
        Report(title, ("workload", "first ms", "later ms", "ratio"), tuple(times)),
        Report("Memory of all processes", ("ready MiB", "idle MiB", "afterwards MiB"), (tuple(used),)),
        Report("Command, HEIC of 2 megapixels to JPEG", ("ms", "CPU ms"), ((wall, cpu),)),
        Report("Requirements", COLUMNS, tuple(requirements)),
    ]


async def _measure_start(running: Server, folder: Path) -> _Start:
    at_start = memory(running.pid)
    await asyncio.sleep(_IDLE_SECONDS)
    idle = memory(running.pid)
    plans = [running.plan(workload, folder, _SECONDS, 1) for workload in _WORKLOADS]
    responses = [await generate_load(plan) for plan in plans]
    return _Start(responses, (at_start, idle, memory(running.pid)), running.ready_seconds)


def _measure_command(folder: Path) -> tuple[float, float]:
    """Returns the time and the CPU time of a conversion, in seconds."""
    before, started = os.times(), perf_counter()
    command = [CONVERTD, "convert", "-y", str(folder / "photo.heic"), str(folder / "photo.jpg")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed, after = perf_counter() - started, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return elapsed, used
