"""Measurement of variants in interleaved rounds: throughput, latency, and the CPU time and memory of process trees."""

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from math import nan
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from benchmarks.load_generator import LoadPlan, generate_load
from benchmarks.processes import child_processes, process_status, process_tree
from benchmarks.report import Report, Row, p99
from engine.executor import Executor, Task

COLUMNS = ("variant", "per second", "ratio", "spread %", "p50 ms", "p99 ms", "CPU ms", "CPU ratio", "failed")
"""The columns of `table`."""

_TICKS = os.sysconf("SC_CLK_TCK")  # per second, of the times in /proc
_TIMES = slice(11, 15)  # indexes in process_status
_ACCOUNT = "benchmark"
_WARM_UP, _WARM_UP_CONCURRENCY = 0.5, 4  # seconds, requests at any time
_SETTLING_TIME = 0.2  # seconds until work after the last response is done: refilling pools, writing logs


@dataclass(frozen=True)
class Run:
    """A variant in one round: the latencies of its successes, and what each success took of CPU time, in seconds.

    `throughput` is in successes per second.
    """

    latencies: tuple[float, ...]
    throughput: float
    cpu: float
    failures: int = 0


Variant = Callable[[], Awaitable[Run]]


async def interleaved(variants: Mapping[str, Variant], rounds: int) -> dict[str, list[Run]]:
    """Runs every variant once per round, in the order A B C, then C B A. Returns the runs by variant."""
    runs: dict[str, list[Run]] = {name: [] for name in variants}
    for number in range(rounds):
        for name in variants if number % 2 == 0 else reversed(list(variants)):
            runs[name].append(await variants[name]())
    return runs


async def load(plan: LoadPlan, cpu_clock: Callable[[], float]) -> Run:
    """Runs the plan after a short warm-up. `cpu_clock` returns the CPU time that the server has used, in seconds."""
    warm_up = replace(
        plan, seconds=min(_WARM_UP, plan.seconds), concurrency=min(_WARM_UP_CONCURRENCY, plan.concurrency)
    )
    await generate_load(warm_up)
    await asyncio.sleep(_SETTLING_TIME)
    before = cpu_clock()
    responses = await generate_load(plan)
    await asyncio.sleep(_SETTLING_TIME)
    cpu = cpu_clock() - before
    successes = [response for response in responses if response.status == HTTPStatus.OK]
    latencies = tuple(response.seconds for response in successes)
    # The period ends with the last response, because the requests in flight are counted too.
    started = min(one.sent_at for one in responses)
    ended = max(one.received_at for one in responses)
    failures = len(responses) - len(successes)
    return Run(latencies, len(successes) / (ended - started), cpu / max(1, len(successes)), failures)


async def repeat(action: Callable[[], Awaitable[object]], seconds: float) -> Run:
    """Repeats an action one after the other, once at least, after a warm-up.

    CPU time includes this process and its running children.
    """
    await action()
    latencies: list[float] = []
    before = _own_cpu_seconds()
    started = perf_counter()
    while not latencies or perf_counter() - started < seconds:
        sent = perf_counter()
        await action()
        latencies.append(perf_counter() - sent)
    elapsed = perf_counter() - started
    cpu = _own_cpu_seconds() - before
    return Run(tuple(latencies), len(latencies) / elapsed, cpu / len(latencies))


async def run_job(executor: Executor, task: Task, source: Path) -> None:
    """Converts a file. The result stays in memory, as small results of the service do. Raises ConversionError."""
    with source.open("rb") as read, os.fdopen(os.memfd_create("result"), "wb") as write:
        await executor.run(task, _ACCOUNT, [read.fileno()], write.fileno())


def table(title: str, runs: Mapping[str, Sequence[Run]]) -> Report:
    """Returns a row per variant: medians over the rounds, and ratios to the first variant."""
    first = next(iter(runs.values()))
    rows: list[Row] = []
    for name, own in runs.items():
        throughput = median(run.throughput for run in own)
        speed = (throughput, throughput_ratio(own, first), spread(own), p50_ms(own), p99_ms(own))
        rows.append((name, *speed, cpu_ms(own), cpu_ratio(own, first), sum(run.failures for run in own)))
    return Report(title, COLUMNS, tuple(rows))


def throughput_ratio(runs: Sequence[Run], others: Sequence[Run]) -> float:
    """Returns the median over the rounds of the ratio of the throughputs in the same round."""
    return median(run.throughput / other.throughput for run, other in zip(runs, others, strict=True))


def cpu_ratio(runs: Sequence[Run], others: Sequence[Run]) -> float:
    """Returns the median over the rounds of the ratio of the CPU times in the same round."""
    return median(run.cpu / (other.cpu or nan) for run, other in zip(runs, others, strict=True))


def spread(runs: Sequence[Run]) -> float:
    """Returns the difference between the best and the worst round, in percent of the median throughput."""
    throughputs = [run.throughput for run in runs]
    return 100 * (max(throughputs) - min(throughputs)) / median(throughputs)


def p50_ms(runs: Sequence[Run]) -> float:
    """Returns the median latency of all rounds in milliseconds, NaN without successes."""
    latencies = [latency for run in runs for latency in run.latencies]
    return 1000 * median(latencies) if latencies else nan


def p99_ms(runs: Sequence[Run]) -> float:
    """Returns the 99th percentile of the latencies of all rounds in milliseconds, NaN for fewer than two."""
    return 1000 * p99([latency for run in runs for latency in run.latencies])


def cpu_ms(runs: Sequence[Run]) -> float:
    """Returns the median over the rounds of the CPU time per success, in milliseconds."""
    return 1000 * median(run.cpu for run in runs)


def run_program(command: Sequence[str], folder: Path) -> tuple[float, float]:
    """Runs a program in a folder. Returns its seconds and CPU seconds. Raises CalledProcessError."""
    started = perf_counter()
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return perf_counter() - started, used.ru_utime + used.ru_stime


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time of a process, its descendants, and all of their children that have ended."""
    times = (process_status(process)[_TIMES] for process in process_tree(pid))
    return sum(int(ticks) for fields in times for ticks in fields) / _TICKS


def _own_cpu_seconds() -> float:
    """The CPU time of this process and its running children, without children that have ended."""
    return process_time() + sum(map(cpu_seconds, child_processes(os.getpid())))


def memory(pid: int) -> float:
    """Returns the memory of a process and its descendants in MiB.

    Pages that processes share count once, but for sandboxed processes only if this process runs as root.
    """
    return sum(_memory(process) for process in process_tree(pid)) / 1024


def _memory(pid: int) -> int:
    """The proportional set size in KiB, or the resident set size where the first may not be read; 0 if it has ended."""
    for name, field in (("smaps_rollup", "Pss:"), ("status", "VmRSS:")):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/{name}").read_text().splitlines()
            return sum(int(line.split()[1]) for line in lines if line.startswith(field))
    return 0
