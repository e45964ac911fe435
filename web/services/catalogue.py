"""What can be converted here and now, as the API lists it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from config.tariff import CREDITS_PER_CONVERSION
from engine.formats import FileFormat
from engine.loading import Plugin
from engine.registry import Registry


@dataclass(frozen=True)
class Listing:
    """A part of the catalogue, and the tag by which clients know that it has not changed."""

    data: dict[str, Any]
    etag: str


def listing(data: dict[str, Any]) -> Listing:
    """The data with its tag."""
    # Weak, because the rest of the answer tells one request from another.
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    return Listing(data, f'W/"{digest[:32]}"')


def formats_catalogue(registry: Registry) -> dict[str, Any]:
    """Every supported pair."""
    pairs = [(plan.source.name, plan.target.name) for plan in registry.catalogue()]
    by_input: dict[str, list[str]] = {}
    for source, target in pairs:
        by_input.setdefault(source, []).append(target)
    conversions = [{"input_format": source, "output_format": target} for source, target in pairs]
    return {"conversions": conversions, "by_input_format": by_input, "total": len(pairs)}


def tools_catalogue(registry: Registry, endpoint: str) -> dict[str, Any]:
    """Every plugin that converts a format, as a tool of the conversion `endpoint`."""
    tools = [_tool(registry, plugin, endpoint) for plugin in registry.plugins if plugin.reads and not plugin.tools]
    return {"tools": tools, "total": len(tools)}


def _tool(registry: Registry, plugin: Plugin, endpoint: str) -> dict[str, Any]:
    targets = sorted({target for source in plugin.reads for target in registry.targets(source)}, key=str)
    return {
        "id": f"convert-{plugin.name}",
        "name": f"Convert {plugin.name.replace('_', ' ').upper()}",
        "category": "image" if all(fmt.media_type.startswith("image/") for fmt in plugin.reads) else "document",
        "description": plugin.summary,
        "endpoint": endpoint,
        "credits": CREDITS_PER_CONVERSION,
        "input_formats": [fmt.name for fmt in plugin.reads],
        "output_formats": [fmt.name for fmt in targets],
        "options": _options(targets),
        "plugin": plugin.name,
    }


def _options(targets: Iterable[FileFormat]) -> list[dict[str, Any]]:
    lossy = [fmt.name for fmt in targets if fmt.lossy]
    quality = {"name": "quality", "type": "integer", "minimum": 1, "maximum": 100, "output_formats": lossy}
    return [quality] if lossy else []
