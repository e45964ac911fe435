"""Plans: the path between two formats that loses least, then costs least."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import chain, count
from typing import TypeAlias

from engine.conversions import AnyConversion, AnyTool
from engine.formats import AnyFormat, FileFormat

Steps: TypeAlias = tuple[AnyConversion, ...]


@dataclass(frozen=True)
class Plan:
    """The steps from source formats to the target format.

    `openings` holds one path per input, from its file format to the tool's format; a plan without a tool has one input
    and an empty opening. `steps` lead on to the target; there is at least one. `reader` decodes the result to verify
    it.
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

    @cached_property
    def memory(self) -> float:
        """Bytes per pixel that the steps need together: decoded data stays in memory while the encoder runs."""
        openings = (sum(step.memory for step in path) for path in self.openings)
        return max(openings, default=0.0) + sum(step.memory for step in self.steps)

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """The paths of the programs that the steps run."""
        return tuple(program for path in (*self.openings, self.steps) for step in path for program in step.programs)

    @cached_property
    def isolated(self) -> bool:
        """Whether a step, the tool or the reader needs a process of its own, which ends after the job."""
        steps = (*chain.from_iterable(self.openings), *self.steps, self.tool, self.reader)
        return bool(self.programs) or any(step is not None and step.isolated for step in steps)

    @cached_property
    def modules(self) -> frozenset[str]:
        """The modules that the steps, the tool and the reader import for most files."""
        steps = (*chain.from_iterable(self.openings), *self.steps, self.tool, self.reader)
        return frozenset(module for step in steps if step is not None for module in step.modules)

    def __str__(self) -> str:
        inputs = " + ".join(_path_text(source, path) for source, path in zip(self.sources, self.openings, strict=True))
        tool = [str(self.tool)] if self.tool else []
        return " -> ".join([inputs, *tool, *(str(step.target) for step in self.steps)])


def _path_text(source: FileFormat, path: Steps) -> str:
    return " -> ".join([str(source), *(str(step.target) for step in path)])


Graph = Mapping[AnyFormat, Iterable[AnyConversion]]
"""The steps that start from each format."""


def cheapest_paths(graph: Graph, source: AnyFormat) -> dict[AnyFormat, Steps]:
    """Returns the best path from `source` to every reachable format, which can include `source` itself.

    Dijkstra's algorithm over (loss, cost). A path has at least one step, so re-encoding a file in its own format is
    not a special case. No path continues after a terminal step.
    """
    best: dict[AnyFormat, Steps] = {}
    order = count()  # breaks ties by order of declaration; paths are not comparable
    heap: list[tuple[int, float, int, Steps]] = [
        (int(step.loss), step.cost, next(order), (step,)) for step in graph.get(source, ())
    ]
    heap.sort()
    expanded: set[AnyFormat] = {source}
    while heap:
        loss, cost, _, path = heappop(heap)
        reached = path[-1].target
        best.setdefault(reached, path)
        if path[-1].terminal or reached in expanded:
            continue
        expanded.add(reached)
        for step in graph.get(reached, ()):
            heappush(heap, (loss + step.loss, cost + step.cost, next(order), (*path, step)))
    return best
