"""Memory of a server's processes: during bursts, and what grows under a long mixed load below its capacity."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks import server
from benchmarks.load_generator import LoadPlan, TimedResponse, generate_load
from benchmarks.measure import memory
from benchmarks.processes import process_tree
from benchmarks.report import COLUMNS, Report, Row, at_most, equals, info, p99
from benchmarks.server import Server
from benchmarks.workloads import LARGE, PHOTO, TINY, TINY_SIZE, inputs
from engine.executor.pool import IDLE_SECONDS
from engine.registry import load_registry
from storage.database import Database
from storage.tables import ledger_audit

_BURSTS = ((TINY, 16), (LARGE, 4))  # workloads and numbers of connections
_INTERVAL = 0.1  # seconds between two measurements
_START_TIME, _MARGIN = 2.0, 5.0  # seconds
_MAX_GROWTH_OF_BURST = 1.25  # idle memory after a burst / before

_LOAD_FACTOR = 0.7  # load as a multiple of the capacity for the same mix
_CAPACITY_SECONDS, _CONNECTIONS = 10.0, 4
_KEYS_PER_KIND = 3
_SETTINGS = {"CONVERTD_FILE_RETENTION_SECONDS": "60"}
_MAX_GROWTH = 1.15  # value at the end / in the middle
_BROKEN = "broken.jpg"
_BOUNDED = (
    "memory of all processes, MiB",
    "largest process, MiB",
    "descriptors of the server",
    "files in the data folder",
)


def measure_bursts(seconds: float, idle: float = IDLE_SECONDS + _MARGIN) -> list[Report]:
    """Returns the memory for bursts of `seconds`, measured again `idle` seconds after each."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for workload, _ in _BURSTS:
            workload.write(folder)
        with server.running(folder) as running:
            return asyncio.run(_measure_bursts(running, folder, seconds, idle))


async def _measure_bursts(running: Server, folder: Path, seconds: float, idle: float) -> list[Report]:
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
            at_most(f"{workload.title}: memory afterwards / before", later / before, _MAX_GROWTH_OF_BURST),
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


@dataclass(frozen=True)
class _Kind:
    """Requests of one kind: all must be answered with `status`."""

    title: str
    plan: LoadPlan
    status: int = 200


def measure_soak(minutes: float) -> list[Report]:
    """Returns the load, and the resources of the server at its start, in the middle and at its end."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with server.running(folder, _SETTINGS) as running:
            reports = asyncio.run(_measure_soak(running, _kinds(running, folder), 60 * minutes))
        database = Database(f"sqlite:///{running.data / 'convertd.db'}")
        audit = equals("inconsistencies in the ledger", len(database.run_blocking(ledger_audit.check)), 0)
        database.close()
    return [*reports[:-1], replace(reports[-1], rows=(*reports[-1].rows, audit))]


def _kinds(running: Server, folder: Path) -> list[_Kind]:
    for workload in (TINY, PHOTO):
        workload.write(folder)
    (folder / _BROKEN).write_bytes((folder / PHOTO.file).read_bytes()[:20_000])
    (folder / "page.pdf").write_bytes(inputs(load_registry(), TINY_SIZE)["pdf"])
    keys = [running.keys[start : start + _KEYS_PER_KIND] for start in range(0, len(running.keys), _KEYS_PER_KIND)]

    def plan(number: int, file: str, path: str, fields: Mapping[str, str] = MappingProxyType({})) -> LoadPlan:
        url = f"{running.process.api}/{path}"
        return LoadPlan(url, keys[number], str(folder / file) if file else "", 0, fields=dict(fields))

    return [
        _Kind(TINY.title, plan(0, TINY.file, "convert", TINY.fields)),
        _Kind(PHOTO.title, plan(1, PHOTO.file, "convert", PHOTO.fields)),
        _Kind("drawing, PDF to PNG", plan(2, "page.pdf", "convert", {"output_format": "png"})),
        _Kind("truncated JPEG to WebP", plan(3, _BROKEN, "convert", PHOTO.fields), status=500),
        _Kind("upload of a 2 megapixel JPEG", plan(4, PHOTO.file, "files/upload")),
        _Kind("GET /account", plan(0, "", "account")),
    ]


async def _measure_soak(running: Server, kinds: Sequence[_Kind], seconds: float) -> list[Report]:
    rates = []
    for kind in kinds:
        capacity = replace(kind.plan, seconds=_CAPACITY_SECONDS, concurrency=_CONNECTIONS)
        rates.append(len(await generate_load(capacity)) / _CAPACITY_SECONDS)
    rate_of_each = _LOAD_FACTOR / sum(1 / each for each in rates)
    states = [_resources(running.pid, running.data)]
    halves: list[list[list[TimedResponse]]] = []
    for _ in range(2):
        plans = [replace(kind.plan, seconds=seconds / 2, rate=rate_of_each) for kind in kinds]
        halves.append(await asyncio.gather(*map(generate_load, plans)))
        states.append(_resources(running.pid, running.data))
    loads: list[Row] = []
    wrong: Counter[str] = Counter()
    for kind, *parts in zip(kinds, *halves, strict=True):
        responses = list(chain(*parts))
        wrong.update(f"{kind.title}: {one.status}" for one in responses if one.status != kind.status)
        latencies = [one.seconds for one in responses]
        loads.append((kind.title, len(responses), 1000 * median(latencies), 1000 * p99(latencies)))
    rows: list[Row] = [(name, *(state[name] for state in states)) for name in states[0]]
    _, middle, end = states
    return [
        Report(
            f"{seconds / 60:g} minutes at {_LOAD_FACTOR:g} of the capacity",
            ("load", "requests", "p50 ms", "p99 ms"),
            tuple(loads),
        ),
        Report("Resources", ("resource", "start", "middle", "end"), tuple(rows)),
        Report(
            "Requirements",
            COLUMNS,
            (
                info("requests", sum(len(part) for half in halves for part in half)),
                equals(f"responses with another status {dict(wrong) or ''}".strip(), wrong.total(), 0),
                *(at_most(f"{name}: end / middle", end[name] / middle[name], _MAX_GROWTH) for name in _BOUNDED),
            ),
        ),
    ]


def _resources(pid: int, data: Path) -> Mapping[str, float]:
    tree = process_tree(pid)
    files = [path for path in data.rglob("*") if path.is_file()]
    return {
        "memory of all processes, MiB": memory(pid),
        "server process, MiB": _resident(pid),
        "largest process, MiB": max(map(_resident, tree)),
        "processes": len(tree),
        "descriptors of the server": len(list(Path(f"/proc/{pid}/fd").iterdir())),
        "files in the data folder": len(files),
        "files and database, MiB": sum(path.stat().st_size for path in files) / (1 << 20),
        "database, MiB": sum(path.stat().st_size for path in data.glob("convertd.db*")) / (1 << 20),
        "log, MiB": Path(f"/proc/{pid}/fd/2").stat().st_size / (1 << 20),
    }


def _resident(pid: int) -> float:
    """The resident memory of a process in MiB; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:")) / 1024
