"""Plans: the path between two formats that loses least, then costs least."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import accumulate, chain, count
from typing import TypeAlias

from engine.conversions import ENCODING_OPTIONS, AnyConversion, AnyTool, AnyTransform, Conversion, Loss, Tool
from engine.file_names import FILENAME
from engine.formats import AnyFormat, FileFormat
from engine.options import NO_OPTIONS, PROGRAM, Option, OptionValue, OptionValues, join_options

_ANIMATION_TIMING = frozenset({"delay", "loop", "speed"})
_ANIMATION_FRAMES = frozenset({"frames", "reverse"})

Conversions: TypeAlias = tuple[AnyConversion, ...]
"""A path: each starts at the target of the one before."""

Steps: TypeAlias = tuple[AnyConversion | AnyTransform, ...]


@dataclass(frozen=True)
class Stage:
    """A tool with its options that runs on the files of the stage before it, or on the files of the task.

    `plan` is for one of these files if their number is not known before. `parts` are the names of additional files by
    the parameters of the tool. `plan_for` returns the plan for files of other formats, or of another number.
    """

    plan: Plan
    options: OptionValues
    parts: Mapping[str, str]
    plan_for: Callable[[Sequence[FileFormat]], Plan]

    @property
    def tool(self) -> AnyTool:
        assert self.plan.tool is not None
        return self.plan.tool


@dataclass(frozen=True)
class Plan:
    """The steps from source formats to the target format.

    `openings` holds one path per input, from its file format to the tool's format; a plan without a tool has one input
    and an empty opening. The last inputs are the files of the parameters `file_names`, of the tool or of transforms,
    which are opened without options. `steps` lead on to the target; there is at least one conversion, but none after a
    tool that encodes. `reader` decodes the result to verify it. `transforms` are those that can run on the way, in
    their order; those that run are in `steps`. `options` are its options by name. The tool runs the `stages`, if it has
    any; the last one makes the target. `unlimited` is the plan without `max_bytes`, if that takes another path. It runs
    first, because it can lose less than a search for a quality; this plan runs if its result is too large.
    """

    sources: tuple[FileFormat, ...]
    target: FileFormat
    steps: Steps
    tool: AnyTool | None = None
    openings: tuple[Conversions, ...] = ((),)
    reader: AnyConversion | None = None
    transforms: tuple[AnyTransform, ...] = ()
    file_names: tuple[str, ...] = ()
    options: Mapping[str, Option] = field(default_factory=dict, compare=False)
    templates: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False, repr=False)
    stages: tuple[Stage, ...] = ()
    unlimited: Plan | None = None

    @cached_property
    def source(self) -> FileFormat:
        """The format of the first input."""
        return self.sources[0]

    @cached_property
    def conversions(self) -> Conversions:
        """All conversions of the openings and the steps, and of plans within this one."""
        return tuple(step for step in self._executed if isinstance(step, Conversion))

    @cached_property
    def path(self) -> Conversions:
        """The conversions of the steps."""
        return tuple(step for step in self.steps if isinstance(step, Conversion))

    @cached_property
    def encoder_position(self) -> int:
        """The index of the last conversion in `steps`."""
        return max(index for index, step in enumerate(self.steps) if isinstance(step, Conversion))

    @cached_property
    def loss(self) -> int:
        return sum(step.loss for step in self.conversions)

    @cached_property
    def losses(self) -> tuple[str, ...]:
        """The kinds of loss on the way, in order: `detail`, `structure`."""
        return tuple(dict.fromkeys(step.loss.name.lower() for step in self.conversions if step.loss))

    @cached_property
    def cost(self) -> float:
        return sum(step.cost for step in self.conversions)

    @cached_property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps for the first input, in the order in which they run."""
        tool = (self.tool,) if self.tool else ()
        stages = chain.from_iterable(stage.plan.step_names for stage in self.stages)
        return (*map(str, (*self.openings[0], *tool)), *stages, *map(str, self.steps))

    def find_options(self) -> dict[str, Option]:
        """The options of all steps, with the defaults that apply, limited to what the target holds, and FILENAME."""
        tool = (self.tool,) if self.tool else ()
        path = self.path
        effective = (step for index, step in enumerate(path) if _has_effect(path, index))
        steps = (*tool, *chain.from_iterable(self.openings), *self.transforms, *effective)
        joined = join_options([*(step.options for step in steps), {FILENAME.name: FILENAME}])
        excluded = _excluded(path)
        options = {name: one for name, one in joined.items() if name not in excluded and not one.inherited}
        capabilities = path[-1].capabilities_for(NO_OPTIONS) if path else None
        if capabilities and capabilities.encoding and self.source == self.target:
            options |= {name: replace(options[name], default=None) for name in ENCODING_OPTIONS & options.keys()}
        return capabilities.limit(options) if capabilities else options

    def check(self, options: OptionValues) -> None:
        """Raises InvalidOption for a value that the target does not support."""
        for name in options.keys() & self.options.keys():
            self.options[name].validate(options[name])

    def without_effect(self, options: OptionValues) -> frozenset[str]:
        """The options of the encoder that have no effect beside the others, and another value than their default."""
        encoder = next((step for step in reversed(self.steps) if isinstance(step, Conversion)), None)
        capabilities = encoder and encoder.capabilities_for(options)
        names = capabilities.without & options.keys() & self.options.keys() if capabilities else ()
        return frozenset(name for name in names if options[name] != self.options[name].default)

    def effective_options(self, given: OptionValues) -> dict[str, OptionValue]:
        """The values with which the plan runs, by name: those given and defaults. Without secrets."""
        values = {name: given.get(name, option.default) for name, option in self.options.items() if not option.secret}
        return {name: value for name, value in values.items() if value is not None}

    def with_transforms(self, options: OptionValues) -> Plan:
        """The plan with the transforms that `options` ask for, and those that always run.

        Each option is left to the first format that has it.
        """
        given = {**options, **dict.fromkeys(self.file_names, "")}
        remaining = {name: value for name, value in given.items() if name in self.options}

        def requested(format: AnyFormat) -> Steps:
            here = self._transforms_of.get(format, ())
            found = tuple(one for one in here if one.always or one.requested(remaining))
            for name in (name for one in found for name in one.options):
                remaining.pop(name, None)
            return found

        steps = requested(self.tool.format) if self.tool else ()
        for index, step in enumerate(self.steps):
            if isinstance(step, Conversion):
                is_between = isinstance(step.target, FileFormat) and index < self.encoder_position
                steps += (step, *(() if is_between else requested(step.target)))
        return self if steps == self.steps else replace(self, steps=steps)  # what the plan has computed is kept

    @cached_property
    def _transforms_of(self) -> dict[AnyFormat, list[AnyTransform]]:
        found: dict[AnyFormat, list[AnyTransform]] = {}
        for one in self.transforms:
            found.setdefault(one.format, []).append(one)
        return found

    @cached_property
    def memory(self) -> float:
        """Bytes per pixel that the tool and the steps need together: decoded data stays while the encoder runs."""
        openings = (sum(step.memory for step in path) for path in self.openings)
        own = max(openings, default=0.0) + sum(step.memory for step in self.steps)
        own += self.tool.memory if self.tool else 0.0
        return max((own, *(plan.memory for plan in self._within)))

    @cached_property
    def programs(self) -> tuple[str, ...]:
        """The paths of the programs that the steps and the tool run."""
        steps = (step for step in self._executed if isinstance(step, Conversion | Tool))
        return tuple(program for step in steps for program in step.programs)

    @cached_property
    def isolated(self) -> bool:
        """Whether the tool or a step is isolated, or runs a program.

        The reader does not count: it reads the result, which the process has written.
        """
        return bool(self.programs) or any(step.isolated for step in self._executed)

    @cached_property
    def own_process(self) -> bool:
        """Whether the task needs a new process, which ends after it: for a program, or an isolated step.

        Not for one whose plugin file has a template, or whose program is kept: those have processes of their own, each
        for tasks of one account.
        """
        others = [step for step in self._executed if not (isinstance(step, Conversion) and PROGRAM in step.provided)]
        has_program = any(step.programs for step in others if isinstance(step, Conversion | Tool))
        return has_program or any(step.isolated and not template_of(step) for step in others)

    @cached_property
    def modules(self) -> frozenset[str]:
        """MODULES of the plugin files that declare the steps, the tool and the reader."""
        return frozenset(module for step in self._declared for module in modules_of(step))

    @cached_property
    def template(self) -> str:
        """The smallest template with most of these modules: that of most tasks, or of one of the files."""
        names = sorted({"", *map(template_of, self._declared)})
        has = {name: template_modules(self.templates, name) for name in names}
        return min(has, key=lambda name: (len(self.modules - has[name]), len(has[name])))

    @cached_property
    def _declared(self) -> tuple[AnyConversion | AnyTransform | AnyTool, ...]:
        return (*self._executed, self.reader) if self.reader else self._executed

    @cached_property
    def _executed(self) -> tuple[AnyConversion | AnyTransform | AnyTool, ...]:
        """The steps of the openings and after them, the tool, and those of plans within this one."""
        tool = (self.tool,) if self.tool else ()
        within = chain.from_iterable(plan._executed for plan in self._within)
        return (*chain.from_iterable(self.openings), *self.steps, *tool, *within)

    @cached_property
    def _within(self) -> tuple[Plan, ...]:
        """The plans that run as parts of this one."""
        return (*(stage.plan for stage in self.stages), *([self.unlimited] if self.unlimited else []))

    def __str__(self) -> str:
        inputs = " + ".join(_path_text(source, path) for source, path in zip(self.sources, self.openings, strict=True))
        tool = [str(self.tool)] if self.tool else []
        return " -> ".join([inputs, *tool, *map(_step_text, self.steps)])


def _has_effect(path: Conversions, index: int) -> bool:
    """Whether the options of a step concern the input or the result, and not a file between them."""
    step = path[index]
    opens_other_file = isinstance(step.source, FileFormat) and index > 0
    writes_other_file = isinstance(step.target, FileFormat) and 0 < index < len(path) - 1
    return not opens_other_file and not writes_other_file


def _excluded(path: Conversions) -> frozenset[str]:
    """The names of options that steps exclude: for payloads in memory, and for files of the format of the result.

    Options of animations are excluded if the result cannot be one, or cannot have several pages.
    """
    target = path[-1].target if path else None
    excluding = (step for step in path if step.target == target or not isinstance(step.target, FileFormat))
    excluded = frozenset(name for step in excluding for name in step.without)
    if not isinstance(target, FileFormat) or target.animated:
        return excluded
    return excluded | _ANIMATION_TIMING if target.paged else excluded | _ANIMATION_TIMING | _ANIMATION_FRAMES


def _step_text(step: AnyConversion | AnyTransform) -> str:
    return str(step.target if isinstance(step, Conversion) else step)


def _path_text(source: FileFormat, path: Conversions) -> str:
    return " -> ".join([str(source), *(str(step.target) for step in path)])


def _left(names: frozenset[str], path: Conversions, transformed: Mapping[AnyFormat, frozenset[str]]) -> frozenset[str]:
    """The names of options that have no effect on the path, whose formats have options of transforms."""
    steps = (step.options.keys() | step.chosen_by for index, step in enumerate(path) if _has_effect(path, index))
    return names & _excluded(path) | names.difference(*steps, *(transformed.get(step.target, ()) for step in path))


def modules_of(step: AnyConversion | AnyTransform | AnyTool) -> tuple[str, ...]:
    """Returns MODULES of the file that defines the step's function, which processes of tasks import ahead."""
    modules: tuple[str, ...] = step.run.__globals__.get("MODULES", ())
    return modules


def template_of(step: AnyConversion | AnyTransform | AnyTool) -> str:
    """Returns TEMPLATE of that file, a process that imports its MODULES. Empty: the one for most tasks."""
    template: str = step.run.__globals__.get("TEMPLATE", "")
    return template


def template_parts(name: str) -> list[str]:
    """Returns the names whose modules a template has: "", for most tasks, `a` and `a/b` for `a/b`."""
    return ["", *accumulate(name.split("/"), "{}/{}".format)] if name else [""]


def template_modules(templates: Mapping[str, frozenset[str]], name: str) -> frozenset[str]:
    """Returns the modules that a template imports. `templates` has the modules of files by their TEMPLATE."""
    return frozenset[str]().union(*(templates.get(part, frozenset()) for part in template_parts(name)))


Graph = Mapping[AnyFormat, Iterable[AnyConversion]]
"""The steps that start from each format."""


def graph_of(steps: Iterable[AnyConversion]) -> dict[AnyFormat, list[AnyConversion]]:
    """The steps by the format from which they start, in their order."""
    graph: dict[AnyFormat, list[AnyConversion]] = {}
    for step in steps:
        graph.setdefault(step.source, []).append(step)
    return graph


def cheapest_paths(
    graph: Graph,
    source: AnyFormat,
    requested: frozenset[str] = frozenset(),
    transformed: Mapping[AnyFormat, frozenset[str]] | None = None,
) -> dict[AnyFormat, Conversions]:
    """Returns the best path from `source` to every reachable format, which can include `source` itself.

    Dijkstra's algorithm over (loss, cost). A path has at least one step, so re-encoding a file in its own format is
    not a special case, unless it would lose a part of what it holds. No path continues after a terminal step.

    `requested` are names of options that the steps of a path should have, `transformed` those that the transforms of a
    format have. A path with more of them is better, unless it loses structure that another one keeps: a crop is no
    reason to turn text into pixels.
    """
    at_formats = transformed or {}
    best: dict[AnyFormat, tuple[tuple[float, ...], Conversions]] = {}
    is_text = isinstance(source, FileFormat) and bool(source.text_extensions)
    order = count()  # breaks ties by order of declaration; paths are not comparable
    missing = requested - at_formats.get(source, frozenset())
    heap: list[tuple[int, float, int, Conversions]] = []
    expanded = {(source, missing)}

    def expand(format: AnyFormat, loss: int, cost: float, path: Conversions) -> None:
        for step in graph.get(format, ()):
            heappush(heap, (loss + step.loss, cost + step.cost, next(order), (*path, step)))

    expand(source, 0, 0.0, ())
    while heap:
        loss, cost, _, path = heappop(heap)
        reached = path[-1].target
        loses_parts = path[-1].loss >= Loss.STRUCTURE or any(step.source.partial for step in path)
        if reached == source and loses_parts and not is_text:
            continue
        left = _left(missing, path, at_formats)
        rank = (loss // Loss.STRUCTURE, len(left), loss, cost)
        if reached not in best or rank < best[reached][0]:
            best[reached] = rank, path
        if not path[-1].terminal and (reached, left) not in expanded:
            expanded.add((reached, left))
            expand(reached, loss, cost, path)
    return {format: path for format, (_, path) in best.items()}
