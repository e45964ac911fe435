"""convertd next to other image servers, which are installed into a cache folder, and next to libraries in a loop."""

import asyncio
import subprocess
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import libraries, server
from benchmarks.libraries import Library, reason
from benchmarks.load_generator import LoadPlan
from benchmarks.measure import Variant, cpu_ms, cpu_ratio, interleaved, memory, table, throughput_ratio
from benchmarks.peer_servers import FASTIFY, IPX, PEERS, STARLETTE, THUMBOR, Running
from benchmarks.processes import RedisServer
from benchmarks.report import COLUMNS, Report, Row, at_least, at_most, info
from benchmarks.server import IN_TURN, Runs
from benchmarks.workloads import DELETION, DRAWING, EMBEDDING, MERGE, PAGE, PHOTO, THUMBNAIL, TINY, Workload

Load = tuple[Workload, int]
"""A workload and the number of connections."""

LOADS: Sequence[Load] = (
    (TINY, 16),
    (PHOTO, 4),
    (PHOTO, 16),
    *((workload, 4) for workload in (THUMBNAIL, DRAWING, PAGE, EMBEDDING, DELETION, MERGE)),
)
"""The loads that are measured."""

_PROCESSES = 2

CONVERTD = "convertd"
SEVERAL = f"convertd, {_PROCESSES} processes"
_FAILURES = (OSError, RuntimeError, subprocess.SubprocessError)  # to install or to start a program
_PHOTO_PEERS = dict.fromkeys((IPX, FASTIFY, STARLETTE), 1.0)
_MIN_THROUGHPUTS: Mapping[Load, Mapping[str, float]] = {  # by the peer they are relative to
    (TINY, 16): {IPX: 0.6, THUMBOR: 0.4},
    (PHOTO, 4): _PHOTO_PEERS,
    (PHOTO, 16): _PHOTO_PEERS,
}
_MAX_CPU_RATIOS = {libraries.LIBVIPS: 1.25, libraries.RESVG: 1.5, libraries.MUPDF_PAGE: 1.0, libraries.MUPDF_MERGE: 1.2}
# CPU time in addition to the library, in ms
_MAX_OVERHEADS = dict.fromkeys((libraries.RESVG, libraries.MUPDF_EMBEDDING, libraries.MUPDF_DELETION), 10)


@dataclass(frozen=True)
class _Compared:
    """Servers by name, and libraries with their loops. `problems` are rows for those that are missing."""

    servers: Mapping[str, Running]
    loops: Mapping[Library, Variant]
    problems: Sequence[Row]

    def result_sizes(self, workload: Workload) -> Row:
        """Returns the title and the bytes of the result of each server."""
        return workload.title, *(each.result_size(workload) for each in self.servers.values())

    def variants(self, load: Load, seconds: float) -> dict[str, Variant]:
        """Returns the variants of the servers and libraries that can do the workload, convertd first."""
        workload, connections = load
        able = {name: each for name, each in self.servers.items() if workload in each.workloads}
        return {
            **{name: each.variant(workload, seconds, connections) for name, each in able.items()},
            **{library.title: loop for library, loop in self.loops.items() if library.workload is workload},
        }


def measure(rounds: int, seconds: float, cache: Path, loads: Sequence[Load] = LOADS) -> Generator[Report, None, None]:
    """Installs the peers and measures them next to convertd, for runs of `seconds`. Ends them at the end.

    Raises RuntimeError if convertd does not start, ValueError for a wrong result, and HTTPError.
    """
    workloads = list(dict.fromkeys(workload for workload, _ in loads))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for workload in {TINY, *workloads}:
            workload.write(folder)
        ours = stack.enter_context(server.running(folder))
        compared = _start(stack, ours, cache, folder, seconds)
        memories = ((name, each.versions, memory(each.pid)) for name, each in compared.servers.items())
        yield Report("Servers", ("server", "versions", "memory MiB"), (*memories, *compared.problems))
        yield Report(
            "Bytes of the results", ("workload", *compared.servers), tuple(map(compared.result_sizes, workloads))
        )
        runs: dict[Load, Runs] = {}
        for load in loads:
            runs[load] = asyncio.run(interleaved(compared.variants(load, seconds), rounds))
            yield table(f"{_title(load)} ({rounds} x {seconds:g} s)", runs[load])
        if TINY in workloads:
            in_turn = {_in_turn_title(count): ours.variant(TINY, folder, seconds, 16, count) for count in (1, *IN_TURN)}
            found = asyncio.run(interleaved(in_turn, rounds))
            yield table(f"{_title((TINY, 16))}, {CONVERTD} ({rounds} x {seconds:g} s)", found)
    yield Report("Requirements", COLUMNS, tuple(_requirements(runs)))


def _start(stack: ExitStack, ours: server.Server, cache: Path, folder: Path, seconds: float) -> _Compared:
    """Starts the other servers, which end with `stack`, and prepares the libraries. The input files are in `folder`."""
    servers = {CONVERTD: _convertd(ours, folder)}
    loops: dict[Library, Variant] = {}
    problems: list[Row] = []
    starts = {SEVERAL: _several(folder), **{peer.name: peer.running(cache, folder) for peer in PEERS}}
    for name, start in starts.items():
        try:
            servers[name] = stack.enter_context(start)
        except _FAILURES as error:
            problems.append((name, f"cannot be installed or started: {reason(error)}", nan))
    for library in libraries.LIBRARIES:
        try:
            loops[library] = library.variant(folder, seconds, cache)
        except _FAILURES as error:
            problems.append((library.title, f"cannot be installed: {reason(error)}", nan))
    return _Compared(servers, loops, problems)


def _convertd(running: server.Server, folder: Path) -> Running:
    def plan(workload: Workload, seconds: float, connections: int) -> LoadPlan:
        return running.plan(workload, folder, seconds, connections)

    return Running(running.pid, version("convertd"), [workload for workload, _ in LOADS], plan)


@contextmanager
def _several(folder: Path) -> Iterator[Running]:
    with RedisServer(folder) as redis, server.running(folder, {"CONVERTD_REDIS_URL": redis.url}, _PROCESSES) as running:
        yield _convertd(running, folder)


def _title(load: Load) -> str:
    workload, connections = load
    return f"{workload.title}, {connections} connections"


def _in_turn_title(count: int) -> str:
    return server.in_turn_title(count) if count > 1 else "1 account"


def _requirements(runs: Mapping[Load, Runs]) -> Iterator[Row]:
    for load, limits in _MIN_THROUGHPUTS.items():
        for peer, limit in limits.items():
            metric = f"{_title(load)}: throughput / {peer}"
            found = runs.get(load, {})
            if peer in found:
                ours = (found[name] for name in (CONVERTD, SEVERAL) if name in found)
                yield at_least(metric, max(throughput_ratio(own, found[peer]) for own in ours), limit)
            else:
                yield info(metric, "not measured")
    for (workload, _), found in runs.items():
        for library in libraries.LIBRARIES:
            if library.workload is workload and library.title in found:
                own = found[CONVERTD]
                alone = found[library.title]
                metric = f"{workload.title}: CPU {{}} {library.name}"
                if library in _MAX_CPU_RATIOS:
                    yield at_most(metric.format("/"), cpu_ratio(own, alone), _MAX_CPU_RATIOS[library])
                if library in _MAX_OVERHEADS:
                    yield at_most(metric.format("in ms above"), cpu_ms(own) - cpu_ms(alone), _MAX_OVERHEADS[library])
