"""What runs in a job's process: read the job, put up the walls, convert, answer."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine import inspection, pipeline, sandbox
from engine.conversions import Options
from engine.errors import ConversionError, OutOfMemory, StepFailed
from engine.registry import Registry, load_registry


@dataclass(frozen=True)
class Limits:
    """What one job may take: seconds on the clock, bytes of addresses, bytes of a file it writes."""

    seconds: float = 60.0
    memory: int = 3 << 30
    output: int = 512 << 20


class Input(NamedTuple):
    """A file to read, and the name of its format."""

    path: Path
    format: str


@dataclass(frozen=True)
class Job:
    """A conversion in names and paths, because functions and megabytes should not travel.

    `target` names a format, `tool` the tool that makes one of many or something else of one. The folder of
    `output` is the job's own; nothing else is written to.
    """

    inputs: tuple[Input, ...]
    output: Path
    target: str
    options: Options = Options()
    tool: str | None = None


@dataclass(frozen=True)
class Done:
    """A job's result lies at its output: `size` bytes, made in the steps of `trace`.

    With a tool, `input_pages` are the pages of each input, and `pages` those of the result.
    """

    size: int
    trace: tuple[pipeline.Timing, ...]
    warnings: tuple[pipeline.Warned, ...]
    input_pages: tuple[int, ...] = ()
    pages: int | None = None


def serve(connection: socket.socket) -> None:
    """Waits for one job, runs it, answers, and ends. An end of file instead of a job ends it at once."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the server, which tells us
    _silence()
    registry = load_registry()
    with connection, connection.makefile("rb") as stream:
        request = stream.read()
        if not request:
            return
        job, limits = pickle.loads(request)
        sandbox.enter(memory=limits.memory, seconds=limits.seconds, output=limits.output)
        os.environ["TMPDIR"] = str(job.output.parent)
        connection.sendall(json.dumps(_answer(registry, job)).encode())
        connection.shutdown(socket.SHUT_WR)
        # The interpreter would spend milliseconds on tidying up what ends with the process anyway.
        os._exit(0)


def _silence() -> None:
    """Libraries print what hostile files make them say; none of it belongs on the server's terminal or log."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _answer(registry: Registry, job: Job) -> dict[str, Any]:
    """The outcome as JSON: whoever reads it need not trust this process."""
    try:
        done = convert(registry, job)
    except ConversionError as error:
        return {"error": error.as_json()}
    except MemoryError:
        return {"error": OutOfMemory("The conversion needs more memory than it may have.").as_json()}
    except Exception as error:
        return {"error": StepFailed(f"The conversion failed: {type(error).__name__}.").as_json()}
    return {"done": asdict(done)}


def convert(registry: Registry, job: Job) -> Done:
    """Runs the job in this process. Raises ConversionError where it cannot be done."""
    plan = registry.plan([registry.formats[name] for _, name in job.inputs], job.target, job.tool)
    result = pipeline.run(plan, (path.read_bytes() for path, _ in job.inputs), job.options)
    inspection.inspect(registry, plan, result, job.options)
    job.output.write_bytes(result.data)
    return Done(len(result.data), result.trace, result.warnings, result.input_pages, result.pages)
