"""The path that loses least, then costs least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count

from engine.conversions import AnyConversion
from engine.formats import AnyFormat, FileFormat


@dataclass(frozen=True)
class Plan:
    """The steps that lead from one file format to another; at least one."""

    source: FileFormat
    target: FileFormat
    steps: tuple[AnyConversion, ...]

    @property
    def loss(self) -> int:
        return sum(step.loss for step in self.steps)

    @property
    def cost(self) -> float:
        return sum(step.cost for step in self.steps)

    @property
    def programs(self) -> tuple[str, ...]:
        """The paths of the programs that its steps run."""
        return tuple(program for step in self.steps for program in step.programs)

    def __str__(self) -> str:
        return " -> ".join([str(self.source), *(str(step.target) for step in self.steps)])


Graph = Mapping[AnyFormat, Iterable[AnyConversion]]
"""The steps that leave each format."""


def cheapest_paths(graph: Graph, source: AnyFormat) -> dict[AnyFormat, tuple[AnyConversion, ...]]:
    """The best path from `source` to every format that can be reached, `source` itself included.

    Dijkstra's algorithm over (loss, cost). A path has one step at least, so recompressing a format is no
    special case; a final step is taken but never left.
    """
    best: dict[AnyFormat, tuple[AnyConversion, ...]] = {}
    order = count()  # keeps the heap from comparing paths, and equal paths in the order declared
    heap: list[tuple[int, float, int, tuple[AnyConversion, ...]]] = [
        (int(step.loss), step.cost, next(order), (step,)) for step in graph.get(source, ())
    ]
    heap.sort()
    left: set[AnyFormat] = {source}
    while heap:
        loss, cost, _, path = heappop(heap)
        reached = path[-1].target
        best.setdefault(reached, path)
        if path[-1].final or reached in left:
            continue
        left.add(reached)
        for step in graph.get(reached, ()):
            heappush(heap, (loss + step.loss, cost + step.cost, next(order), (*path, step)))
    return best
