"""What plugins declare: conversions between formats, tools that work on one, and what clients may choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from engine.errors import InvalidOption, UnknownFormat
from engine.formats import FileFormat, Format
from engine.options import Options

_MEMORY = 8.0  # bytes for each pixel: a picture with transparency, and a copy of it

S = TypeVar("S")
T = TypeVar("T")


class Loss(IntEnum):
    """How much a step throws away. Losses along a path add up; the planner avoids them before all else."""

    NOTHING = 0
    DETAIL = 1  # a lossy encoder, a development, fewer colours
    STRUCTURE = 10  # text, vectors, layers or pages become pixels


class FidelityWarning(UserWarning):
    """Something that the target could not hold: `warnings.warn(FidelityWarning("alpha_flattened", "…"))`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Conversion(Generic[S, T]):
    """A step from one format to another. `cost` is its time relative to decoding a photo of the same size.

    `memory` is what it takes at its peak, in bytes for each pixel.
    """

    source: Format[S]
    target: Format[T]
    run: Callable[[S, Options], T]
    loss: Loss = Loss.NOTHING
    cost: float = 1.0
    terminal: bool = False
    programs: tuple[str, ...] = ()
    memory: float = _MEMORY
    lazy: bool = False

    def __call__(self, payload: S, options: Options) -> T:
        return self.run(payload, options)

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


AnyConversion: TypeAlias = Conversion[Any, Any]


def conversion(
    source: Format[S],
    target: Format[T],
    *,
    loss: Loss = Loss.NOTHING,
    cost: float = 1.0,
    terminal: bool = False,
    programs: tuple[str, ...] = (),
    memory: float = _MEMORY,
    lazy: bool = False,
) -> Callable[[Callable[[S, Options], T]], Conversion[S, T]]:
    """Declares the decorated function as the step from `source` to `target`.

    A `terminal` step only ends a path: its result is a cover around something simpler (pixels on a page), and
    going on from it would promise what is not there (vectors in an SVG). `programs` are the paths of those that it
    runs: the sandbox lets it run no others. `memory`, in bytes for each pixel, bounds the job's process together with
    that of the other steps. `lazy` steps use modules that `engine.lazy_import` has put off: their jobs begin in a
    process that has loaded them. Any other step that comes to use one has its job begin again in such a process.
    """

    def declare(run: Callable[[S, Options], T]) -> Conversion[S, T]:
        return Conversion(source, target, run, loss, cost, terminal, programs, memory, lazy)

    return declare


@dataclass(frozen=True)
class Tool(Generic[T]):
    """An operation on payloads of one format, which are opened from files of `sources` and no others.

    `inputs` tells how many it takes, `count` how many pages a payload has, `options` the fields of Options that
    it reads. `run` may change the payloads, and returns one of them or a new one. `lazy` is as in `conversion`.
    """

    name: str
    format: Format[T]
    run: Callable[[list[T], Options], T]
    sources: tuple[FileFormat, ...]
    inputs: range
    count: Callable[[T], int]
    options: tuple[str, ...]
    summary: str
    lazy: bool = False

    def __call__(self, payloads: list[T], options: Options) -> T:
        return self.run(payloads, options)

    def __str__(self) -> str:
        return self.name

    def check(self, sources: Sequence[FileFormat | None]) -> None:
        """Raises InvalidOption where there are too few or too many inputs, UnknownFormat for one that it does not take.

        None stands for a file of no known format. The error's `details.index` counts from 0.
        """
        if len(sources) not in self.inputs:
            least, most = self.inputs[0], self.inputs[-1]
            raise InvalidOption(
                f"{self} takes {least} to {most} files." if least < most else f"{self} takes {least} file.",
                reason="out_of_range",
                param="files[]" if most > 1 else "file",
                details={"min": least, "max": most, "count": len(sources)},
            )
        for index, source in enumerate(sources):
            if source not in self.sources:
                names = [str(fmt) for fmt in self.sources]
                raise UnknownFormat(
                    f"File {index + 1} is no {' or '.join(names).upper()}.",
                    reason=f"not_a_{'_or_'.join(names)}",
                    details={"index": index, "input_format": source and source.name},
                )


AnyTool: TypeAlias = Tool[Any]


def tool(
    name: str,
    format: Format[T],
    *,
    sources: tuple[FileFormat, ...],
    count: Callable[[T], int],
    inputs: range = range(1, 2),
    options: tuple[str, ...] = (),
    lazy: bool = False,
) -> Callable[[Callable[[list[T], Options], T]], Tool[T]]:
    """Declares the decorated function as a tool; the first line of its docstring is what clients read of it."""

    def declare(run: Callable[[list[T], Options], T]) -> Tool[T]:
        summary = (run.__doc__ or name).strip().splitlines()[0]
        return Tool(name, format, run, sources, inputs, count, options, summary, lazy)

    return declare


@dataclass(frozen=True)
class Requirement:
    """A program or library of the system that a plugin needs for some of its pairs."""

    name: str
    purpose: str
    install: str  # the command that brings it
    present: bool
