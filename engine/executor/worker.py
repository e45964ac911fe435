"""What runs in a job's process, behind its walls: read the job, convert, answer."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from engine import memory_estimate, pipeline, sandbox, verification
from engine.errors import ConversionError, OutOfMemory, StepFailed
from engine.executor.jobs import Job, JobResult
from engine.lazy_import import NotLoaded
from engine.media import Raster
from engine.registry import Registry, load_registry

MAX_FILES = 250
"""Files that can be handed to a job; the kernel passes 253 at a time."""


def serve(line: socket.socket, layers: Mapping[str, bool], addresses: int, missing: Sequence[str]) -> None:
    """Waits for one job and its files, runs it, and answers. An end of file instead of a job ends it at once.

    No job is a question about the sandbox, of which `layers` tells what is up. `addresses` are the bytes of them that
    this process began with. `missing` tells of modules that were asked for in vain: a job that did has not ended well,
    whatever it says.
    """
    request, descriptors, _, _ = socket.recv_fds(line, 1 << 16, MAX_FILES)
    while chunk := line.recv(1 << 16):
        request += chunk
    if not request:
        return
    job, limits = pickle.loads(request)
    sandbox.bound(seconds=limits.seconds, output=limits.output)

    def allow(size: int) -> None:
        sandbox.bound_memory(addresses + min(size, limits.memory))

    allow(limits.memory)
    answer = _findings(layers) if job is None else _answer(load_registry(), job, descriptors, layers, allow)
    if missing:
        answer = {"missing": missing[0]}
    with os.fdopen(line.detach(), "wb") as stream:  # sending is a system call that the sandbox denies
        stream.write(json.dumps(answer, default=vars).encode())


def _findings(layers: Mapping[str, bool]) -> dict[str, Any]:
    sandbox.forbid_programs(layers)
    return {"findings": {"layers": layers, "proofs": sandbox.attempt()}}


def _answer(
    registry: Registry, job: Job, descriptors: list[int], layers: Mapping[str, bool], allow: Callable[[int], None]
) -> dict[str, Any]:
    """The outcome, to be sent as JSON: whoever reads it need not trust this process."""
    try:
        done = convert(registry, job, descriptors, layers, allow)
    except ConversionError as error:
        return {"error": error.as_json()}
    except MemoryError:
        return {"error": OutOfMemory("The conversion needs more memory than it may have.").as_json()}
    except (Exception, NotLoaded) as error:
        return {"error": StepFailed(f"The conversion failed: {type(error).__name__}.").as_json()}
    return {"done": done}


def convert(
    registry: Registry, job: Job, descriptors: list[int], layers: Mapping[str, bool], allow: Callable[[int], None]
) -> JobResult:
    """Runs the job in this process, on its open files: the inputs and the output. Raises ConversionError.

    `allow` is told how many bytes of memory the job may take: fewer once a header has told the pixels.
    """
    plan = registry.plan([registry.formats[name] for _, name in job.inputs], job.target, job.tool)
    if not plan.programs:
        sandbox.forbid_programs(layers)
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    allow(memory_estimate.allowed_bytes(plan, files=files))

    def opened(payload: object) -> None:
        if isinstance(payload, Raster) and payload.peak_pixels is not None:
            allow(memory_estimate.allowed_bytes(plan, payload.peak_pixels, files))

    result = pipeline.run(plan, map(_read, sources), job.options, opened)
    started = perf_counter()
    verification.verify(registry, plan, result, job.options)
    checked = perf_counter() - started
    with os.fdopen(output, "wb") as file:
        file.write(result.data)
    size, peak = len(result.data), sandbox.peak_memory()
    return JobResult(size, result.trace, result.warnings, result.input_pages, result.pages, checked, peak)


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
