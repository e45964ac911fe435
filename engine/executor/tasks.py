"""Tasks, their limits and their results, and the messages between the executor and worker processes.

A reply is untrusted input, because a hostile file may have taken over the process that sent it.
"""

from __future__ import annotations

import json
import pickle
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, is_dataclass, replace
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeAlias

from pydantic import Field, TypeAdapter

from engine import memory_estimate, sandbox
from engine.conversions import AnyConversion
from engine.errors import ConversionError, Killed, OutOfMemory, StepFailed, TimedOut, WorkerCrashed
from engine.media import DOCUMENT, RASTER
from engine.network import FetchedPage
from engine.options import NO_OPTIONS, OptionValues
from engine.outcome import Outcome, Size, Text
from engine.pipeline import PAGES, Seconds, Timing
from engine.planner import Plan
from engine.sandbox import SandboxReport

MAX_MESSAGE = 64 << 10
"""Bytes of a request or a reply; a socket passes about three times as many in one message."""

_MAX_NAME = 255  # characters of the name of an input

DEFAULT_NAME = "page"
"""The name of files in a ZIP whose input has no name."""

_Number: TypeAlias = Annotated[int, Field(gt=-1 << 53, lt=1 << 53)] | Annotated[float, Field(allow_inf_nan=False)]
_Scalar: TypeAlias = Text | bool | _Number | None


class UnreadableReply(WorkerCrashed):
    """The reply is not one that a worker process would send."""


@dataclass(frozen=True)
class TaskLimits:
    """Limits of one task. The defaults are for a client that waits; they are maximums, except the times.

    `seconds` from start to reply, `cpu` seconds of its processes together, bytes of `memory`, bytes of `output` in any
    one file, bytes of `scratch` space and number of `files` in the task's own folder.
    """

    seconds: float = 55.0  # leaves time to reply within a minute
    cpu: float = 110.0  # two cores
    memory: int = memory_estimate.MAX_BYTES
    output: int = 512 << 20
    scratch: int = 1 << 30
    files: int = 1000


@dataclass(frozen=True)
class TaskOutput:
    """A result that a task makes of its input, and its options.

    `targets` are names of formats; of several, the smallest file is the result. Results with a `name`, which can be
    empty, are files of a ZIP. `inputs` are the indexes of the files of the task that it needs, the last ones for the
    options `file_names`.
    """

    targets: tuple[str, ...]
    options: OptionValues = field(default_factory=dict, repr=False)
    name: str | None = None
    inputs: tuple[int, ...] = (0,)
    file_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Task:
    """A conversion, described by names only; its files are passed as open descriptors.

    `inputs` and `target` are names of formats, `tool` is the name of a tool; the last inputs are the files of its
    parameters `file_names`. Its process is forked from the `template`; with `own_process`, it is new, and ends after
    the task. `name` is the file name, without extension, of files in a ZIP; `input_names` belong to the inputs,
    with an extension only for the last ones.
    With `outputs`, which need an input and no tool, `target`, `options` and `file_names` are not used; the format of an
    input that no output needs can be empty or missing.
    A `dry_run` finds out what the conversion would result in, and writes nothing. `memory` is the expected use in
    bytes, by which an executor may place the task; TaskLimits has the limit. A task that `draws_pages` of a document
    can share them with other processes. One that `runs_programs` has processes below its own. One whose steps may make
    requests has the `page` that its input was fetched from, or the only `urls` to which they may.
    """

    inputs: tuple[str, ...]
    target: str
    options: OptionValues = field(default_factory=dict, repr=False)
    tool: str | None = None
    own_process: bool = True
    template: str = ""
    name: str = DEFAULT_NAME
    dry_run: bool = False
    memory: int = 0
    file_names: tuple[str, ...] = ()
    input_names: tuple[str, ...] = ()
    outputs: tuple[TaskOutput, ...] = ()
    draws_pages: bool = False
    runs_programs: bool = False
    page: FetchedPage | None = None
    urls: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        options: OptionValues = NO_OPTIONS,
        name: str = DEFAULT_NAME,
        *,
        dry_run: bool = False,
        memory: int = 0,
        input_names: Iterable[str] = (),
    ) -> Task:
        """Creates the task that runs a plan, or a dry run of it."""
        return cls(
            inputs=tuple(source.name for source in plan.sources),
            target=plan.target.name,
            options=options,
            tool=None if plan.tool is None else plan.tool.name,
            own_process=plan.own_process,
            template=plan.template,
            name=name,
            dry_run=dry_run,
            memory=memory,
            file_names=plan.file_names,
            input_names=tuple(input_name[:_MAX_NAME] for input_name in input_names),
            draws_pages=PAGES in options
            and any(map(_draws, plan.conversions))
            and not (plan.tool or plan.target.paged),
            runs_programs=bool(plan.programs),
            urls=_urls(plan, options),
        )


def _urls(plan: Plan, options: OptionValues) -> tuple[str, ...]:
    """The values of options that are URLs, also those of stages."""
    named = {name: str(value) for name, value in options.items() if name in plan.options}
    own = tuple(value for name, value in named.items() if plan.options[name].schema.get("format") == "uri")
    return own + tuple(url for stage in plan.stages for url in _urls(stage.plan, stage.options))


def _draws(step: AnyConversion) -> bool:
    return step.source == DOCUMENT and step.target == RASTER


@dataclass(frozen=True)
class PlannedOutput:
    """An output of a task with its plans: several if the smallest file is the result."""

    plans: tuple[Plan, ...]
    output: TaskOutput


def task_of(
    outputs: Sequence[PlannedOutput],
    name: str,
    *,
    memory: int = 0,
    input_names: Iterable[str] = (),
    dry_run: bool = False,
) -> Task:
    """Creates the task that makes the outputs of an input, as `Task.of` does for one plan."""
    plans = [plan for one in outputs for plan in one.plans]
    plan = max(plans, key=lambda plan: (plan.own_process, bool(plan.template)))
    first = outputs[0].output
    task = Task.of(plan, first.options, name, memory=memory, input_names=input_names, dry_run=dry_run)
    task = replace(task, runs_programs=any(one.programs for one in plans))
    if len(plans) == 1 and first.name is None:
        return task
    formats: dict[int, str] = {}
    for one in outputs:
        formats |= zip(one.output.inputs, (source.name for source in one.plans[0].sources), strict=True)
    inputs = tuple(formats.get(index, "") for index in range(max(formats) + 1))  # up to the last one that is needed
    return replace(task, inputs=inputs, options={}, outputs=tuple(one.output for one in outputs), file_names=())


@dataclass(frozen=True)
class TaskResult:
    """The outcome of a task and its measurements.

    `trace` has the duration of each step, `check_seconds` is the duration of the verification. `peak_memory` is the
    largest resident size of the process in bytes since its start, which can be before the task. `seconds` is the time
    of the task by TaskTime, as the executor measured it.
    """

    outcome: Outcome
    trace: tuple[Timing, ...] = ()
    check_seconds: Seconds = 0.0
    peak_memory: Size = 0
    seconds: Seconds = 0.0


@dataclass(frozen=True)
class Identification:
    """The task to find the format of a file by its content and its name, without the named formats.

    It has two descriptors: the file, and a file in which each line is the format whose sniffer was called next.
    """

    filename: str
    without: tuple[str, ...] = ()


class Request(NamedTuple):
    """A message to a worker process: a task of an account, as names and values without paths, or an identification.

    A request without a `task` asks for a sandbox self-test. The process ends after a `final` request. A process that
    `assists` has no output; it and the one that leads have two more descriptors, those of PageSharing. A task that
    `has_network` has a last one, of Network.
    """

    account: str
    limits: TaskLimits
    final: bool
    task: Task | Identification | None = None
    assists: bool = False
    has_network: bool = False

    def encode(self) -> bytes:
        """Returns the message. Raises StepFailed if it is longer than MAX_MESSAGE."""
        message = pickle.dumps(tuple(self))
        if len(message) > MAX_MESSAGE:
            raise StepFailed("The description of the task is too long.")
        return message

    @classmethod
    def decode(cls, message: bytes) -> Request:
        """Rebuilds a request that the server has sent; never call it with untrusted data."""
        return cls(*pickle.loads(message))


def result_reply(result: TaskResult, *, reusable: bool) -> bytes:
    """Returns the message for a result. `reusable` is False if the task has changed the state of its process."""
    return _reply({"result": result, "reusable": reusable})


def error_reply(error: ConversionError) -> bytes:
    return _reply({"error": {**error.as_json(), "cause": error.cause}})


def identified_reply(format: str | None, errors: Mapping[str, str], *, reusable: bool) -> bytes:
    """Returns the message for a format, or None, and the errors of sniffers. `reusable` is as for a result."""
    return _reply({"identified": {"format": format, "errors": errors}, "reusable": reusable})


def report_reply(report: SandboxReport) -> bytes:
    return _reply({"report": report})


def _reply(values: dict[str, Any]) -> bytes:
    message = json.dumps(_printable(values), ensure_ascii=False).encode()
    return message if len(message) <= MAX_MESSAGE else error_reply(StepFailed("The result's description is too long."))


def _printable(value: Any) -> Any:
    """Returns JSON values of data classes, without their defaults, and without control characters.

    Files can bring control characters into messages.
    """
    match value:
        case str():
            return value if value.isprintable() else "".join(c if c.isprintable() else " " for c in value)
        case dict():
            return {_printable(name): _printable(item) for name, item in value.items()}
        case list() | tuple():
            return [_printable(item) for item in value]
        case _ if is_dataclass(value):
            defaults = vars(type(value))
            given = {name: item for name, item in vars(value).items() if item != defaults.get(name, MISSING)}
            return _printable(given)
        case _:
            return value


@dataclass(frozen=True)
class _ErrorValues:
    """The values of `ConversionError.as_json`, and the cause."""

    kind: Text
    message: Text
    reason: Text | None
    param: Text | None
    details: dict[Text, _Scalar | list[_Scalar] | dict[Text, _Scalar]]
    seconds: Seconds | None = None
    cause: Text | None = None


@dataclass(frozen=True)
class Identified:
    """The name of a format, None for an unknown one, and the errors of sniffers by the names of their formats."""

    format: Text | None
    errors: dict[Text, Text]


@dataclass(frozen=True)
class _Reply:
    """A reply, which has a result, a format, an error or a report."""

    result: TaskResult | None = None
    identified: Identified | None = None
    error: _ErrorValues | None = None
    report: SandboxReport | None = None
    reusable: bool = False


@cache  # not at import: workers do not need it
def _replies() -> TypeAdapter[_Reply]:
    return TypeAdapter(_Reply)


def _parse(reply: bytes) -> _Reply:
    """Returns the reply. Raises UnreadableReply unless it is strict JSON, in UTF-8, with the right types and ranges."""
    try:
        if len(reply) <= MAX_MESSAGE:
            return _replies().validate_json(reply, strict=True)
    except ValueError:
        pass
    raise _unreadable()


def _unreadable() -> UnreadableReply:
    return UnreadableReply("The conversion's process sent an unreadable reply.")


def parse_result(message: bytes) -> tuple[TaskResult, bool]:
    """Returns the task's result, and whether its process can be used again.

    Raises the ConversionError of the reply, or UnreadableReply.
    """
    reply = _parse(message)
    if reply.error is not None:
        error = ConversionError.from_json(asdict(reply.error))
        error.cause = reply.error.cause
        raise error
    if reply.result is None:
        raise _unreadable()
    return reply.result, reply.reusable


def parse_identified(message: bytes) -> tuple[Identified, bool]:
    """Returns what a process has found out about a file, and whether it can be used again. Raises UnreadableReply."""
    reply = _parse(message)
    if reply.identified is None:
        raise _unreadable()
    return reply.identified, reply.reusable


def parse_report(message: bytes) -> SandboxReport:
    """Returns the results of a sandbox self-test. Raises UnreadableReply."""
    report = _parse(message).report
    if report is None or not sandbox.LAYERS.issubset(report.layers):
        raise _unreadable()
    return report


def quota_error(limits: TaskLimits) -> ConversionError:
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
        return Killed("The conversion's process was killed.")
    if exitcode == -signal.SIGABRT:  # libraries in C++ and Rust abort if they get no memory
        return OutOfMemory("The conversion's process ended itself, as it does when it exceeds its memory limit.")
    return WorkerCrashed("The conversion's process crashed.", details={"exit_code": exitcode})
