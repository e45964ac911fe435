"""The code of a worker process: receives one job, converts inside the sandbox, and sends a reply."""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter

from engine import memory_estimate, pipeline, sandbox, verification
from engine.errors import ConversionError, OutOfMemory, StepFailed
from engine.executor import jobs
from engine.executor.jobs import Job, JobResult
from engine.lazy_import import NotLoaded
from engine.media import Raster
from engine.registry import Registry, load_registry

MAX_FILES = 250
"""Files per job; the kernel passes at most 253 descriptors at once."""


def serve(
    connection: socket.socket, layers: Mapping[str, bool], address_space: int, missing_modules: Sequence[str]
) -> None:
    """Waits for one job and its files, runs it and sends the reply. Returns at once if the connection closes instead.

    A request without a job asks for a sandbox self-test; `layers` holds the state of each layer. `address_space` is
    the size of this process's address space at its start, in bytes. `missing_modules` is the list returned by
    `lazy_import.seal`: if it contains a name after the job, the reply names that module instead of a result.
    """
    request, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, MAX_FILES)
    while chunk := connection.recv(1 << 16):
        request += chunk
    if not request:
        return
    job, limits = pickle.loads(request)
    sandbox.limit_resources(seconds=limits.seconds, output=limits.output)

    def limit_memory(size: int) -> None:
        sandbox.limit_memory(address_space + min(size, limits.memory))

    limit_memory(limits.memory)
    if job is None:
        sandbox.forbid_programs(layers)
        reply = jobs.report_reply(sandbox.SandboxReport(dict(layers), sandbox.run_selftest()))
    else:
        reply = _run_job(load_registry(), job, descriptors, layers, limit_memory)
    if missing_modules:
        reply = jobs.missing_module_reply(missing_modules[0])
    # As a file: the sandbox denies the system calls that send.
    with os.fdopen(connection.detach(), "wb") as stream:
        stream.write(reply)


def _run_job(
    registry: Registry,
    job: Job,
    descriptors: list[int],
    layers: Mapping[str, bool],
    limit_memory: Callable[[int], None],
) -> bytes:
    try:
        return jobs.result_reply(convert(registry, job, descriptors, layers, limit_memory))
    except ConversionError as error:
        return jobs.error_reply(error)
    except MemoryError:
        return jobs.error_reply(OutOfMemory("The conversion exceeded its memory limit."))
    except (Exception, NotLoaded) as error:
        return jobs.error_reply(StepFailed(f"The conversion failed: {type(error).__name__}."))


def convert(
    registry: Registry,
    job: Job,
    descriptors: list[int],
    layers: Mapping[str, bool],
    limit_memory: Callable[[int], None],
) -> JobResult:
    """Runs the job in this process. `descriptors` are its open files, the output last. Raises ConversionError.

    Calls `limit_memory` with the job's limit in bytes, and again with a lower one when a header states the size.
    """
    plan = registry.plan([registry.formats[name] for _, name in job.inputs], job.target, job.tool)
    if not plan.programs:
        sandbox.forbid_programs(layers)
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    limit_memory(memory_estimate.allowed_bytes(plan, files=files))

    def on_decoded(payload: object) -> None:
        if isinstance(payload, Raster) and payload.peak_pixels is not None:
            limit_memory(memory_estimate.allowed_bytes(plan, payload.peak_pixels, files))

    result = pipeline.run(plan, map(_read, sources), job.options, on_decoded)
    started = perf_counter()
    verification.verify(registry, plan, result, job.options)
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


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
