"""Killed processes: jobs, fork servers, and the server itself."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic

import httpx

from benchmarks import server_process
from benchmarks.faults.clients import Clients, check_ledger, check_work_files, repeat_during
from benchmarks.load_generator import TimedResponse
from benchmarks.report import Row, at_most, equals, info, p99
from tests.support.servers.in_process import eventually, open_work_files
from tests.support.servers.processes import child_processes
from tests.support.servers.server_process import free_port

_SMALL, _MEDIUM, _LARGE = (600, 400), (2000, 1500), (4000, 3000)


def kill_processes(folder: Path, divisor: int) -> list[Row]:
    """F1: every two seconds, a random process below the server is killed."""
    count, database_url = 1000 // divisor, server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    with server_process.serving(folder) as (server, url):
        baseline = Clients(url, key, server_process.picture(_SMALL), "baseline")
        asyncio.run(baseline.convert(max(20, count // 5)))
        clients = Clients(url, key, server_process.picture(_SMALL))

        async def convert_during_kills() -> int:
            work = asyncio.create_task(clients.convert(count))
            return await repeat_during(work, lambda: _kill_descendant(server.pid), 2)

        kills = asyncio.run(convert_during_kills())
        file_rows = check_work_files(server.pid, folder)
    return [
        info("kills", kills),
        equals("conversions", clients.succeeded, count),
        at_most("attempts of a conversion", max(clients.attempts), 7),
        equals("responses other than 200, 429, 500, 503", len(clients.statuses() - {200, 429, 500, 503}), 0),
        at_most("p99 latency, multiple of that without kills", p99(clients.seconds()) / p99(baseline.seconds()), 3),
        *check_ledger(database_url, baseline.succeeded + count),
        *file_rows,
    ]


def kill_server(folder: Path, divisor: int) -> list[Row]:
    """F2: every five seconds, the server is killed and restarted."""
    count, database_url, port = 300 // divisor, server_process.sqlite_url(folder), free_port()
    (key,) = server_process.create_accounts(database_url, 1)
    orphans = 0
    with ExitStack() as stack:
        server, url = stack.enter_context(server_process.serving(folder, port=port))
        clients = Clients(url, key, server_process.picture(_MEDIUM))

        def restart() -> None:
            nonlocal server, orphans
            processes = descendants(server.pid)
            server.kill()
            server.wait()
            eventually(lambda: not any(map(_is_alive, processes)), 2)
            orphans += sum(map(_is_alive, processes))
            server, _ = stack.enter_context(server_process.serving(folder, port=port))

        async def convert_during_restarts() -> int:
            return await repeat_during(asyncio.create_task(clients.convert(count)), restart, max(2.5, 5 / divisor))

        kills = asyncio.run(convert_during_restarts())
        ledger_rows = check_ledger(database_url, count, 120)
    return [
        info("kills", kills),
        equals("conversions", clients.succeeded, count),
        equals("processes left 2 s after a kill", orphans, 0),
        *ledger_rows,
    ]


def signal_jobs(folder: Path, divisor: int) -> list[Row]:
    """F15: jobs crash (SIGSEGV), are killed as by the OOM killer (SIGKILL), or hang (SIGSTOP)."""
    count, database_url = 100 // divisor, server_process.sqlite_url(folder)
    (key,) = server_process.create_accounts(database_url, 1)
    signals = [(signal.SIGSEGV, signal.SIGKILL)[number % 2] for number in range(count - 1)] + [signal.SIGSTOP]
    with server_process.serving(folder) as (server, url):
        responses = asyncio.run(_convert_and_signal(server.pid, folder, url, key, signals))
        clients = Clients(url, key, server_process.picture(_SMALL))
        asyncio.run(clients.convert(4))
        file_rows = check_work_files(server.pid, folder)
    return [
        equals("failed jobs", sum(response.status == 500 for response in responses), count),
        at_most("longest latency, s", max(response.seconds for response in responses), 65),
        equals("jobs stopped at their deadline", sum(response.reason == "timeout" for response in responses), 1),
        equals("conversions afterwards", clients.succeeded, 4),
        *check_ledger(database_url, 4),
        *file_rows,
    ]


def stop_fork_server(folder: Path, divisor: int) -> list[Row]:
    """F20: the fork server is stopped (SIGSTOP) under load, and once more before SIGTERM."""
    count, database_url = max(20, 200 // divisor), server_process.sqlite_url(folder)
    keys = server_process.create_accounts(database_url, count)  # each conversion needs a process of its own
    with server_process.serving(folder) as (server, url):
        responses = asyncio.run(_convert_beside_stopped_fork_server(server.pid, url, keys))
        file_rows = check_work_files(server.pid, folder)
        _stop_fork_server(server.pid)
        started = monotonic()
        server.terminate()
        exit_code = server.wait(90)
        exit_seconds = monotonic() - started
    statuses = [response.status for response in responses]
    return [
        info("responses 503", statuses.count(503)),
        equals("responses other than 200, 503", len(statuses) - statuses.count(200) - statuses.count(503), 0),
        at_most("longest latency, s", max(response.seconds for response in responses), 60),
        equals("status of the last response", statuses[-1], 200),
        equals("exit code", exit_code, 0),
        at_most("seconds from SIGTERM to the exit", exit_seconds, 45),
        *file_rows,
    ]


async def _convert_beside_stopped_fork_server(pid: int, url: str, keys: list[str]) -> list[TimedResponse]:
    """Sends five requests a second, one per key, and stops the fork server after the first."""
    content, requests = server_process.picture(_SMALL), []
    async with httpx.AsyncClient(timeout=90) as client:
        for key in keys:
            requests.append(asyncio.create_task(server_process.convert(client, url, key, content)))
            await asyncio.sleep(0.2)
            if len(requests) == 1:
                _stop_fork_server(pid)
        return await asyncio.gather(*requests)


def _stop_fork_server(pid: int) -> None:
    """Stops the supervisor and the serving process of the server's fork server."""
    for supervisor in child_processes(pid):
        for process in (*child_processes(supervisor), supervisor):
            send_signal(process, signal.SIGSTOP)


async def _convert_and_signal(
    pid: int, folder: Path, url: str, key: str, signals: list[signal.Signals]
) -> list[TimedResponse]:
    """Starts a conversion for each signal, and sends that to its job until the conversion ends."""
    responses, content = [], server_process.picture(_LARGE)
    async with httpx.AsyncClient(timeout=90) as client:
        for number in signals:
            request = asyncio.create_task(server_process.convert(client, url, key, content))
            while not request.done():
                await asyncio.wait([request], timeout=0.05)
                for job in running_jobs(pid, folder):
                    send_signal(job, number)
            responses.append(await request)
    return responses


def running_jobs(pid: int, folder: Path) -> list[int]:
    """Returns the ids of processes below the server that have files of a job open."""
    return [job for fork_server in _children(pid) for job in descendants(fork_server) if _uses_files(job, folder)]


def _children(pid: int) -> list[int]:
    with suppress(OSError):
        return [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    return []


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes below a process."""
    return [descendant for child in _children(pid) for descendant in (child, *descendants(child))]


def _uses_files(pid: int, folder: Path) -> bool:
    with suppress(OSError):  # ended since it was listed
        return bool(open_work_files(folder, pid))
    return False


def _kill_descendant(pid: int) -> None:
    if processes := descendants(pid):
        send_signal(random.choice(processes), signal.SIGKILL)


def send_signal(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _is_alive(pid: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
