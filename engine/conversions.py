"""What plugins declare: conversions between formats, what they cost and lose, and what clients may choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Generic, TypeAlias, TypeVar

from engine.errors import InvalidOption
from engine.formats import Format

S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Options:
    """What the client may choose. A value that exists is valid: anything else raises InvalidOption."""

    quality: int | None = None  # 1-100, for lossy targets

    def __post_init__(self) -> None:
        if self.quality is not None and not (type(self.quality) is int and 1 <= self.quality <= 100):
            raise InvalidOption(
                "quality must be an integer from 1 to 100.",
                reason="out_of_range",
                param="quality",
                details={"min": 1, "max": 100},
            )


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
    """A step from one format to another. `cost` is its time relative to decoding a photo of the same size."""

    source: Format[S]
    target: Format[T]
    run: Callable[[S, Options], T]
    loss: Loss = Loss.NOTHING
    cost: float = 1.0
    final: bool = False
    programs: tuple[str, ...] = ()

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
    final: bool = False,
    programs: tuple[str, ...] = (),
) -> Callable[[Callable[[S, Options], T]], Conversion[S, T]]:
    """Declares the decorated function as the step from `source` to `target`.

    A `final` step only ends a path: its result is a cover around something simpler (pixels on a page), and
    going on from it would promise what is not there (vectors in an SVG). `programs` are the paths of those that it
    runs: the sandbox lets it run no others.
    """

    def declare(run: Callable[[S, Options], T]) -> Conversion[S, T]:
        return Conversion(source, target, run, loss, cost, final, programs)

    return declare


@dataclass(frozen=True)
class Requirement:
    """A program or library of the system that a plugin needs for some of its pairs."""

    name: str
    purpose: str
    install: str  # the command that brings it
    present: bool
