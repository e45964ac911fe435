"""Jobs, their limits and their results, and the JSON replies of worker processes.

A reply is untrusted input, because a hostile file may have taken over the process that sent it.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine import memory_estimate
from engine.errors import ConversionError, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.options import Options
from engine.pipeline import Timing, WarningRecord
from engine.planner import Plan
from engine.sandbox import SandboxReport


@dataclass(frozen=True)
class JobLimits:
    """Limits of one job.

    `seconds` from start to reply, bytes of `memory`, bytes of `output` in any one file, bytes of `scratch` space and
    number of `files` in the job's own folder.
    """

    seconds: float = 55.0  # leaves time to reply within a minute
    memory: int = memory_estimate.MAX_BYTES
    output: int = 512 << 20
    scratch: int = 1 << 30
    files: int = 1000


class JobInput(NamedTuple):
    """An input file and the name of its format."""

    path: Path
    format: str


@dataclass(frozen=True)
class Job:
    """A conversion, described by names and paths only.

    `target` is the name of a format, `tool` the name of a tool. The worker process receives the files as open
    descriptors, never their paths. A job that is not `lazy` starts in a process of the light fork server, and is run
    again in a process of the full one if it uses a lazily imported module.
    """

    inputs: tuple[JobInput, ...]
    output: Path
    target: str
    options: Options = Options()
    tool: str | None = None
    lazy: bool = True

    @classmethod
    def of(cls, plan: Plan, paths: Iterable[Path], output: Path, options: Options = Options()) -> Job:
        """Creates the job that runs a plan. `paths` are the files of the plan's sources, in the same order."""
        inputs = tuple(JobInput(path, source.name) for path, source in zip(paths, plan.sources, strict=True))
        tool = None if plan.tool is None else plan.tool.name
        return cls(inputs, output, plan.target.name, options, tool, plan.lazy)


@dataclass(frozen=True)
class JobResult:
    """The result of a job, whose output file has `size` bytes.

    `input_pages` and `pages` are the page counts of the inputs and of the result, set only for tools.
    `check_seconds` is the duration of the verification, `peak_memory` the largest resident size in bytes.
    """

    size: int
    trace: tuple[Timing, ...]
    warnings: tuple[WarningRecord, ...]
    input_pages: tuple[int, ...] = ()
    pages: int | None = None
    check_seconds: float = 0.0
    peak_memory: int = 0

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> JobResult:
        """Raises ValueError, KeyError, TypeError or OverflowError for values of the wrong shape."""
        return cls(
            int(values["size"]),
            tuple(Timing(str(t["step"]), str(t["stage"]), float(t["seconds"])) for t in values["trace"]),
            tuple(WarningRecord(str(warning["code"]), str(warning["message"])) for warning in values["warnings"]),
            tuple(int(pages) for pages in values["input_pages"]),
            None if values["pages"] is None else int(values["pages"]),
            float(values["check_seconds"]),
            int(values["peak_memory"]),
        )


class ModuleMissing(WorkerCrashed):
    """The job uses a module that its process must not load. A process of the full fork server has to run the job."""


def result_reply(result: JobResult) -> bytes:
    return json.dumps({"result": asdict(result)}).encode()


def error_reply(error: ConversionError) -> bytes:
    return json.dumps({"error": error.as_json()}).encode()


def report_reply(report: SandboxReport) -> bytes:
    return json.dumps({"report": asdict(report)}).encode()


def missing_module_reply(module: str) -> bytes:
    return json.dumps({"missing_module": module}).encode()


def parse_result(reply: bytes) -> JobResult:
    """Returns the job's result. Raises the ConversionError of the reply, ModuleMissing or WorkerCrashed."""
    try:
        error: ConversionError
        values = json.loads(reply)
        if "missing_module" in values:
            error = ModuleMissing(f"The worker process must not load the module {values['missing_module']}.")
        elif "error" in values:
            error = ConversionError.from_json(values["error"])
        else:
            return JobResult.from_json(values["result"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        error = WorkerCrashed("The conversion's process sent an unreadable reply.")
    raise error


def parse_report(reply: bytes) -> SandboxReport:
    """Returns the results of a sandbox self-test. Raises WorkerCrashed."""
    try:
        return SandboxReport(**json.loads(reply)["report"])
    except (ValueError, KeyError, TypeError):
        raise WorkerCrashed("The process that tests the sandbox sent an unreadable reply.") from None


def quota_error(limits: JobLimits) -> ConversionError:
    """Returns the error of a process that was killed because its folder exceeded the quota."""
    return StepFailed(
        "The conversion exceeded its disk quota.",
        details={"max_scratch_bytes": limits.scratch, "max_scratch_files": limits.files},
    )


def exit_error(exitcode: int | None) -> ConversionError:
    """Returns the error of a process that ended without a reply. A negative exit code is a signal number."""
    if exitcode == -signal.SIGXCPU:
        return TimedOut("The conversion exceeded its CPU time limit.")
    if exitcode == -signal.SIGKILL:
        return OutOfMemory("The conversion's process was killed.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
