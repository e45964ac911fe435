"""The code of a worker process: runs jobs of one account, one after the other, inside the sandbox.

The jobs of an account share the memory of the process, its folder and its limits for the life of a process. Each job
has its own descriptors and soft limits. The process refuses jobs of a second account.
"""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter

from engine import memory_estimate, pipeline, sandbox, verification
from engine.errors import ConversionError, OutOfMemory, StepFailed
from engine.executor import jobs
from engine.executor.jobs import JobLimits, JobResult, Request
from engine.media import Raster
from engine.options import OptionValues
from engine.planner import Plan
from engine.registry import Registry, load_registry

MAX_FILES = 250
"""Files per job; the kernel passes at most 253 descriptors at once."""

CONNECTION = 3
"""The descriptor of the connection; all higher ones are closed between jobs."""

_MAX_DESCRIPTORS = 256 - CONNECTION - 1  # the process's limit on open files


class Worker:
    """Serves requests on `connection`. `layers` holds the state of each sandbox layer.

    `address_space` is the size of this process's address space at its start, in bytes.
    """

    def __init__(self, connection: socket.socket, layers: Mapping[str, bool], address_space: int) -> None:
        self._connection = connection
        self._layers = layers
        self._address_space = address_space
        self._programs_forbidden = False
        self._initial_state = _state()
        self._descriptors = select.poll()
        for descriptor in range(CONNECTION + 1, CONNECTION + 1 + _MAX_DESCRIPTORS):
            self._descriptors.register(descriptor, 0)

    def serve(self) -> None:
        """Serves requests of one account until the connection closes or a request is final.

        A request of another account gets an error as its reply and ends the process.
        """
        limits = JobLimits()
        sandbox.limit_process(memory=self._address_space + limits.memory, output=limits.output)
        account: str | None = None
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._connection, jobs.MAX_MESSAGE, MAX_FILES)
            if not message:
                return
            request = Request.decode(message)
            account = request.account if account is None else account
            if request.account != account:
                self._send(jobs.error_reply(StepFailed("The process belongs to another account.")))
                return
            self._send(self._reply(request, descriptors))
            if request.final:
                return

    def _send(self, reply: bytes) -> None:
        os.write(self._connection.fileno(), reply)  # the sandbox denies the system calls that send

    def _reply(self, request: Request, descriptors: list[int]) -> bytes:
        sandbox.limit_job(seconds=request.limits.seconds, output=request.limits.output, final=request.final)
        self._limit_memory(request, request.limits.memory)
        try:
            if not request.target:
                self._forbid_programs()
                return jobs.report_reply(sandbox.SandboxReport(dict(self._layers), sandbox.run_selftest()))
            result = self._run(request, descriptors)
            return jobs.result_reply(result, reusable=self._unchanged())
        except ConversionError as error:
            return jobs.error_reply(error)
        except MemoryError:
            return jobs.error_reply(OutOfMemory("The conversion exceeded its memory limit."))
        except Exception as error:
            return jobs.error_reply(StepFailed(f"The conversion failed: {type(error).__name__}."))

    def _run(self, request: Request, descriptors: list[int]) -> JobResult:
        registry = load_registry()
        sources = [registry.formats[name] for name in request.inputs]
        plan = registry.plan(sources, request.target, request.tool, request.options)
        if not plan.programs:
            self._forbid_programs()
        return convert(registry, plan, request.options, descriptors, partial(self._limit_memory, request))

    def _limit_memory(self, request: Request, size: int) -> None:
        sandbox.limit_memory(self._address_space + min(size, request.limits.memory), final=request.final)

    def _forbid_programs(self) -> None:
        if not self._programs_forbidden:  # each call adds a filter
            sandbox.forbid_programs(self._layers)
            self._programs_forbidden = True

    def _unchanged(self) -> bool:
        """Whether the last job left no child process, no open descriptor and the initial state."""
        return _state() == self._initial_state and not _has_children() and not self._has_open_descriptors()

    def _has_open_descriptors(self) -> bool:
        # One system call for all: closed descriptors are reported as invalid.
        return sum(event == select.POLLNVAL for _, event in self._descriptors.poll(0)) < _MAX_DESCRIPTORS


def convert(
    registry: Registry, plan: Plan, options: OptionValues, descriptors: list[int], limit_memory: Callable[[int], None]
) -> JobResult:
    """Runs a plan in this process and verifies the result. Raises ConversionError.

    `descriptors` are the open files of the job, the output last; all are closed after a success. Calls `limit_memory`
    with the job's limit in bytes, and again with a lower one when a header states the size.
    """
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    limit_memory(memory_estimate.allowed_bytes(plan, files=files))

    def on_decoded(payloads: Sequence[object]) -> None:
        peaks = [payload.peak_pixels for payload in payloads if isinstance(payload, Raster)]
        known = [peak for peak in peaks if peak is not None]
        if known and len(known) == len(peaks):
            limit_memory(memory_estimate.allowed_bytes(plan, max(known), files))

    result = pipeline.run(plan, map(_read, sources), options, on_decoded)
    started = perf_counter()
    verification.verify(registry, plan, result, options)
    check_seconds = perf_counter() - started
    with os.fdopen(output, "wb") as file:
        file.write(result.data)
    return JobResult(
        len(result.data),
        result.trace,
        result.warnings,
        result.input_pages,
        result.pages,
        check_seconds,
        sandbox.peak_memory(),
    )


def _state() -> tuple[str, dict[str, str]]:
    return os.getcwd(), os.environ.copy()  # noqa: PTH109


def _has_children() -> bool:
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return True
    return False


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
