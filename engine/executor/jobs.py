"""Jobs, their limits and their results: the values that cross the process boundary. A reply is untrusted input."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from engine import memory_estimate, pipeline
from engine.errors import ConversionError, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.options import Options
from engine.pipeline import Timing, WarningRecord
from engine.planner import Plan
from engine.sandbox import SandboxReport


@dataclass(frozen=True)
class JobLimits:
    """What one job may take: seconds on the clock, bytes of memory, bytes of a file it writes.

    Its own folder holds `scratch` bytes in so many `files`.
    """

    seconds: float = 55.0  # so that an answer comes within a minute
    memory: int = memory_estimate.MOST
    output: int = 512 << 20
    scratch: int = 1 << 30
    files: int = 1000


class JobInput(NamedTuple):
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

    inputs: tuple[JobInput, ...]
    output: Path
    target: str
    options: Options = Options()
    tool: str | None = None
    lazy: bool = True

    @classmethod
    def of(cls, plan: Plan, paths: Iterable[Path], output: Path, options: Options = Options()) -> Job:
        """The job that carries the plan out: `paths` are those of its sources."""
        inputs = tuple(JobInput(path, source.name) for path, source in zip(paths, plan.sources, strict=True))
        tool = None if plan.tool is None else plan.tool.name
        return cls(inputs, output, plan.target.name, options, tool, plan.lazy)


@dataclass(frozen=True)
class JobResult:
    """A job's result lies at its output: `size` bytes, made in the steps of `trace`.

    With a tool, `input_pages` are the pages of each input, and `pages` those of the result. To open the result again
    took `check_seconds`, and the process had at most `peak_memory` bytes.
    """

    size: int
    trace: tuple[pipeline.Timing, ...]
    warnings: tuple[pipeline.WarningRecord, ...]
    input_pages: tuple[int, ...] = ()
    pages: int | None = None
    check_seconds: float = 0.0
    peak_memory: int = 0


class ModuleMissing(WorkerCrashed):
    """The process goes without a module that its job needs, so that the job is to be run by another."""


def parse_report(answer: bytes) -> SandboxReport:
    """What the process found out about its sandbox. Raises WorkerCrashed."""
    try:
        return SandboxReport(**json.loads(answer)["findings"])
    except (ValueError, KeyError, TypeError):
        raise WorkerCrashed("The process that examines the sandbox gave no readable answer.") from None


def parse_result(answer: bytes) -> JobResult:
    """What the process did. Raises the ConversionError that it tells of, Unequipped, or WorkerCrashed."""
    try:
        error: ConversionError
        values = json.loads(answer)
        if "missing" in values:
            error = ModuleMissing(f"The conversion's process goes without {values['missing']}.")
        elif "error" in values:
            error = ConversionError.from_json(values["error"])
        else:
            done = values["done"]
            trace = tuple(Timing(str(t["step"]), float(t["seconds"])) for t in done["trace"])
            warned = tuple(WarningRecord(str(w["code"]), str(w["message"])) for w in done["warnings"])
            counted = tuple(int(pages) for pages in done["input_pages"])
            pages = None if done["pages"] is None else int(done["pages"])
            effort = float(done["check_seconds"]), int(done["peak_memory"])
            return JobResult(int(done["size"]), trace, warned, counted, pages, *effort)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        error = WorkerCrashed("The conversion's process gave no readable answer.")
    raise error


def quota_error(limits: JobLimits) -> ConversionError:
    """The end of a process that has written too much."""
    return StepFailed(
        "The conversion wrote more than it may.",
        details={"max_scratch_bytes": limits.scratch, "max_scratch_files": limits.files},
    )


def exit_error(exitcode: int | None) -> ConversionError:
    """The end of a process without an answer, by its exit code: the negative number of a signal that killed it."""
    if exitcode == -signal.SIGXCPU:
        return TimedOut("The conversion took more processor time than it may have.")
    if exitcode == -signal.SIGKILL:
        return OutOfMemory("The conversion's process was killed.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
