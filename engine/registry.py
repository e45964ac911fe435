"""The registry of formats, conversions and tools: detection, planning and the catalogue."""

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from functools import cache, lru_cache
from itertools import chain, islice, product
from pathlib import Path

from engine.auto_format import FORMATS, formats_of, without_formats
from engine.conflicts import Known, find_fault
from engine.conversions import MAX_BYTES, AnyConversion, AnyTool, AnyTransform, Requirement
from engine.detection import Detection, OpenFile, unrecognized
from engine.errors import ConversionError, UnknownFormat, UnsupportedConversion
from engine.file_names import FILENAME
from engine.formats import AnyFormat, Content, FileFormat
from engine.options import NO_OPTIONS, Option, OptionValue, OptionValues, default_text, join_options, validate_options
from engine.planner import Conversions, Plan, cheapest_paths, graph_of, modules_of, template_of
from engine.plugin_loader import Plugin, load_plugins, read_samples
from engine.stages import plan_stages
from engine.step_errors import file_errors

log = logging.getLogger("convertd.registry")

_SEARCHES = 256  # cached searches for the best paths from a format; clients choose the names of options
_MAX_FAILURES = 3  # a third-party plugin is switched off after so many failures of its detection


class Registry:
    """Formats, tools and options by name, transforms in the order in which they run, and the graph of conversions.

    A plugin that contradicts an earlier one is left out and listed in `plugins` with its error. `options` holds every
    option of every plugin, and those that no step has; its default is the one that all steps share, or None.
    """

    def __init__(self, plugins: Iterable[Plugin]) -> None:
        self.tools: dict[str, AnyTool] = {}
        self.options: dict[str, Option] = {FILENAME.name: FILENAME, FORMATS.name: FORMATS}
        self._paths_from = lru_cache(_SEARCHES)(self._find_paths)
        self._plans: dict[tuple[tuple[str, ...], str | None, str | None, tuple[str, ...]], Plan] = {}
        self._alternatives: dict[Conversions, Plan] = {}
        self.formats: dict[str, FileFormat] = {}
        self._failures = Counter[FileFormat]()
        self.transforms: list[AnyTransform] = []
        self.plugins: tuple[Plugin, ...] = ()
        for plugin in plugins:
            self.plugins += (self._accept(plugin),)
        self.formats = dict(sorted(self.formats.items()))
        own = [plugin for plugin in self.plugins if not plugin.third_party]
        self._own_formats = frozenset(fmt for plugin in own for fmt in (*plugin.reads, *plugin.writes))
        self._graph, self._own_graph = (
            graph_of(step for plugin in plugins for step in plugin.conversions) for plugins in (self.plugins, own)
        )
        self.detection = Detection(sorted(self.formats.values(), key=lambda fmt: fmt not in self._own_formats))
        self.switched_off = frozenset[str]()
        """Names of the formats of third-party plugins that are not detected any more, because that has failed."""
        self._aliases = {alias: fmt for fmt in self.formats.values() for alias in fmt.extensions}
        self.transforms.sort(key=lambda transform: transform.position)
        self._transformed: dict[AnyFormat, frozenset[str]] = {}
        for transform in self.transforms:
            if isinstance(transform.format, FileFormat):  # All paths to the format have it.
                continue
            names = self._transformed.get(transform.format, frozenset[str]())
            self._transformed[transform.format] = names.union(transform.options)
        steps = chain.from_iterable(plugin.conversions for plugin in self.plugins)
        self._choosing = frozenset(choice.partition("=")[0] for step in steps for choice in step.chosen_by)
        self.templates = self._find_templates()
        """MODULES of the plugin files by their TEMPLATE: first those without one, then those that most steps have."""
        self.tools = {
            tool.name: replace(tool, decoded=self._decoded_to(tool.decoded_to)) for tool in self.tools.values()
        }

    def _find_templates(self) -> dict[str, frozenset[str]]:
        steps = [*chain.from_iterable(plugin.steps for plugin in self.plugins)]
        names = ["", *(name for name, _ in Counter(map(template_of, steps)).most_common() if name)]
        return {
            name: frozenset(chain(*(modules_of(step) for step in steps if template_of(step) == name))) for name in names
        }

    def _decoded_to(self, target: AnyFormat | None) -> tuple[FileFormat, ...]:
        """The file formats that a step decodes to this format in memory, sorted by name."""
        steps = {fmt: self._graph.get(fmt, ()) for fmt in self.formats.values()}
        return tuple(fmt for fmt, found in steps.items() if any(step.target == target for step in found))

    def _accept(self, plugin: Plugin) -> Plugin:
        """Adds the declarations of a plugin.

        Returns a plugin with an error if it contradicts an earlier one, or if its detection fails for any file.
        """
        earlier = Known(self.plugins, self.formats, self.options, self.tools, self.transforms)
        error = plugin.error or find_fault(plugin, earlier)
        if error is not None:
            log.error("plugin %r is left out: %s", plugin.name, error)
            return Plugin(plugin.name, plugin.summary, error=error, version=plugin.version)
        self.formats |= {fmt.name: fmt for fmt in (*plugin.reads, *plugin.writes)}
        self.transforms += plugin.transforms
        self.tools |= {tool.name: tool for tool in plugin.tools}
        for option in plugin.options:
            known = self.options.setdefault(option.name, replace(option, required=False))
            if known.default != option.default:
                self.options[option.name] = replace(known, default=None)
        return plugin

    @property
    def missing(self) -> tuple[Requirement, ...]:
        """System packages that would enable more conversions, by name."""
        requirements = {requirement for plugin in self.plugins for requirement in plugin.requirements}
        return tuple(sorted((one for one in requirements if not one.present), key=lambda one: one.name))

    def lacking(self, tool: str) -> Requirement | None:
        """The system package without which a tool is not offered; None if the tool is offered or unknown."""
        return next((requirement for requirement in self.missing if requirement.tool == tool), None)

    @property
    def programs(self) -> frozenset[str]:
        """The paths of all programs that steps and tools run."""
        by_steps = (step.programs for plugin in self.plugins for step in plugin.conversions)
        return frozenset(chain.from_iterable(chain(by_steps, (tool.programs for tool in self.tools.values()))))

    @property
    def modules(self) -> frozenset[str]:
        """MODULES of all plugin files."""
        return frozenset[str]().union(*self.templates.values())

    def format(self, name: str) -> FileFormat | None:
        """Returns a format by name or alias, ignoring case; None if unknown."""
        name = name.lower()
        return self.formats.get(name) or self._aliases.get(name)

    def nearest(self, name: str) -> str:
        """The sentence, after a space, that names the format spelled nearly so; empty for the name of a format."""
        named = {**self._aliases, **self.formats}
        found = [] if self.format(name) else get_close_matches(name.lower(), named, n=1)
        return f" The nearest one is {named[found[0]]}." if found else ""

    def identify(self, path: Path, filename: str = "") -> FileFormat:
        """Detects a file's format as `identify_content` does, by default with its own name. Blocks."""
        with path.open("rb", buffering=0) as file:
            return self.identify_descriptor(file.fileno(), filename or path.name)

    def identify_descriptor(self, descriptor: int, filename: str = "") -> FileFormat:
        """Detects the format of an open file as `identify_content` does. Blocks."""
        return self.identify_content(OpenFile(descriptor), filename)

    def identify_content(self, content: Content, filename: str = "") -> FileFormat:
        """Detects the format of bytes as `Detection` does: a server leaves this to a sandboxed process.

        Raises UnknownFormat, reason `empty_file` or `unrecognized`.
        """
        found, errors = self.detection.read(content, filename, self.switched_off)
        for name, error in errors.items():
            self.record_failure(name, error)
        if found is None:
            raise unrecognized()
        return found

    def record_failure(self, name: str, problem: str) -> None:
        """Records a failure to detect a format. The third of a third-party plugin switches its detection off."""
        fmt = self.formats[name]
        self._failures[fmt] += 1
        if fmt not in self._own_formats and self._failures[fmt] == _MAX_FAILURES:
            self.switched_off |= {name}
        error = f"the detection of {fmt} {'is switched off' if name in self.switched_off else 'fails'}: {problem}"
        plugins = [plugin for plugin in self.plugins if fmt in (*plugin.reads, *plugin.writes)]
        log.error("plugin %s: %s", ", ".join(plugin.name for plugin in plugins), error)
        if name in self.switched_off:
            self.plugins = tuple(replace(one, error=error) if one in plugins else one for one in self.plugins)

    def validate(self, given: Mapping[str, object], *, from_text: bool = False) -> dict[str, OptionValue]:
        """Returns the values of options as `validate_options` does, for any of this registry's options."""
        return validate_options(self.options, given, from_text=from_text)

    def default_text(self, name: str) -> str:
        """Returns the default of an option for people, such as `5` or `80 (jpeg), 87 (webp)`; empty if it has none."""
        steps = (step for plugin in self.plugins for step in plugin.conversions if name in step.options)
        named = ((step.target if isinstance(step.target, FileFormat) else step.source, step) for step in steps)
        return default_text(self.options[name].default, ((str(fmt), step.options[name].default) for fmt, step in named))

    def tool_options(self, name: str) -> Mapping[str, Option]:
        """Returns the options of a tool, of the steps that read its `sources`, and of the steps that write its files.

        There are none if the tool is not installed.
        """
        tool = self.tools.get(name)
        if tool is None:
            return {}
        openings = [self._opening(source, tool.format) for source in tool.sources]
        writing = () if tool.encodes else self.path(tool.format, tool.target)
        named = {FILENAME.name: FILENAME}
        return join_options([tool.options, *(step.options for step in chain(*openings, writing)), named])

    def plan(
        self,
        sources: Sequence[FileFormat],
        target: str | FileFormat,
        tool: str | None = None,
        options: OptionValues | None = None,
        file_names: tuple[str, ...] = (),
        *,
        validated: bool = False,
    ) -> Plan:
        """Returns the best plan from `sources` to `target`. Without a tool, there is exactly one source.

        The last sources are the formats of the files for the parameters `file_names`, of the tool or of transforms.

        Its path has as many of the options as possible without a further loss of structure. Transforms that they ask
        for are part of the plan.

        Raises UnsupportedConversion, whose details list the available targets, InvalidOption for a value that the
        target does not support, unless they are `validated`, and the errors of the tool's `check`.
        """
        if tool is not None and self.tools[tool].stages_parameter:
            return plan_stages(self, self.tools[tool], sources, options or {}, file_names)
        fmt = target if isinstance(target, FileFormat) else self.format(target)
        key = (tuple(source.name for source in sources), fmt.name if fmt else None, tool, file_names)
        if key not in self._plans:
            self._plans[key] = self._plan(tuple(sources), fmt, str(target), tool, file_names)
        plan = self._plans[key]
        if not options and not file_names:
            return plan
        known = self.options
        options = options or {}
        asked = frozenset(name for name in options if name not in known or options[name] != known[name].default)
        choices = (f"{name}={options[name]}" for name in asked & self._choosing)
        names = asked.union(file_names, choices)
        unlimited = self._plan_with(plan, names - {MAX_BYTES}) if MAX_BYTES in names else None
        plan = self._plan_with(plan, names)
        if unlimited is not None and unlimited.path != plan.path:
            plan = replace(plan, unlimited=unlimited.with_transforms(options))
        if not validated:
            plan.check(options)
        return plan.with_transforms(options)

    def auto_plans(
        self, sources: Sequence[FileFormat], options: OptionValues, file_names: tuple[str, ...] = ()
    ) -> tuple[Plan, ...]:
        """Returns a plan for each format of which `auto` chooses, and to which the first source can be converted.

        Raises the error of the first format, UnsupportedConversion or InvalidOption, if there is none.
        """
        plans: dict[FileFormat, Plan] = {}
        failures: list[ConversionError] = []
        for name in formats_of(options):
            try:
                plan = self.plan(sources, name, options=without_formats(options), file_names=file_names)
                plans.setdefault(plan.target, plan)
            except ConversionError as error:
                failures.append(error)
        if not plans:
            raise failures[0]
        return tuple(plans.values())

    def _plan_with(self, plan: Plan, names: frozenset[str]) -> Plan:
        """The plan, or another one between the same formats if it has more of the options."""
        if plan.tool is not None or names <= plan.options.keys():
            return plan
        other = self._alternative(plan, self._paths_from(plan.source, names)[plan.target])
        return replace(other, sources=plan.sources, openings=plan.openings, file_names=plan.file_names)

    def _alternative(self, plan: Plan, path: Conversions) -> Plan:
        if path not in self._alternatives:
            self._alternatives[path] = self._make_plan((plan.source,), plan.target, path)
        return self._alternatives[path]

    def pair_options(self, plan: Plan) -> dict[str, Option]:
        """Returns the options that a conversion between the formats of a plan can have, whichever path it takes."""
        path = self._paths_from(plan.source, frozenset(self.options))[plan.target]
        return join_options([self._alternative(plan, path).options, plan.options])

    def _plan(
        self,
        sources: tuple[FileFormat, ...],
        fmt: FileFormat | None,
        name: str,
        tool: str | None,
        file_names: tuple[str, ...],
    ) -> Plan:
        count = len(sources) - len(file_names)
        inputs = sources[:count]
        if tool is None:
            (source,) = inputs
            files = {one.name: one.file for one in map(self.options.__getitem__, file_names) if one.file}
            plan = self._make_plan(inputs, *self._find_path(source, fmt, name))
        else:
            declared = self.tools[tool]
            files = {**declared.files}
            declared.check(inputs)
            target, path = (declared.target, ()) if declared.encodes else self._find_path(declared.format, fmt, name)
            openings = tuple(self._opening(source, declared.format) for source in inputs)
            plan = self._make_plan(inputs, target, path, declared, openings)
        if not file_names:
            return plan
        additional = list[Conversions]()
        for source, file in zip(sources[count:], file_names, strict=True):
            with file_errors(file):
                additional.append(self._opening(source, files[file].format))
        return replace(plan, sources=sources, openings=(*plan.openings, *additional), file_names=file_names)

    def _opening(self, source: FileFormat, format: AnyFormat | None) -> Conversions:
        """The path from a file to the payload of a tool, which without a format is the file. Raises UnknownFormat."""
        if format is None or source == format:
            return ()
        path = self.path(source, format)
        if not path:
            raise UnknownFormat(f"A {source} file cannot be used here.", details={"input_format": source.name})
        return path

    def _make_plan(
        self,
        sources: tuple[FileFormat, ...],
        target: FileFormat,
        path: Conversions,
        tool: AnyTool | None = None,
        openings: tuple[Conversions, ...] = ((),),
    ) -> Plan:
        passed = {step.source for step in path if not isinstance(step.source, FileFormat)}
        passed |= {step.target for step in path[-1:]}
        transforms = tuple(transform for transform in self.transforms if transform.format in passed)
        plan = Plan(sources, target, path, tool, openings, reader=self.reader(target), transforms=transforms)
        return replace(plan, options=plan.find_options(), templates=self.templates).with_transforms(NO_OPTIONS)

    def _find_path(self, source: AnyFormat, fmt: FileFormat | None, name: str) -> tuple[FileFormat, Conversions]:
        path = self._paths_from(source).get(fmt) if fmt else None
        if fmt is None or path is None:
            name = fmt.name if fmt else name
            raise UnsupportedConversion(
                f"{source} cannot be converted to {name}.{self.nearest(name)}",
                details={
                    "input_format": source.name,
                    "output_format": name,
                    "available": [target.name for target in self.targets(source)],
                },
            )
        return fmt, path

    def path(self, source: AnyFormat, target: AnyFormat) -> Conversions:
        """Returns the best path between two formats; empty if there is none."""
        return self._paths_from(source).get(target, ())

    def targets(self, source: AnyFormat) -> list[FileFormat]:
        """Returns the file formats that `source` can be converted to, sorted by name."""
        paths = self._paths_from(source)
        return [fmt for fmt in self.formats.values() if fmt in paths]

    def reads(self, fmt: FileFormat) -> bool:
        """Returns whether files of this format are converted."""
        return fmt in self._graph

    def reader(self, fmt: FileFormat) -> AnyConversion | None:
        """Returns the first step that decodes the format; None if there is none, or for text, which is not verified.

        Nor is a file that only programs read, which would take as long as its conversion.
        """
        if fmt.text_extensions:
            return None
        graph = self._own_graph if fmt in self._own_formats else self._graph
        steps = (step for step in graph.get(fmt, ()) if not isinstance(step.target, FileFormat))
        return next((step for step in steps if not step.programs), None)

    def pairs(self) -> list[tuple[FileFormat, FileFormat]]:
        """Returns every supported pair of input and output format, sorted by both."""
        return [(source, target) for source in self.formats.values() for target in self.targets(source)]

    def catalogue(self) -> list[Plan]:
        """Returns a plan for every supported pair, in the same order, which takes 50 us each."""
        return [self.plan([source], target) for source, target in self.pairs()]

    def _find_paths(self, source: AnyFormat, names: frozenset[str] = frozenset()) -> Mapping[AnyFormat, Conversions]:
        """Returns the best path to each format, with as many of the options as possible. `_paths_from` keeps it.

        Third-party plugins add paths. They change none that built-in plugins have.
        """
        paths = cheapest_paths(self._graph, source, names, self._transformed)
        if any(plugin.third_party for plugin in self.plugins):
            paths |= cheapest_paths(self._own_graph, source, names, self._transformed)
        return paths


def find_harm(plugins: Sequence[Plugin]) -> str | None:
    """Uses what the last plugin declares, and detects samples of the formats of the others. Describes what fails."""
    registry = Registry(plugins)
    plugin = plugins[-1]
    if registry.plugins[-1].error is not None:
        return registry.plugins[-1].error
    for option in chain(plugin.options, *(registry.tool_options(tool.name).values() for tool in plugin.tools)):
        json.dumps((option.schema, option.values))
    for source, target in product(plugin.reads, registry.formats.values()):
        if registry.path(source, target):
            registry.plan([source], target)
    for target in plugin.writes:  # plans from other sources have the same last step
        for source in islice((fmt for fmt in registry.formats.values() if registry.path(fmt, target)), 1):
            registry.plan([source], target)
    for name, content in read_samples():
        found = registry.identify_content(content)
        if found.name != name:
            return f"{name} files are detected as {found}"
    return registry.plugins[-1].error


@cache
def load_registry(builtins: str = "plugins") -> Registry:
    """Returns the registry of all installed plugins, loaded once per process and shared by its forks."""
    return Registry(load_plugins(builtins, find_harm))
