"""What the answer of a job's process means, which need not be true, and what its end without one."""

from __future__ import annotations

import json
import signal

from engine.errors import ConversionError, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.pipeline import Timing, Warned
from engine.sandbox import Findings
from engine.worker import Done, Limits


class Unequipped(WorkerCrashed):
    """The process goes without a module that its job needs, so that the job is to be run by another."""


def findings(answer: bytes) -> Findings:
    """What the process found out about its sandbox. Raises WorkerCrashed."""
    try:
        return Findings(**json.loads(answer)["findings"])
    except (ValueError, KeyError, TypeError):
        raise WorkerCrashed("The process that examines the sandbox gave no readable answer.") from None


def outcome(answer: bytes) -> Done:
    """What the process did. Raises the ConversionError that it tells of, Unequipped, or WorkerCrashed."""
    try:
        error: ConversionError
        values = json.loads(answer)
        if "missing" in values:
            error = Unequipped(f"The conversion's process goes without {values['missing']}.")
        elif "error" in values:
            error = ConversionError.from_json(values["error"])
        else:
            done = values["done"]
            trace = tuple(Timing(str(t["step"]), float(t["seconds"])) for t in done["trace"])
            warned = tuple(Warned(str(w["code"]), str(w["message"])) for w in done["warnings"])
            counted = tuple(int(pages) for pages in done["input_pages"])
            pages = None if done["pages"] is None else int(done["pages"])
            effort = float(done["check_seconds"]), int(done["peak_memory"])
            return Done(int(done["size"]), trace, warned, counted, pages, *effort)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        error = WorkerCrashed("The conversion's process gave no readable answer.")
    raise error


def overflow(limits: Limits) -> ConversionError:
    """The end of a process that has written too much."""
    return StepFailed(
        "The conversion wrote more than it may.",
        details={"max_scratch_bytes": limits.scratch, "max_scratch_files": limits.files},
    )


def death(exitcode: int | None) -> ConversionError:
    """The end of a process without an answer, by its exit code: the negative number of a signal that killed it."""
    if exitcode == -signal.SIGXCPU:
        return TimedOut("The conversion took more processor time than it may have.")
    if exitcode == -signal.SIGKILL:
        return OutOfMemory("The conversion's process was killed.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
