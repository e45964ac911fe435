"""The catalogue of conversions and tools of this server, as the API returns it."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.conversions import AnyTool
from engine.plugin_loader import Plugin
from engine.registry import Registry
from web.api.fields import ConversionFields, DeletePagesFields, describe
from web.services.serializers import API


@dataclass(frozen=True)
class CachedJson:
    """A JSON document that does not change: its values, encoding and ETag."""

    data: dict[str, Any]
    encoded: bytes
    etag: str


def cached_json(data: dict[str, Any]) -> CachedJson:
    """Encodes a document and computes its ETag."""
    # Weak: responses with the same data differ in their request id.
    encoded = json.dumps(data, ensure_ascii=False).encode()
    return CachedJson(data, encoded, f'W/"{hashlib.sha256(encoded).hexdigest()[:32]}"')


def formats_catalogue(registry: Registry) -> dict[str, Any]:
    """All supported pairs of input and output format."""
    pairs = [(plan.source.name, plan.target.name) for plan in registry.catalogue()]
    by_input: dict[str, list[str]] = {}
    for source, target in pairs:
        by_input.setdefault(source, []).append(target)
    conversions = [{"input_format": source, "output_format": target} for source, target in pairs]
    return {"conversions": conversions, "by_input_format": by_input, "total": len(pairs)}


def tools_catalogue(registry: Registry) -> dict[str, Any]:
    """All tools: for each plugin one with its conversions, then the tools that plugins declare."""
    used = {step for plan in registry.catalogue() for step in plan.steps}
    tools = [
        _conversion_tool(registry, plugin)
        for plugin in registry.plugins
        if plugin.reads and used & {*plugin.conversions}
    ]
    tools += [_tool(registry, plugin, tool) for plugin in registry.plugins for tool in plugin.tools]
    return {"tools": tools, "total": len(tools)}


def _conversion_tool(registry: Registry, plugin: Plugin) -> dict[str, Any]:
    """The conversions from the formats of a plugin, as a tool."""
    targets = sorted({target for source in plugin.reads for target in registry.targets(source)}, key=str)
    lossy = [fmt.name for fmt in targets if fmt.lossy]
    return {
        "id": f"convert-{plugin.name}",
        "name": f"Convert {plugin.name.replace('_', ' ').upper()}",
        "category": "image" if all(fmt.media_type.startswith("image/") for fmt in plugin.reads) else "document",
        "description": plugin.summary,
        "endpoint": f"{API}/convert",
        "credits": CREDITS_PER_CONVERSION,
        "input_formats": [fmt.name for fmt in plugin.reads],
        "output_formats": [fmt.name for fmt in targets],
        "options": [_option("quality") | {"output_formats": lossy}] if lossy else [],
        "plugin": plugin.name,
    }


def _tool(registry: Registry, plugin: Plugin, tool: AnyTool) -> dict[str, Any]:
    plan = registry.plan([tool.sources[0]] * tool.inputs[0], tool.sources[0], tool.name)
    return {
        "id": tool.name,
        "name": tool.name.replace("-", " ").replace("pdf", "PDF"),
        "category": "document",
        "description": tool.summary,
        "endpoint": f"{API}/pdf/{tool.name.removeprefix('pdf-')}",
        "credits": CREDITS_PER_CONVERSION,
        "input_formats": [fmt.name for fmt in tool.sources],
        "output_formats": [fmt.name for fmt in tool.sources],
        "files": {"minimum": tool.inputs[0], "maximum": tool.inputs[-1]},
        "options": [_option(name) for name in plan.options],
        "plugin": plugin.name,
    }


def _option(name: str) -> dict[str, Any]:
    fields = {field.name: field for model in (ConversionFields, DeletePagesFields) for field in describe(model)}
    field = fields[name]
    return {
        "name": name,
        "required": field.required,
        "description": field.description,
        "example": field.example,
        **{key: field.schema[key] for key in ("type", "minimum", "maximum") if key in field.schema},
    }
