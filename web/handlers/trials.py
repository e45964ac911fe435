"""POST /try/convert and /try/preview: conversions for the script of the landing page. They are not part of the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import MappingProxyType

from engine.options import OptionValues
from storage.errors import NoCredits
from web.api.fields import DirectConversionFields
from web.api.operations import FileField, FormFields, Operation
from web.api.values import to_json
from web.handlers.pages import PageHandler
from web.http.downloads import send_file
from web.http.handler import cancelled_on_disconnect
from web.services.conversion_request import ChargedConversion, ConversionRequest
from web.services.trials import credits_used_up, trial_result

_PREVIEW_FORMAT = "webp"
_PREVIEW_OPTIONS: OptionValues = MappingProxyType({"width": 640, "height": 640, "pages": "1", "effort": 0})


class TryConvert(PageHandler):
    """Converts a file without an API key. The header X-Result describes the result."""

    access = "trial"

    @Operation(
        id="tryConvert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), DirectConversionFields),
        conversion_options=True,
        responses=(),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        fields = self.input.form_fields(DirectConversionFields)
        request = _conversion_request(self, fields.output_format, self.input.options_given())
        if fields.dry_run:
            await self._inspect(request)
            return
        remaining = await self.services.trials.count(self.authorization.address)
        async with _converted(self, request) as converted:
            # The page needs the description together with the file, because nothing is stored.
            self.set_header("X-Result", json.dumps(to_json(trial_result(request, converted.outcome, remaining))))
            await send_file(self, converted.file.blocks(), converted.outcome)

    async def _inspect(self, request: ConversionRequest) -> None:
        await self.services.trials.count_preview(self.authorization.address)
        with self.services.work_files.create(request.account.id) as output:
            planned = await self.services.conversions.inspect(request, output)
        self.respond(planned)


class TryPreview(PageHandler):
    """Returns a small picture of a file that the browser cannot show: of its first page, if it has several.

    With an API key, the file may be as large as the account's files; the account is not charged.
    """

    access = "preview"

    @Operation(
        id="tryPreview",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to show.")),
        conversion_options=True,
        responses=(),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        password = {name: value for name, value in self.input.options_given().items() if name == "password"}
        request = _conversion_request(self, _PREVIEW_FORMAT, {**_PREVIEW_OPTIONS, **password})
        async with _converted(self, request) as converted:
            await send_file(self, converted.file.blocks(), converted.outcome)


def _conversion_request(handler: PageHandler, target: str, options: OptionValues) -> ConversionRequest:
    """The conversion of the form's file."""
    upload = handler.input.form.file("file")
    return ConversionRequest(handler.client(), "convert", (upload,), target, options, context=handler.context)


@asynccontextmanager
async def _converted(handler: PageHandler, request: ConversionRequest) -> AsyncIterator[ChargedConversion]:
    """Converts, and keeps the file of the result during the block. Raises PublicError."""
    with handler.services.work_files.create(request.account.id) as output:
        try:
            outcome = await handler.services.conversions.convert(request, output)
        except NoCredits:
            raise credits_used_up() from None
        assert isinstance(outcome, ChargedConversion)  # the request has no idempotency key
        yield outcome
