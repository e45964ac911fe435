"""Jobs, their limits and their results, and the messages between the executor and worker processes.

A reply is untrusted input, because a hostile file may have taken over the process that sent it.
"""

from __future__ import annotations

import json
import pickle
import signal
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from engine import memory_estimate
from engine.errors import ConversionError, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.options import NO_OPTIONS, OptionValues
from engine.pipeline import Timing, WarningRecord
from engine.planner import Plan
from engine.sandbox import SandboxReport

MAX_MESSAGE = 64 << 10
"""Bytes of a request or a reply; a socket passes about three times as many in one message."""


@dataclass(frozen=True)
class JobLimits:
    """Limits of one job. The defaults are the largest that a job can have.

    `seconds` from start to reply, bytes of `memory`, bytes of `output` in any one file, bytes of `scratch` space and
    number of `files` in the job's own folder.
    """

    seconds: float = 55.0  # leaves time to reply within a minute
    memory: int = memory_estimate.MAX_BYTES
    output: int = 512 << 20
    scratch: int = 1 << 30
    files: int = 1000


@dataclass(frozen=True)
class Job:
    """A conversion, described by names only; its files are passed as open descriptors.

    `inputs` and `target` are names of formats, `tool` is the name of a tool. An `isolated` job gets a process of its
    own, which ends after the job.
    """

    inputs: tuple[str, ...]
    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    tool: str | None = None
    isolated: bool = True

    @classmethod
    def of(cls, plan: Plan, options: OptionValues = NO_OPTIONS) -> Job:
        """Creates the job that runs a plan."""
        tool = None if plan.tool is None else plan.tool.name
        return cls(tuple(source.name for source in plan.sources), plan.target.name, options, tool, plan.isolated)


@dataclass(frozen=True)
class JobResult:
    """The result of a job, whose output file has `size` bytes.

    `input_pages` and `pages` are the page counts of the inputs and of the result, set only for tools.
    `check_seconds` is the duration of the verification, `peak_memory` the largest resident size of the process in bytes
    since its start, which can be before the job.
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


class Request(NamedTuple):
    """A message to a worker process: a job of an account as names and values, without paths.

    A request without a `target` asks for a sandbox self-test. The process ends after a `final` request.
    """

    account: str
    limits: JobLimits
    final: bool
    inputs: tuple[str, ...] = ()
    target: str = ""
    options: OptionValues = NO_OPTIONS
    tool: str | None = None

    @classmethod
    def of(cls, job: Job, account: str, limits: JobLimits, *, final: bool) -> Request:
        return cls(account, limits, final, job.inputs, job.target, dict(job.options), job.tool)

    def encode(self) -> bytes:
        """Returns the message. Raises StepFailed if it is longer than MAX_MESSAGE."""
        message = pickle.dumps(tuple(self))
        if len(message) > MAX_MESSAGE:
            raise StepFailed("The description of the job is too long.")
        return message

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """Rebuilds a request that the server has sent; never call it with untrusted data."""
        return cls(*pickle.loads(message))


def result_reply(result: JobResult, *, reusable: bool) -> bytes:
    """Returns the message for a result. `reusable` is False if the job has changed the state of its process."""
    return _reply({"result": asdict(result), "reusable": reusable})


def error_reply(error: ConversionError) -> bytes:
    return _reply({"error": error.as_json()})


def report_reply(report: SandboxReport) -> bytes:
    return _reply({"report": asdict(report)})


def _reply(values: dict[str, Any]) -> bytes:
    message = json.dumps(values).encode()
    return message if len(message) <= MAX_MESSAGE else error_reply(StepFailed("The result's description is too long."))


def parse_result(reply: bytes) -> tuple[JobResult, bool]:
    """Returns the job's result, and whether its process can be used again.

    Raises the ConversionError of the reply, or WorkerCrashed.
    """
    try:
        error: ConversionError
        values = json.loads(reply)
        if "error" not in values:
            return JobResult.from_json(values["result"]), values.get("reusable") is True
        error = ConversionError.from_json(values["error"])
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
