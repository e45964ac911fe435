"""Finds out whether a plugin contradicts earlier ones."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from engine.conversions import AnyTool, AnyTransform, Transform
from engine.formats import FileFormat
from engine.options import Option
from engine.planner import modules_of
from engine.plugin_loader import Plugin

_PROBE = b"\0"


class Known(NamedTuple):
    """What the plugins before have declared. The keys are names."""

    plugins: Sequence[Plugin]
    formats: Mapping[str, FileFormat]
    options: Mapping[str, Option]
    tools: Mapping[str, AnyTool]
    transforms: Sequence[AnyTransform]


def find_fault(plugin: Plugin, known: Known) -> str | None:
    """Describes what is wrong with the declarations of a plugin, or with its detection for any file."""
    if plugin.third_party and (fault := next(_find_faults(plugin, known), None)):
        return fault
    if conflict := _find_conflict(plugin, known):
        return f"another plugin declares the {conflict} differently"
    for fmt in plugin.reads:
        try:
            fmt.match(_PROBE, "")
        except Exception as error:
            return f"the detection of {fmt} fails: {type(error).__name__}: {error}"
    return None


def _find_conflict(plugin: Plugin, known: Known) -> str | None:
    """Describes the first declaration that contradicts an earlier plugin."""
    transforms = {(transform.format, transform.name) for transform in known.transforms}
    options = dict(known.options)
    formats = known.formats
    conflicts = [
        *(f"format {fmt}" for fmt in (*plugin.reads, *plugin.writes) if formats.get(fmt.name, fmt) != fmt),
        *(f"tool {tool}" for tool in plugin.tools if tool.name in known.tools),
        *(f"transform {one}" for one in plugin.transforms if (one.format, one.name) in transforms),
        *(f"option {one.name}" for one in plugin.options if not options.setdefault(one.name, one).has_type_of(one)),
    ]
    return conflicts[0] if conflicts else None


def _find_faults(plugin: Plugin, known: Known) -> Iterator[str]:
    """Describes ill-formed names of a third-party plugin, and what takes the place of what other plugins declare."""
    owners = {name: fmt for fmt in known.formats.values() for name in (fmt.media_type, *_names(fmt))}
    titles = {tool.title.casefold() for tool in known.tools.values()}
    if plugin.name in (one.name for one in known.plugins):
        yield "another plugin has this name"
    for fmt in (*plugin.reads, *plugin.writes):
        taken = (name for name in (fmt.media_type, *_names(fmt)) if owners.get(name, fmt) != fmt)
        yield from (f"{name} belongs to {owners[name]}" for name in taken)
    for transform in plugin.transforms:
        if transform.always or not transform.options.keys().isdisjoint(known.options):
            yield f"the transform {transform} also runs for requests that do not ask for it"
    for tool in plugin.tools:
        if tool.title.casefold() in titles:
            yield f"another tool has the title of {tool}"
    if not all(isinstance(modules_of(step), tuple) for step in plugin.steps):
        yield "MODULES is no tuple"
    for what, pattern, names in _named(plugin):
        yield from (f"{name!r:.60} is no {what}" for name in names if not re.fullmatch(pattern, name))


def _named(plugin: Plugin) -> Iterator[tuple[str, str, Iterable[str]]]:
    """What is named, the pattern of its names, and the names."""
    formats = (*plugin.reads, *plugin.writes)
    yield "name of a plugin", r"[A-Za-z0-9][A-Za-z0-9._-]{0,49}", [plugin.name]
    yield "name or extension of a format", r"[a-z0-9][a-z0-9_+-]{0,19}", chain.from_iterable(map(_names, formats))
    yield "media type", r"[a-z]+/[a-z0-9][a-z0-9.+-]{0,99}", [fmt.media_type for fmt in formats]
    yield (
        "name of a transform or an option",
        r"[a-z][a-z0-9_]{0,39}",
        [
            name
            for step in plugin.steps
            for name in (*step.options, *([step.name] if isinstance(step, Transform) else []))
        ],
    )
    yield "id of a tool", r"(?=.{1,40}$)[a-z][a-z0-9]*(-[a-z0-9]+)*", [tool.name for tool in plugin.tools]
    yield "title of a tool", r"[^\x00-\x1f\x7f]{1,60}", [tool.title for tool in plugin.tools]


def _names(fmt: FileFormat) -> tuple[str, ...]:
    return (fmt.name, *fmt.extensions, *fmt.text_extensions)
