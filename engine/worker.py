"""What runs in a job's process, behind its walls: read the job, convert, answer."""

from __future__ import annotations

import json
import os
import pickle
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from engine import inspection, memory, pipeline, sandbox
from engine.conversions import Options
from engine.errors import ConversionError, OutOfMemory, StepFailed
from engine.lazy_import import NotLoaded
from engine.media import Raster
from engine.planner import Plan
from engine.registry import Registry, load_registry


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds on the clock, bytes of memory, bytes of a file it writes.

    Its own folder holds `scratch` bytes in so many `files`.
    """

    seconds: float = 55.0  # so that an answer comes within a minute
    memory: int = memory.MOST
    output: int = 512 << 20
    scratch: int = 1 << 30
    files: int = 1000


class Input(NamedTuple):
    """A file to read, and the name of its format."""

    path: Path
    format: str


@dataclass(frozen=True)
class Job:
    """A conversion in names and paths, because functions and megabytes should not travel.

    `target` names a format, `tool` the tool that makes one of many or something else of one. The job's process gets
    the files opened, and sees none of these paths. It begins in a process that has loaded all modules if `lazy`, as
    the plan tells, and is moved to one if it turns out to need it.
    """

    inputs: tuple[Input, ...]
    output: Path
    target: str
    options: Options = Options()
    tool: str | None = None
    lazy: bool = True

    @classmethod
    def of(cls, plan: Plan, paths: Iterable[Path], output: Path, options: Options = Options()) -> Job:
        """The job that carries the plan out: `paths` are those of its sources."""
        inputs = tuple(Input(path, source.name) for path, source in zip(paths, plan.sources, strict=True))
        tool = None if plan.tool is None else plan.tool.name
        return cls(inputs, output, plan.target.name, options, tool, plan.lazy)


@dataclass(frozen=True)
class Done:
    """A job's result lies at its output: `size` bytes, made in the steps of `trace`.

    With a tool, `input_pages` are the pages of each input, and `pages` those of the result. To open the result again
    took `check_seconds`, and the process had at most `peak_memory` bytes.
    """

    size: int
    trace: tuple[pipeline.Timing, ...]
    warnings: tuple[pipeline.Warned, ...]
    input_pages: tuple[int, ...] = ()
    pages: int | None = None
    check_seconds: float = 0.0
    peak_memory: int = 0


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
) -> Done:
    """Runs the job in this process, on its open files: the inputs and the output. Raises ConversionError.

    `allow` is told how many bytes of memory the job may take: fewer once a header has told the pixels.
    """
    plan = registry.plan([registry.formats[name] for _, name in job.inputs], job.target, job.tool)
    if not plan.programs:
        sandbox.forbid_programs(layers)
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    allow(memory.allowed(plan, files=files))

    def opened(payload: object) -> None:
        if isinstance(payload, Raster) and payload.held is not None:
            allow(memory.allowed(plan, payload.held, files))

    result = pipeline.run(plan, map(_read, sources), job.options, opened)
    started = perf_counter()
    inspection.inspect(registry, plan, result, job.options)
    checked = perf_counter() - started
    with os.fdopen(output, "wb") as file:
        file.write(result.data)
    size, peak = len(result.data), sandbox.peak_memory()
    return Done(size, result.trace, result.warnings, result.input_pages, result.pages, checked, peak)


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
