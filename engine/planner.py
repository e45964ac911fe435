"""The path that loses least, then costs least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain, count
from typing import TypeAlias

from engine.conversions import AnyConversion, AnyTool
from engine.formats import AnyFormat, FileFormat

Steps: TypeAlias = tuple[AnyConversion, ...]


@dataclass(frozen=True)
class Plan:
    """The steps that lead from file formats to a file format: `openings`, one path an input, to the tool; `steps` on.

    Without a tool there is one input, which has nothing to be opened for; there is one step at least. `reader` opens
    the result again.
    """

    sources: tuple[FileFormat, ...]
    target: FileFormat
    steps: Steps
    tool: AnyTool | None = None
    openings: tuple[Steps, ...] = ((),)
    reader: AnyConversion | None = None

    @property
    def source(self) -> FileFormat:
        """The format of the first input."""
        return self.sources[0]

    @property
    def loss(self) -> int:
        return sum(step.loss for path in (*self.openings, self.steps) for step in path)

    @property
    def cost(self) -> float:
        return sum(step.cost for path in (*self.openings, self.steps) for step in path)

    @property
    def memory(self) -> float:
        """Bytes for each pixel that its steps take: what a decoder holds stays while the encoder works."""
        openings = (sum(step.memory for step in path) for path in self.openings)
        return max(openings, default=0.0) + sum(step.memory for step in self.steps)

    @property
    def programs(self) -> tuple[str, ...]:
        """The paths of the programs that its steps run."""
        return tuple(program for path in (*self.openings, self.steps) for step in path for program in step.programs)

    @property
    def lazy(self) -> bool:
        """Whether it uses modules that have been put off: in a step, in its tool, or to open the result again."""
        steps = (*chain.from_iterable(self.openings), *self.steps, self.tool, self.reader)
        return any(step is not None and step.lazy for step in steps)

    def __str__(self) -> str:
        opened = " + ".join(_told(source, path) for source, path in zip(self.sources, self.openings, strict=True))
        used = [str(self.tool)] if self.tool else []
        return " -> ".join([opened, *used, *(str(step.target) for step in self.steps)])


def _told(source: FileFormat, path: Steps) -> str:
    return " -> ".join([str(source), *(str(step.target) for step in path)])


Graph = Mapping[AnyFormat, Iterable[AnyConversion]]
"""The steps that leave each format."""


def cheapest_paths(graph: Graph, source: AnyFormat) -> dict[AnyFormat, Steps]:
    """The best path from `source` to every format that can be reached, `source` itself included.

    Dijkstra's algorithm over (loss, cost). A path has one step at least, so recompressing a format is no
    special case; a terminal step is taken but never left.
    """
    best: dict[AnyFormat, Steps] = {}
    order = count()  # keeps the heap from comparing paths, and equal paths in the order declared
    heap: list[tuple[int, float, int, Steps]] = [
        (int(step.loss), step.cost, next(order), (step,)) for step in graph.get(source, ())
    ]
    heap.sort()
    left: set[AnyFormat] = {source}
    while heap:
        loss, cost, _, path = heappop(heap)
        reached = path[-1].target
        best.setdefault(reached, path)
        if path[-1].terminal or reached in left:
            continue
        left.add(reached)
        for step in graph.get(reached, ()):
            heappush(heap, (loss + step.loss, cost + step.cost, next(order), (*path, step)))
    return best
