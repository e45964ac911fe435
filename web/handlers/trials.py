"""POST /try/convert and /try/preview: conversions for the script of the landing page. They are not part of the API."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

from engine.options import OptionValues
from storage.errors import NoCredits
from web.api.fields import DirectConversionFields
from web.api.operations import CONVERSION_OPTIONS, FileField, FormFields, Operation
from web.api.values import to_json
from web.handlers.pages import PageHandler
from web.http.downloads import send_file
from web.services.conversion_request import ChargedConversion, ConversionRequest
from web.services.trials import credits_used_up, trial_result

_PREVIEW_FORMAT = "webp"
_PREVIEW_OPTIONS: OptionValues = MappingProxyType({"width": 640, "height": 640, "pages": "1", "effort": 0})


class TrialHandler(PageHandler):
    """A form of the landing page. The account of all trial conversions pays, and responses do not show its balance."""

    access = "address"

    async def authorize(self) -> None:
        await super().authorize()
        self.authorization.account = await self.services.trials.account(self.address)

    def set_credits_header(self) -> None:
        """Sets no header."""

    def conversion_request(self, target: str, options: OptionValues) -> ConversionRequest:
        """The conversion of the form's file."""
        upload = self.form.file("file")
        return ConversionRequest(self.client(), "convert", (upload,), target, options, context=self.context)

    @asynccontextmanager
    async def converted(self, request: ConversionRequest) -> AsyncIterator[ChargedConversion]:
        """The conversion with its result, for the block. Raises PublicError."""
        with self.services.work_files.create(request.account.id) as output:
            try:
                outcome = await self.services.conversions.convert(request, output)
            except NoCredits:
                raise credits_used_up() from None
            assert isinstance(outcome, ChargedConversion)  # the request has no idempotency key
            yield outcome


class TryConvert(TrialHandler):
    """Converts a file without an API key. The header X-Result describes the result."""

    async def authorize(self) -> None:
        await super().authorize()
        await self.services.trials.check(self.address)

    @Operation(
        id="tryConvert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), DirectConversionFields),
        options=CONVERSION_OPTIONS,
        responses=(),
        queued=True,
    )
    async def post(self) -> None:
        await self.cancel_on_disconnect(self._convert())

    async def _convert(self) -> None:
        fields = self.form_fields(DirectConversionFields)
        request = self.conversion_request(fields.output_format, self.options_given())
        if fields.dry_run:
            await self._inspect(request)
            return
        remaining = await self.services.trials.count(self.address)
        async with self.converted(request) as converted:
            # The page needs the description together with the file, because nothing is stored.
            self.set_header("X-Result", json.dumps(to_json(trial_result(request, converted.outcome, remaining))))
            await send_file(self, converted.file.blocks(), converted.outcome)

    async def _inspect(self, request: ConversionRequest) -> None:
        await self.services.trials.count_preview(self.address)
        with self.services.work_files.create(request.account.id) as output:
            planned = await self.services.conversions.inspect(request, output)
        self.write_json({"data": to_json(planned), "meta": {"request_id": self.request_id}})


class TryPreview(TrialHandler):
    """Returns a small picture of a file that the browser cannot show: of its first page, if it has several.

    With an API key, the file may be as large as the account's files; the account is not charged.
    """

    async def authorize(self) -> None:
        await super().authorize()
        trials, header = self.client(), self.request.headers.get("Authorization")
        if header is not None:
            await self.authorization.authenticate(header, cached=True)
            tier = replace(trials.tier, max_file_size=self.client().tier.max_file_size)
            self.authorization.account = replace(trials, tier=tier)
        await self.services.trials.count_preview(self.address)

    @Operation(
        id="tryPreview",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to show.")),
        options=CONVERSION_OPTIONS,
        responses=(),
        queued=True,
    )
    async def post(self) -> None:
        await self.cancel_on_disconnect(self._preview())

    async def _preview(self) -> None:
        password = {name: value for name, value in self.options_given().items() if name == "password"}
        request = self.conversion_request(_PREVIEW_FORMAT, {**_PREVIEW_OPTIONS, **password})
        async with self.converted(request) as converted:
            await send_file(self, converted.file.blocks(), converted.outcome)
