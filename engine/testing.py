"""Checks that every plugin must pass, for the tests of a package and for `convertd plugin check`.

A check returns problems as sentences; no problem is an empty list. Files are opened in sandboxed processes, so that
a plugin that crashes fails its check and not the tests.
"""

from __future__ import annotations

import asyncio
import json
import random
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from io import BytesIO
from pathlib import Path
from typing import ClassVar, TypeAlias

from PIL import Image, ImageChops

from engine import pipeline, sandbox
from engine.conversions import Conversion, Loss
from engine.errors import ConversionError
from engine.executor import LocalExecutor, Task, TaskLimits, TaskResult
from engine.executor.forkserver import ForkServer
from engine.executor.pool import WorkerPool
from engine.formats import FileFormat
from engine.media import RASTER
from engine.options import NO_OPTIONS, Option
from engine.planner import Plan, modules_of
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from engine.verification import verify

Samples: TypeAlias = Mapping[str, Sequence[bytes]]
"""Files by the name of their format."""

FAULTS = frozenset({"engine_error", "worker_crashed", "timeout", "out_of_memory"})
"""Reasons of errors that blame the plugin and not the file."""

_SIZE = (48, 30)  # pixels of images that are encoded
_LARGE = (2000, 1500)
_LIMITS = TaskLimits(seconds=20)
_MARGIN = 1.5  # as the sandbox allows
_RESULT_BYTES = 4  # per pixel; the memory of a process includes its result
_NOISE = 8 << 20  # bytes by which the memory of a process varies
_FOREIGN = (b"\0" * 64, b"\xff" * 64, b"RIFF    WAVE")
_TOLERANCE = 4  # Colors may differ by this much of 255 after a round trip.


@dataclass(frozen=True)
class Subject:
    """A plugin and files of its formats; formats without files that it writes get encoded ones."""

    plugin: Plugin
    given: Samples = field(default_factory=dict)
    registry: Registry = field(default_factory=load_registry)

    @classmethod
    def named(cls, name: str, samples: Path | Samples | None = None) -> Subject:
        """The installed plugin of this name, with the files of a folder, whose extensions are names of formats.

        Raises LookupError for an unknown name.
        """
        registry = load_registry()
        plugin = next((plugin for plugin in registry.plugins if plugin.name == name), None)
        if plugin is None:
            raise LookupError(f"there is no plugin {name}")
        return cls(plugin, _read(registry, samples) if isinstance(samples, Path) else samples or {}, registry)

    @property
    def modules(self) -> frozenset[str]:
        """The modules that a process for the steps imports ahead."""
        own = (module for step in self.plugin.steps for module in modules_of(step))
        return self.plan("png", "png").modules.union(own)

    @cached_property
    def samples(self) -> dict[FileFormat, list[bytes]]:
        """Files of each format that the plugin reads."""
        found: dict[FileFormat, list[bytes]] = {}
        for fmt in self.plugin.reads:
            found[fmt] = list(self.given.get(fmt.name, ()))
            if not found[fmt] and self.registry.path(RASTER, fmt):
                found[fmt] = [self.encoded(fmt)]
        return found

    @property
    def inputs(self) -> dict[FileFormat, list[bytes]]:
        """The samples that can be converted. Files of other formats are only values of options."""
        return {fmt: files for fmt, files in self.samples.items() if self.registry.targets(fmt)}

    def encoded(self, fmt: FileFormat, size: tuple[int, int] = _SIZE) -> bytes:
        """A file of an image of many colors."""
        return _encoded(self.registry, fmt, size)

    def plan(self, source: str | FileFormat, target: str | FileFormat) -> Plan:
        return self.registry.plan([self.registry.formats[str(source)]], target)

    def image_plan(self, fmt: FileFormat) -> Plan:
        """The conversion of a format to one without loss, if there is one."""
        targets = [target.name for target in self.registry.targets(fmt)]
        return self.plan(fmt, next((name for name in ("bmp", "png") if name in targets), targets[0]))


@lru_cache(maxsize=100)  # each plugin is compared with the files of all others
def _encoded(registry: Registry, fmt: FileFormat, size: tuple[int, int]) -> bytes:
    return pipeline.run(registry.plan([registry.formats["png"]], fmt), [_png(size)]).data


def _read(registry: Registry, folder: Path) -> Samples:
    found: dict[str, list[bytes]] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        fmt = registry.format(path.suffix.removeprefix("."))
        if fmt is not None and path.is_file():
            found.setdefault(fmt.name, []).append(path.read_bytes())
    return found


def _png(size: tuple[int, int]) -> bytes:
    gradients = [Image.linear_gradient("L").rotate(turn).resize(size) for turn in (0, 90, 180)]
    buffer = BytesIO()
    Image.merge("RGB", gradients).save(buffer, "PNG")
    return buffer.getvalue()


class Sandbox:
    """Runs conversions in processes of their own, as the server does."""

    def __init__(self, modules: Collection[str]) -> None:
        self._executor = LocalExecutor(1, pool=WorkerPool(ForkServer(sandbox.LAYERS, modules), 1, 1))
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._executor.start())

    def close(self) -> None:
        self._loop.run_until_complete(self._executor.close())
        self._loop.close()

    def run(self, plan: Plan, data: bytes) -> TaskResult:
        """Raises ConversionError."""
        task = replace(Task.of(plan), own_process=True)
        with tempfile.TemporaryFile() as source, tempfile.TemporaryFile() as target:
            source.write(data)
            source.flush()
            running = self._executor.run(task, "check", [source.fileno()], target.fileno(), _LIMITS)
            return self._loop.run_until_complete(running)


@contextmanager
def running_sandbox(modules: Collection[str]) -> Iterator[Sandbox]:
    """A sandbox whose processes have imported modules, and load the plugins of this process."""
    running = Sandbox(modules)
    try:
        yield running
    finally:
        running.close()


def check_loading(subject: Subject) -> list[str]:
    """The plugin was loaded, and contradicts no other one."""
    return [subject.plugin.error] if subject.plugin.error else []


def check_declarations(subject: Subject) -> list[str]:
    """Options have a description, a schema and valid defaults; steps need memory; files have a sample."""
    options = [(str(step), option) for step in subject.plugin.steps for option in step.options.values()]
    found = [f"{name}: the option {option.name} {problem}" for name, option in options for problem in _faults(option)]
    found += [f"{step}: memory must be positive" for step in subject.plugin.conversions if step.memory <= 0]
    found += [f"{fmt}: there is no sample" for fmt, files in subject.samples.items() if not files]
    return found


def _faults(option: Option) -> Iterator[str]:
    try:
        schema = option.schema
        json.dumps(schema)
    except Exception as error:
        yield f"has no schema: {error}"
        return
    if not schema.get("description"):
        yield "has no description"
    if option.default is not None:
        try:
            option.validate(option.default)
        except ConversionError as error:
            yield f"has an invalid default: {error}"


def check_detection(subject: Subject) -> list[str]:
    """Samples are detected, files of other formats are not, and damaged ones raise nothing."""
    found = []
    for fmt, files in subject.samples.items():
        for data in files:
            seen = _identified(subject, data, f"sample.{fmt.extensions[0]}")
            found += [] if seen == fmt.name else [f"a sample of {fmt} is detected as {seen}"]
    own = {fmt.name for fmt in (*subject.plugin.reads, *subject.plugin.writes)}
    for name, data in _other_files(subject):
        seen = _identified(subject, data)
        found += [f"{name or 'content of no format'} is detected as {seen}"] if seen in own - {name} else []
    for fmt in subject.plugin.reads:
        for data in (b"\0", *(stub for files in subject.samples.values() for one in files for stub in stubs(one))):
            found += _sniffing(fmt, data)
    return list(dict.fromkeys(found))


def _identified(subject: Subject, data: bytes, filename: str = "file.bin") -> str | None:
    try:
        return subject.registry.identify_content(data, filename).name
    except ConversionError:
        return None
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def _other_files(subject: Subject) -> Iterator[tuple[str | None, bytes]]:
    for fmt in subject.registry.formats.values():
        if fmt not in subject.plugin.writes and subject.registry.reader(fmt) and subject.registry.path(RASTER, fmt):
            yield fmt.name, subject.encoded(fmt)
    for content in _FOREIGN:
        yield None, content


def _sniffing(fmt: FileFormat, data: bytes) -> list[str]:
    try:
        score = fmt.sniff(data)
    except Exception as error:
        return [f"the detection of {fmt} fails for a damaged file: {type(error).__name__}: {error}"]
    return [] if isinstance(score, int) and score >= 0 else [f"the detection of {fmt} returns {score!r}"]


def check_round_trips(subject: Subject) -> list[str]:
    """Samples become images, images become files that the plugin reads, without loss if it declares none."""
    found = []
    for fmt, files in subject.inputs.items():
        for data in files:
            found += _attempt(f"{fmt} to an image", partial(_converted, subject, fmt, data))
    for fmt in subject.plugin.writes:
        if subject.registry.path(RASTER, fmt):
            found += _attempt(f"an image to {fmt}", partial(_there_and_back, subject, fmt))
    return found


def _attempt(what: str, check: Callable[[], list[str]]) -> list[str]:
    try:
        return [f"{what}: {problem}" for problem in check()]
    except Exception as error:
        return [f"{what}: {type(error).__name__}: {error}"]


def _converted(subject: Subject, fmt: FileFormat, data: bytes) -> list[str]:
    plan = subject.image_plan(fmt)
    verify(subject.registry, plan, pipeline.run(plan, [data]).file)
    return []


def _there_and_back(subject: Subject, fmt: FileFormat) -> list[str]:
    original = _png(_SIZE)
    plan = subject.plan("png", fmt)
    there = pipeline.run(plan, [original])
    verify(subject.registry, plan, there.file)
    if subject.registry.reader(fmt) is None or "png" not in map(str, subject.registry.targets(fmt)):
        return []
    back_plan = subject.plan(fmt, "png")
    back = pipeline.run(back_plan, [there.data])
    loses = any(step.loss != Loss.NOTHING for step in (*plan.conversions, *back_plan.conversions))
    if fmt.lossy or loses or there.outcome.warnings or back.outcome.warnings:
        return []
    before, after = (Image.open(BytesIO(data)).convert("RGB") for data in (original, back.data))
    encoder = plan.steps[plan.encoder_position]
    capabilities = encoder.capabilities_for(NO_OPTIONS) if isinstance(encoder, Conversion) else None
    size = capabilities.stored_size(before.size) if capabilities else before.size
    if size != after.size:
        return [f"an image of {before.size} comes back as one of {after.size}"]
    if size != before.size:
        return []
    largest = max(ImageChops.difference(before, after).tobytes())
    return ["an image comes back with other colors"] if largest > _TOLERANCE else []


def stubs(data: bytes, count: int = 8) -> Iterator[bytes]:
    """Damaged versions of a file: truncated, with zeros or noise, and with changed bytes, the same each time."""
    noise = random.Random(len(data))
    size = len(data)
    changed = bytearray(data)
    for _ in range(max(1, size // 50)):
        changed[noise.randrange(size)] = noise.randrange(256)
    yield from (
        bytes(changed),
        data[: size // 2],
        data[:16],
        data[: max(1, size - 1)],
        data[: size // 4] + bytes(size - size // 4),
        data[:64] + b"\xff" * max(0, size - 64),
        data[:32] + noise.randbytes(max(0, size - 32)),
        data[: size // 2] + data[size // 2 + 1 :],
    )[:count]


def check_hostile_files(subject: Subject, running: Sandbox, count: int = 8) -> list[str]:
    """A damaged file becomes an image, or an error that blames the file: no crash, no time-out."""
    found = []
    for fmt, files in subject.inputs.items():
        plan = subject.image_plan(fmt)
        for stub in (stub for data in files for stub in stubs(data, count)):
            try:
                running.run(plan, stub)
            except ConversionError as error:
                found += [f"a damaged {fmt} file ends with {error.reason}"] if error.reason in FAULTS else []
    return list(dict.fromkeys(found))


def check_sandbox(subject: Subject, running: Sandbox) -> list[str]:
    """The sandbox allows what the plugin does with its samples, and with an image that it writes."""
    plans = [(subject.image_plan(fmt), data) for fmt, files in subject.inputs.items() for data in files]
    plans += [
        (subject.plan("png", fmt), _png(_SIZE)) for fmt in subject.plugin.writes if subject.registry.path(RASTER, fmt)
    ]
    found = []
    for plan, data in plans:
        try:
            running.run(plan, data)
        except ConversionError as error:
            found.append(f"{plan.source} to {plan.target}: {error.reason}: {error}")
    return found


def check_memory(subject: Subject, running: Sandbox) -> list[str]:
    """Reading and writing an image of 3 megapixels take no more memory than the steps declare."""
    found = []
    for fmt in subject.plugin.writes:
        if not subject.registry.path(RASTER, fmt):
            continue
        ways: list[tuple[Plan, Callable[[tuple[int, int]], bytes]]] = [(subject.plan("png", fmt), _png)]
        if fmt in subject.plugin.reads:
            ways.append((subject.image_plan(fmt), partial(subject.encoded, fmt)))
        for plan, make in ways:
            found += _attempt(f"{plan.source} to {plan.target}", partial(_memory, running, plan, make))
    return found


def _memory(running: Sandbox, plan: Plan, make: Callable[[tuple[int, int]], bytes]) -> list[str]:
    small, large = (running.run(plan, make(size)).peak_memory for size in (_SIZE, _LARGE))
    pixels = _LARGE[0] * _LARGE[1]
    used = (large - small - _NOISE) / pixels
    declared = plan.memory * _MARGIN + _RESULT_BYTES
    return [f"{used:.0f} bytes per pixel are used, {plan.memory:.0f} are declared"] if used > declared else []


CHECKS: Mapping[str, Callable[[Subject], list[str]]] = {
    "loading": check_loading,
    "declarations": check_declarations,
    "detection": check_detection,
    "round trips": check_round_trips,
}
SANDBOXED_CHECKS: Mapping[str, Callable[[Subject, Sandbox], list[str]]] = {
    "sandbox": check_sandbox,
    "memory": check_memory,
    "hostile files": check_hostile_files,
}


def check(subject: Subject) -> dict[str, list[str]]:
    """All problems of a plugin by the name of the check; empty if there is none. A failure stops later checks."""
    found = {name: problems for name, one in CHECKS.items() if (problems := one(subject))}
    if found:
        return found
    with running_sandbox(subject.modules) as running:
        return {name: problems for name, one in SANDBOXED_CHECKS.items() if (problems := one(subject, running))}


class PluginTests:
    """The checks as tests of pytest, for a subclass whose name begins with `Test`.

    `plugin` is the name of its entry point, `samples` a folder of files whose extensions are names of formats.
    """

    plugin: ClassVar[str]
    samples: ClassVar[Path | None] = None

    @property
    def subject(self) -> Subject:
        return Subject.named(self.plugin, self.samples)

    def test_it_is_loaded(self) -> None:
        assert check_loading(self.subject) == []

    def test_its_options_and_samples(self) -> None:
        assert check_declarations(self.subject) == []

    def test_its_files_are_detected(self) -> None:
        assert check_detection(self.subject) == []

    def test_its_files_are_converted(self) -> None:
        assert check_round_trips(self.subject) == []

    def test_the_sandbox_and_damaged_files(self) -> None:
        subject = self.subject
        with running_sandbox(subject.modules) as running:
            found = {name: one(subject, running) for name, one in SANDBOXED_CHECKS.items()}
        assert found == {name: [] for name in SANDBOXED_CHECKS}
