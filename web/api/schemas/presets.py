"""Responses about presets."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from storage.field_types import Timestamp
from storage.tables.presets import StoredPreset

PresetName: TypeAlias = Annotated[str, Field(description="The name of the preset.", examples=["thumbnails"])]


@dataclass(frozen=True)
class Preset:
    """A preset of the account."""

    name: PresetName
    fields: Annotated[
        Mapping[str, Any],
        Field(description="The fields of requests that it keeps.", examples=[{"output_format": "webp", "width": 400}]),
    ]
    created_at: Timestamp
    updated_at: Timestamp


@dataclass(frozen=True)
class PresetList:
    """The presets of the account, by name. An account has at most 100."""

    presets: tuple[Preset, ...]


@dataclass(frozen=True)
class DeletedPreset:
    """A deleted preset."""

    name: PresetName
    deleted: Literal[True] = True


def describe_preset(stored: StoredPreset) -> Preset:
    """Returns the description of a stored preset."""
    return Preset(stored.name, json.loads(stored.fields), stored.created_at, stored.updated_at)
