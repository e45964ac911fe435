"""What jobs are expected to need: memory by their plans; CPU time, too, and by the latest jobs of the same formats."""

from collections.abc import Iterable
from dataclasses import dataclass

from engine.decode_limits import MAX_PIXELS
from engine.executor import TaskLimits
from engine.memory_estimate import needed_bytes
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan

START = 0.02
"""Seconds of CPU time that a job is expected to use besides its steps, before others like it have ended."""

START_OF_PROGRAM = 3.0
"""The same if it runs a program, such as LibreOffice."""

_STEP = 1e-8  # seconds per pixel of a step with the cost 1, which is to decode a photo
_ISOLATED_SECONDS = 25.0  # of CPU time that a small drawing or program may use
_ISOLATED_BYTES_PER_SECOND = 40_000  # a larger drawing or program may use more
_MEAN_WEIGHT = 0.2  # weight of the latest job in the moving average
_OUTLIER = 4.0  # multiple of the average as which a job counts at most: files of some must not slow those of others
_MAX_KEYS = 10_000


@dataclass(frozen=True)
class TaskCost:
    """Jobs of one `key` are expected to use similar CPU time, by their plans `planned` seconds."""

    key: tuple[object, ...]
    planned: float

    @classmethod
    def of(cls, plans: Iterable[Plan], size: int) -> "TaskCost":
        """The cost of a job that runs these plans of the same input of `size` bytes."""
        plans = tuple(plans)
        steps = (plans[0].source.name, *((plan.tool and plan.tool.name, plan.target.name) for plan in plans))
        return cls((*steps, size.bit_length()), sum(planned_seconds(plan, size) for plan in plans))


DRY_RUN = TaskCost(("dry run",), START)
"""The cost of a job that only finds out what a conversion would result in."""


class TaskCosts:
    """The CPU time that jobs are expected to use: a moving average of those with the same key."""

    def __init__(self) -> None:
        self._means: dict[tuple[object, ...], float] = {}  # by key, ordered by the latest use

    def expected_seconds(self, cost: TaskCost) -> float:
        """Returns how many seconds of CPU time a job is expected to use."""
        return self._means.get(cost.key, cost.planned)

    def record(self, cost: TaskCost, used: float, *, complete: bool) -> None:
        """Counts a job that has used this CPU time; only if it is above the average, unless the job is `complete`."""
        mean = self._means.pop(cost.key, cost.planned)
        if complete or used > mean:
            mean += (min(used, _OUTLIER * mean) - mean) * _MEAN_WEIGHT
        self._means[cost.key] = mean
        if len(self._means) > _MAX_KEYS:
            del self._means[next(iter(self._means))]


def planned_seconds(plan: Plan, size: int) -> float:
    """The CPU time in seconds that a plan needs for `size` bytes of input, if these are a photo of usual density."""
    pixels = min(size / plan.source.bytes_per_pixel, MAX_PIXELS)
    return (START_OF_PROGRAM if plan.programs else START) + plan.cost * pixels * _STEP


def estimate_memory(plan: Plan, size: int, options: OptionValues = NO_OPTIONS) -> int:
    """The expected memory in bytes of a job of the plan and its options with `size` bytes of input.

    The input is not opened. If it has more pixels than its size suggests, the worker process's memory limit applies.
    """
    return needed_bytes(plan, min(size / plan.source.bytes_per_pixel, MAX_PIXELS), options)


def cpu_limit(plan: Plan, size: int) -> float:
    """The seconds of CPU time that a job of the plan with `size` bytes of input may use while a client waits.

    The time for images is bounded by the limits on pixels and frames. Isolated plans read drawings and programs: a
    small file that takes long is more likely to be an attack than a large one.
    """
    longest = TaskLimits().cpu
    return min(longest, _ISOLATED_SECONDS + size / _ISOLATED_BYTES_PER_SECOND) if plan.isolated else longest
