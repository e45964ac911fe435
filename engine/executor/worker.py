"""The code of a worker process: runs tasks of one account, one after the other, inside the sandbox.

The tasks of an account share the memory of the process, its folder and its limits for the life of a process. Each task
has its own descriptors and soft limits. The process refuses tasks of a second account.
"""

import errno
import os
import select
import socket
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import IO, NamedTuple, NoReturn

from engine import dry_run, memory_estimate, pipeline, sandbox, verification
from engine.detection import OpenFile
from engine.errors import ConversionError, OutOfMemory, StepFailed, TooLarge
from engine.executor import tasks
from engine.executor.result_files import ResultWriter, page_name
from engine.executor.several import heaviest, plan_outputs, write_outputs
from engine.executor.tasks import Identification, PlannedOutput, Request, Task, TaskLimits, TaskOutput, TaskResult
from engine.formats import ANY_FILE
from engine.media import Raster
from engine.network import Network
from engine.options import NETWORK, PROGRAM, OptionValues
from engine.page_sharing import PageSharing
from engine.planner import Plan
from engine.registry import Registry, load_registry
from engine.shared_steps import PlanSteps

MAX_FILES = 250
"""Files per task; the kernel passes at most 253 descriptors at once."""

CONNECTION = 3
"""The descriptor of the connection; all higher ones are closed between tasks."""

_MAX_DESCRIPTORS = 256 - CONNECTION - 1  # the process's limit on open files


def run_worker(
    connection: int,
    folder: str,
    prepare: Callable[[], tuple[Mapping[str, bool], int]],
    programs: Sequence[Callable[[], object]] = (),
) -> NoReturn:
    """Serves requests on the descriptor `connection` in `folder`, then ends this process. Closes all other descriptors.

    `prepare` applies the sandbox. It returns the state of each layer, and the size of the address space before it.
    `programs` are those of Worker.
    """
    try:
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        layers, address_space = prepare()
        _keep_only(connection)
        Worker(socket.socket(fileno=CONNECTION), layers, address_space, programs).serve()
    except Exception:
        traceback.print_exc()  # an error of this package; errors of tasks are sent as replies
    finally:
        # A regular exit spends milliseconds on cleaning up the interpreter.
        os._exit(0)


class Worker:
    """Serves requests on `connection`. `layers` holds the state of each sandbox layer.

    `address_space` is the size of this process's address space at its start, in bytes. Functions start the `programs`
    that are kept for all tasks of the process, whose steps get what they return. The address space is then not limited,
    as programs reserve much more than they use.
    """

    def __init__(
        self,
        connection: socket.socket,
        layers: Mapping[str, bool],
        address_space: int,
        programs: Sequence[Callable[[], object]] = (),
    ) -> None:
        self._connection = connection
        self._layers = layers
        self._address_space = address_space
        self._keeps_program = bool(programs)
        self._program: dict[str, object] = {}
        for start in programs:
            with suppress(ConversionError, OSError):  # raised again by tasks
                self._program[PROGRAM] = start()
        self._programs_forbidden = False
        self._initial = _ProcessState() if programs else None

    def serve(self) -> None:
        """Serves requests of one account until the connection closes or a request is final.

        A request of another account gets an error as its reply and ends the process.
        """
        limits = TaskLimits()
        memory = None if self._keeps_program else self._address_space + limits.memory
        sandbox.limit_process(memory=memory, output=limits.output)
        account: str | None = None
        while True:
            message, descriptors, _, _ = socket.recv_fds(self._connection, tasks.MAX_MESSAGE, MAX_FILES)
            if not message:
                return
            request = Request.decode(message)
            account = request.account if account is None else account
            if request.account != account:
                self._send(tasks.error_reply(StepFailed("The process belongs to another account.")))
                return
            if self._initial is None and not request.final:  # the process ends after the final request in any state
                self._initial = _ProcessState()
            self._send(self._reply(request, descriptors))
            if request.final:
                return

    def _send(self, reply: bytes) -> None:
        os.write(self._connection.fileno(), reply)  # the sandbox denies the system calls that send

    def _reply(self, request: Request, descriptors: list[int]) -> bytes:
        sandbox.limit_task(cpu=request.limits.cpu, output=request.limits.output, final=request.final)
        limit_memory = partial(self._limit_memory, request)
        limit_memory(request.limits.memory)
        try:
            if request.task is None:
                self._forbid_programs()
                return tasks.report_reply(sandbox.SandboxReport(dict(self._layers), sandbox.run_selftest()))
            if isinstance(request.task, Identification):
                self._forbid_programs()
                found, errors = identify(request.task, *descriptors)
                return tasks.identified_reply(found, errors, reusable=self._is_reusable(request))
            with self._provided(request, descriptors) as provided:
                result = self._run(request.task, descriptors, limit_memory, provided, assists=request.assists)
            return tasks.result_reply(result, reusable=self._is_reusable(request))
        except ConversionError as error:
            return tasks.error_reply(error)
        except MemoryError:
            return tasks.error_reply(OutOfMemory("The conversion exceeded its memory limit."))
        except BaseException as error:  # panics of libraries in Rust are no Exceptions
            failure = _failure(error, request.limits)
            failure.__cause__ = error
            return tasks.error_reply(failure)

    @contextmanager
    def _provided(self, request: Request, descriptors: list[int]) -> Iterator[OptionValues]:
        """The program for the steps of a task, and a network if it has one: the last descriptor, which is removed."""
        if not request.has_network or not isinstance(request.task, Task):
            yield self._program
            return
        with closing(Network(descriptors.pop(), request.task.page)) as network:
            yield {**self._program, NETWORK: network}

    def _is_reusable(self, request: Request) -> bool:
        return not request.final and self._initial is not None and self._initial.is_unchanged()

    def _run(
        self,
        task: Task,
        descriptors: list[int],
        limit_memory: Callable[[int], None],
        provided: OptionValues,
        *,
        assists: bool,
    ) -> TaskResult:
        registry = load_registry()
        if task.outputs:
            outputs = [replace(one, options={**one.options, **provided}) for one in task.outputs]
            return self._run_outputs(registry, replace(task, outputs=tuple(outputs)), descriptors, limit_memory)
        sources = [registry.formats.get(name, ANY_FILE) for name in task.inputs]
        # The sender has validated the options. To do so here would take 2 ms of each new process.
        plan = registry.plan(sources, task.target, task.tool, task.options, task.file_names, validated=True)
        if not plan.programs:
            self._forbid_programs()
        options = {**task.options, **provided}
        if task.dry_run:
            return _dry_run(plan, options, descriptors)
        run = partial(convert, registry, plan, options, limit_memory=limit_memory, name=task.name)
        count = len(task.inputs) + (not assists)
        if len(descriptors) == count:
            return run(descriptors, input_names=task.input_names)
        with closing(PageSharing(*descriptors[count:], leads=not assists)) as sharing:
            if assists:
                return assist(plan, options, descriptors[:count], limit_memory, sharing)
            return run(descriptors[:count], sharing=sharing)

    def _run_outputs(
        self, registry: Registry, task: Task, descriptors: list[int], limit_memory: Callable[[int], None]
    ) -> TaskResult:
        planned = plan_outputs(registry, task.inputs, task.outputs)
        if not any(plan.programs for one in planned for plan in one.plans):
            self._forbid_programs()
        return convert_outputs(registry, planned, descriptors, limit_memory, task.name)

    def _limit_memory(self, request: Request, size: int) -> None:
        if self._keeps_program:
            return
        sandbox.limit_memory(self._address_space + min(size, request.limits.memory), final=request.final)

    def _forbid_programs(self) -> None:
        if not self._programs_forbidden:  # each call adds a filter
            sandbox.forbid_programs(self._layers)
            self._programs_forbidden = True


class _ProcessState:
    """The working directory and the environment of this process, to which a task has to leave it unchanged.

    Before the first request, it can have the child and the descriptors of a program that is kept.
    """

    def __init__(self) -> None:
        self._initial = _directory_and_environment()
        self._has_program = _has_children()
        self._descriptors = select.poll()
        self._closed = [(CONNECTION + 1 + number, select.POLLNVAL) for number in range(_MAX_DESCRIPTORS)]
        for descriptor, _ in self._closed:
            self._descriptors.register(descriptor, 0)
        if self._has_program:
            self._closed = self._descriptors.poll(0)

    def is_unchanged(self) -> bool:
        """Whether both are as before, and no other child process and no other open descriptor is left."""
        return (
            _directory_and_environment() == self._initial
            and _has_children() == self._has_program
            # One system call for all: closed descriptors are reported as invalid.
            and self._descriptors.poll(0) == self._closed
        )


def _failure(error: BaseException, limits: TaskLimits) -> ConversionError:
    if isinstance(error, OSError) and error.errno == errno.EFBIG:
        message = f"The result exceeds the limit of {limits.output} bytes."
        return TooLarge(message, reason="bytes", details={"max_bytes": limits.output})
    return StepFailed(f"The conversion failed: {getattr(error, 'strerror', None) or type(error).__name__}.")


def convert(
    registry: Registry,
    plan: Plan,
    options: OptionValues,
    descriptors: list[int],
    limit_memory: Callable[[int], None],
    name: str = tasks.DEFAULT_NAME,
    input_names: tuple[str, ...] = (),
    sharing: PageSharing | None = None,
) -> TaskResult:
    """Runs a plan in this process and verifies each file of the result. Raises ConversionError.

    `descriptors` are the open files of the task, the output last; all are closed after a success. Calls `limit_memory`
    with the task's limit in bytes, and again with a lower one when a header states the size. `name` is the name of
    files in a ZIP, without number and extension; `input_names` are the file names of the inputs. `sharing` decides
    which pages other processes convert.
    """
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    limit_memory(memory_estimate.allowed_bytes(plan, files=files))

    def on_decoded(payloads: Sequence[object]) -> None:
        pixels = _peak_pixels(payloads)
        if pixels is not None:
            limit_memory(memory_estimate.allowed_bytes(plan, pixels, files))

    with os.fdopen(output, "wb") as file:
        inputs = _Inputs(map(_read, sources), input_names)
        return _convert(registry, plan, options, inputs, name, file, on_decoded=on_decoded, sharing=sharing)


def assist(
    plan: Plan, options: OptionValues, sources: list[int], limit_memory: Callable[[int], None], sharing: PageSharing
) -> TaskResult:
    """Converts pages for the process that leads, which verifies them. Raises ConversionError, also if none is left."""
    limit_memory(memory_estimate.allowed_bytes(plan, files=sum(os.fstat(source).st_size for source in sources)))
    return TaskResult(pipeline.run(plan, map(_read, sources), options, sharing=sharing).outcome)


def convert_outputs(
    registry: Registry,
    planned: Sequence[PlannedOutput],
    descriptors: list[int],
    limit_memory: Callable[[int], None],
    name: str,
) -> TaskResult:
    """Runs the plans of several outputs as `convert` does. The largest image determines the limit in bytes."""
    *sources, output = descriptors
    files = sum(os.fstat(source).st_size for source in sources)
    limit_memory(memory_estimate.allowed_bytes(heaviest(planned), files=files))
    contents = [_read(source) for source in sources]

    def run(plan: Plan, output: TaskOutput, name: str, file: IO[bytes], shared: PlanSteps) -> TaskResult:
        inputs = _Inputs([contents[index] for index in output.inputs])
        return _convert(registry, plan, output.options, inputs, name, file, shared=shared)

    with os.fdopen(output, "wb") as file:
        return write_outputs(planned, name, file, run)


class _Inputs(NamedTuple):
    """The contents of the inputs, which are read when they are needed, and their names."""

    contents: Iterable[bytes]
    names: tuple[str, ...] = ()


def _convert(
    registry: Registry,
    plan: Plan,
    options: OptionValues,
    inputs: _Inputs,
    name: str,
    file: IO[bytes],
    on_decoded: Callable[[Sequence[object]], None] = lambda _payloads: None,
    shared: PlanSteps | None = None,
    sharing: PageSharing | None = None,
) -> TaskResult:
    """Runs a plan, verifies each file of the result, and writes them to `file`."""
    verify = partial(verification.verify, registry, plan, options=options)
    writer = ResultWriter(file, partial(page_name, name, options, plan.target), verify)
    result = pipeline.run(
        plan,
        inputs.contents,
        options,
        on_decoded=on_decoded,
        on_file=writer.add,
        names=inputs.names,
        shared=shared,
        sharing=sharing,
    )
    first = writer.images[0]
    width, height = first.size or (None, None)
    pages = sum(one.count for one in writer.images)
    outcome = replace(result.outcome, processed_size=writer.close(), width=width, height=height, pages=pages)
    return TaskResult(outcome, result.trace, writer.check_seconds, sandbox.peak_memory())


def _keep_only(connection: int) -> None:
    """Moves the connection to CONNECTION, closes all others, and redirects the standard streams to /dev/null.

    Libraries print messages about hostile files, which must not reach the log.
    """
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    if connection != CONNECTION:
        os.dup2(connection, CONNECTION)
    os.closerange(CONNECTION + 1, os.sysconf("SC_OPEN_MAX"))


def _peak_pixels(payloads: Sequence[object]) -> int | None:
    """Pixels in memory at once; None without rasters, or if the size of one is unknown."""
    peaks = [payload.peak_pixels for payload in payloads if isinstance(payload, Raster)]
    known = [peak for peak in peaks if peak is not None]
    return max(known) if known and len(known) == len(peaks) else None


def identify(task: Identification, source: int, progress: int) -> tuple[str | None, dict[str, str]]:
    """Returns the name of a file's format, None if there is none, and the errors of sniffers. Closes both files."""
    with os.fdopen(source, "rb", buffering=0), os.fdopen(progress, "wb", buffering=0) as names:
        found, errors = load_registry().detection.read(
            OpenFile(source), task.filename, task.without, lambda fmt: names.write(f"{fmt}\n".encode())
        )
    return None if found is None else found.name, errors


def _dry_run(plan: Plan, options: OptionValues, descriptors: Sequence[int]) -> TaskResult:
    """Finds out what a plan would result in. The output, which is the last descriptor, stays empty.

    Raises ConversionError.
    """
    *sources, output = descriptors
    with os.fdopen(output, "wb"):
        return TaskResult(dry_run.dry_run(plan, map(_read, sources), options))


def _directory_and_environment() -> tuple[str, dict[str, str]]:
    return os.getcwd(), os.environ.copy()  # noqa: PTH109


def _has_children() -> bool:
    with suppress(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)
        return True
    return False


def _read(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        return file.read()
