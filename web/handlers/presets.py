"""/presets: fields of requests that an account keeps under a name."""

import json
import re

from storage.tables import presets
from web.api.errors import InvalidParameter
from web.api.operations import Operation, json_response
from web.api.output_fields import PRESET_NAME, KeptFields
from web.api.schemas.presets import DeletedPreset, Preset, PresetList, describe_preset
from web.http.handler import BaseHandler


class Presets(BaseHandler):
    """The presets of the account."""

    @Operation(id="presetsList", tag="Presets", responses=(json_response(PresetList),))
    async def get(self) -> None:
        """List the presets"""
        found = await self.services.database.run(presets.list_all, self.client().id)
        self.respond(PresetList(tuple(map(describe_preset, found))))


class PresetResource(BaseHandler):
    """A preset."""

    @Operation(
        id="presetsSave",
        tag="Presets",
        json=KeptFields,
        conversion_options=True,
        without_secrets=True,
        responses=(json_response(Preset),),
    )
    async def put(self, name: str) -> None:
        """Create or replace a preset

        It keeps the fields of the body: options but passwords, and an `output_format` or `outputs`. A request with
        `preset` uses these fields unless it has its own.
        """
        if not re.fullmatch(PRESET_NAME, name):
            message = "A name has 1 to 50 letters, digits, hyphens and underscores, first a letter or a digit."
            raise InvalidParameter(message, reason="malformed", param="name")
        fields = self.input.json_fields(KeptFields)
        options = self.input.options_given()
        self.input.outputs_given(fields.outputs or ())
        kept = {**fields.model_dump(exclude_none=True), **options}
        stored = await self.services.database.run(presets.put, self.client().id, name, json.dumps(kept))
        self.respond(describe_preset(stored))

    @Operation(id="presetsGet", tag="Presets", responses=(json_response(Preset),))
    async def get(self, name: str) -> None:
        """Get a preset"""
        self.respond(describe_preset(await self.services.database.run(presets.get, self.client().id, name)))

    @Operation(id="presetsDelete", tag="Presets", responses=(json_response(DeletedPreset),))
    async def delete(self, name: str) -> None:
        """Delete a preset"""
        await self.services.database.run(presets.delete, self.client().id, name)
        self.respond(DeletedPreset(name))
