"""Presets: fields of requests that an account keeps under a name."""

import json
from collections.abc import Mapping
from typing import Any

from storage.database import Database
from storage.tables import presets
from storage.tables.presets import StoredPreset
from web.api.schemas.presets import Preset


class Presets:
    """Keeps, finds and deletes presets."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, account: str, name: str, fields: Mapping[str, Any]) -> Preset:
        """Creates or replaces a preset, whose fields are validated. Raises TooManyPresets."""
        return _preset(await self._database.run(presets.put, account, name, json.dumps(fields)))

    async def get(self, account: str, name: str) -> Preset:
        """Returns a preset. Raises NotFound."""
        return _preset(await self._database.read(presets.get, account, name))

    async def list_all(self, account: str) -> tuple[Preset, ...]:
        """Returns the presets of the account, by name."""
        return tuple(map(_preset, await self._database.read(presets.list_all, account)))

    async def delete(self, account: str, name: str) -> None:
        """Deletes a preset. Raises NotFound."""
        await self._database.run(presets.delete, account, name)


def _preset(stored: StoredPreset) -> Preset:
    return Preset(stored.name, json.loads(stored.fields), stored.created_at, stored.updated_at)
