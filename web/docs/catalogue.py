"""The catalogue of conversions and tools of this server, as the API returns it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.conversions import AnyTool
from engine.errors import UnsupportedConversion
from engine.formats import FileFormat
from engine.options import Option, options_schema
from engine.plugin_loader import Plugin
from engine.registry import Registry
from web.api.field_types import describe_option
from web.api.operations import tool_path
from web.api.values import API

_MAX_EXCEPTIONS = 4  # formats that a text lists as exceptions


def formats_catalogue(registry: Registry) -> dict[str, Any]:
    """All supported pairs of input and output format."""
    pairs = [(source.name, target.name) for source, target in registry.pairs()]
    by_input: dict[str, list[str]] = {}
    for source, target in pairs:
        by_input.setdefault(source, []).append(target)
    conversions = [{"input_format": source, "output_format": target} for source, target in pairs]
    return {"conversions": conversions, "by_input_format": by_input, "total": len(pairs)}


def format_groups(registry: Registry) -> list[tuple[list[str], list[str]]]:
    """Families of formats: the names of input formats that convert to each other and to the same ones, and of these.

    The largest families come first.
    """
    outputs = {target for _, target in registry.pairs()}
    families: dict[tuple[str, ...], list[str]] = {}
    for source in registry.formats.values():
        if targets := registry.targets(source):
            family = {*targets, source} & outputs
            families.setdefault(tuple(sorted(target.name for target in family)), []).append(source.name)
    found = [(sources, list(targets)) for targets, sources in families.items()]
    return sorted(found, key=lambda family: -len(family[0]))


def targets(registry: Registry, source: str) -> dict[str, Any]:
    """The output formats of a format with this name or alias, and what they lose. Raises UnsupportedConversion."""
    fmt = _input_format(registry, source)
    plans = (registry.plan([fmt], target) for target in registry.targets(fmt))
    outputs = [{"output_format": plan.target.name, "losses": list(plan.losses)} for plan in plans]
    return {"input_format": fmt.name, "outputs": outputs}


def conversion(registry: Registry, source: str, target: str) -> dict[str, Any]:
    """The steps and options of a conversion between formats named by name or alias. Raises UnsupportedConversion."""
    plan = registry.plan([_input_format(registry, source, output_format=target)], target)
    return {
        "input_format": plan.source.name,
        "output_format": plan.target.name,
        "path": list(plan.step_names),
        "losses": list(plan.losses),
        "credits": CREDITS_PER_CONVERSION,
        "options": options_schema(registry.pair_options(plan)),
    }


def _input_format(registry: Registry, name: str, **details: str) -> FileFormat:
    fmt = registry.format(name)
    if fmt is None or not registry.targets(fmt):
        message = f"{name} is not an input format of this server.{registry.nearest(name)}"
        raise UnsupportedConversion(message, details={"input_format": name, **details, "available": []})
    return fmt


def tools_catalogue(registry: Registry) -> dict[str, Any]:
    """All tools: for each plugin one with its conversions, then the tools that plugins declare.

    Options are described once, in a map of their own.
    """
    used = {step for pair in registry.pairs() for step in registry.path(*pair)}
    tools = [
        _conversion_tool(registry, plugin)
        for plugin in registry.plugins
        if plugin.reads and used & {*plugin.conversions}
    ]
    tools += [
        _tool(registry, plugin, registry.tools[tool.name]) for plugin in registry.plugins for tool in plugin.tools
    ]
    described: dict[str, dict[str, Any]] = {}
    for tool in tools:
        tool["options"] = [_reference(option, described) for option in tool["options"]]
    return {"tools": tools, "total": len(tools), "options": described}


def _reference(option: dict[str, Any], described: dict[str, dict[str, Any]]) -> dict[str, str]:
    """What a tool tells of an option. Adds the description of the option, unless another tool has the same one."""
    name = key = option["name"]
    number = 1
    while described.setdefault(key, option) != option:
        number += 1
        key = f"{name}-{number}"
    return {"name": name} if key == name else {"name": name, "ref": key}


def _conversion_tool(registry: Registry, plugin: Plugin) -> dict[str, Any]:
    """The conversions from the formats of a plugin, as a tool."""
    targets = sorted({target for source in plugin.reads for target in registry.targets(source)}, key=str)
    return {
        "id": f"convert-{plugin.name}",
        "name": f"Convert {plugin.name.replace('_', ' ').upper()}",
        "category": "image" if all(fmt.media_type.startswith("image/") for fmt in plugin.reads) else "document",
        "description": plugin.summary,
        "endpoint": f"{API}/convert",
        "credits": CREDITS_PER_CONVERSION,
        "input_formats": [fmt.name for fmt in plugin.reads],
        "output_formats": [fmt.name for fmt in targets],
        "options": _conversion_options(registry, plugin.reads),
        "plugin": plugin.name,
    }


def _tool(registry: Registry, plugin: Plugin, tool: AnyTool) -> dict[str, Any]:
    return {
        "id": tool.name,
        "name": tool.title,
        "category": "image" if tool.target.media_type.startswith("image/") else "document",
        "description": tool.summary,
        "endpoint": API + tool_path(tool),
        "credits": CREDITS_PER_CONVERSION,
        "input_formats": [fmt.name for fmt in tool.accepted],
        "output_formats": [tool.target.name],
        "files": {"minimum": tool.inputs[0], "maximum": tool.inputs[-1]},
        "options": [_option(option) for option in registry.tool_options(tool.name).values()],
        "plugin": plugin.name,
    }


def _conversion_options(registry: Registry, sources: Sequence[FileFormat]) -> list[dict[str, Any]]:
    """The options of the conversions from these formats, with the output formats that take each."""
    plans = [registry.plan([source], target) for source in sources for target in registry.targets(source)]
    taken = [(plan.target.name, registry.pair_options(plan)) for plan in plans]
    return [
        {**_option(option), "output_formats": sorted({target for target, options in taken if name in options})}
        for name, option in registry.options.items()
        if any(name in options for _, options in taken)
    ]


@dataclass(frozen=True)
class DocumentedOption:
    """An option of conversions, for the documentation. All fields are texts; the formats are lists of names, or any."""

    name: str
    values: str
    default: str
    description: str
    inputs: str
    outputs: str


def documented_options(registry: Registry) -> tuple[DocumentedOption, ...]:
    """All options that conversions take."""
    pairs = [(plan.source.name, plan.target.name, registry.pair_options(plan)) for plan in registry.catalogue()]
    users = {name: [pair for pair in pairs if name in pair[2]] for name in registry.options}
    sources, targets = {source for source, _, _ in pairs}, {target for _, target, _ in pairs}
    images = {target for _, target, _ in users.get("width", ())}
    return tuple(
        DocumentedOption(
            name,
            option.values,
            registry.default_text(name),
            option.schema.get("description", ""),
            _names_text({source for source, _, _ in users[name]}, sources),
            _names_text({target for _, target, _ in users[name]}, targets, images),
        )
        for name, option in registry.options.items()
        if users[name]
    )


def _names_text(names: set[str], known: set[str], images: set[str] | None = None) -> str:
    others = sorted(known - names)
    if not others:
        return "any"
    if names == images:
        return "any image"
    return f"any but {', '.join(others)}" if len(others) <= _MAX_EXCEPTIONS else ", ".join(sorted(names))


def _option(option: Option) -> dict[str, Any]:
    field = describe_option(option)
    return {
        "name": field.name,
        "required": field.required,
        "description": field.description,
        "example": field.example,
        "schema": field.schema,
        **{key: field.schema[key] for key in ("type", "minimum", "maximum") if key in field.schema},
    }
