"""POST /convert and the tools: files in, the result out. With /json, the result is stored.

POST /try/convert, /try/preview and /try/identify are for the script of the landing page, and not part of the API.
"""

import json
from dataclasses import replace
from types import MappingProxyType

from engine.options import OptionValues
from storage.errors import NoCredits
from web.api.errors import InvalidParameter
from web.api.fields import ChargeHeaders, DirectConversionFields, DryRunField, PreviewFields, TrialFields
from web.api.operations import (
    CONVERSION_ERRORS,
    FileField,
    FormFields,
    Operation,
    file_response,
    job_response,
    json_response,
)
from web.api.output_fields import TargetFields
from web.api.schemas.files import ConversionResult, PlannedConversion
from web.api.url_fields import UrlFields
from web.api.values import to_json
from web.handlers.conversion_requests import conversion_request
from web.handlers.jobs import accept_job, respond_with_job
from web.http.downloads import send_and_delete, send_file, send_stored, set_validator
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.http.responses import wants_json
from web.services.accounts.trials import credits_used_up, trial_result
from web.services.container import Services
from web.services.conversions.conversion_request import LARGE_RESULT, ChargedConversion, ConversionRequest
from web.services.conversions.idempotency import Replayed, ResponseData
from web.services.files.work_files import WorkFile
from web.site.pages import PageHandler

_PREVIEW_FORMAT = "webp"
_PREVIEW_OPTIONS: OptionValues = MappingProxyType({"width": 640, "height": 640, "pages": "1", "effort": 1})
_SAMPLE_SIDE = 320  # pixels
_SAMPLE_OPTIONS = frozenset(
    {"quality", "lossless", "subsampling", "alpha_quality", "palette", "colors", "dither", "effort"}
)


class Convert(BaseHandler):
    """Converts a file in one request."""

    @Operation(
        id="convert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), DirectConversionFields, urls=UrlFields),
        conversion_options=True,
        headers=ChargeHeaders,
        responses=(file_response(), job_response()),
        codes=(*CONVERSION_ERRORS, "not_found"),
        queued=True,
        json_schema=ConversionResult,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        """Convert a file in one request

        The response is the file, and nothing is stored. With `Accept: application/json`, it is the JSON of
        `POST /convert/json`, and with `dry_run` the JSON of `POST /convert/inspect`. Several pages in a format for
        one image are sent as a ZIP. Costs one credit.
        """
        request = await conversion_request(self, store_result=_stores_result(self))
        if "dry_run" in self.input.values and self.input.fields(DryRunField).dry_run:
            await _dry_run_and_respond(self, request)
        else:
            await convert_and_respond(self, request)


class Inspect(BaseHandler):
    """Finds out what a conversion would do."""

    @Operation(
        id="inspect",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to inspect."), TargetFields, urls=UrlFields),
        conversion_options=True,
        responses=(json_response(PlannedConversion),),
        codes=(*CONVERSION_ERRORS, "not_found"),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        """Find out what a conversion would do

        Looks at the header of the file only. Converts, stores and costs nothing.
        """
        await _dry_run_and_respond(self, await conversion_request(self))


class RunTool(BaseHandler):
    """Runs the tool of its route on the files of a form."""

    @cancelled_on_disconnect
    async def post(self) -> None:
        assert self.operation is not None
        assert self.operation.tool is not None
        tool = self.operation.tool
        request = await conversion_request(
            self,
            operation=tool.operation,
            tool=tool.name,
            target=tool.target.name,
            name=f"{tool.output_name}.{tool.target.extensions[0]}" if tool.output_name else "",
            store_result=_stores_result(self),
        )
        await convert_and_respond(self, request)


def _stores_result(handler: BaseHandler) -> bool:
    """Whether the response is JSON that describes a stored result: on paths for that, or if the client accepts JSON."""
    handler.services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    always = handler.operation is not None and handler.operation.always_json
    return always or wants_json(handler.request.headers.get("Accept", ""))


async def convert_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Runs a conversion and responds with the result, or with JSON if `store_result` is set. Raises PublicError.

    If the client prefers that, the conversion is accepted as a job, and the response describes the job.
    """
    services = handler.services
    if request.background:
        await _respond_with_stored(handler, request, await accept_job(handler, request))
        return
    with handler.create_work_file() as output:
        converted = await _convert(services, request, output)
        _close_uploads(request)
        if isinstance(converted, ChargedConversion):
            handler.authorization.credits_remaining = converted.balance
            is_large = converted.outcome.processed_size > LARGE_RESULT
            if converted.response is None or not (request.store_result or is_large):
                if converted.response is not None:  # a repeated request gets the stored file, with the same headers
                    set_validator(handler, converted.response.file_id or "")
                await send_file(handler, converted.file.blocks(), converted.outcome)
                return
            stored: ResponseData | Replayed = converted.response
        else:
            handler.authorization.credits_remaining = await services.accounts.balance(handler.client().id)
            stored = converted
    await _respond_with_stored(handler, request, stored)  # the client may read slowly


async def _respond_with_stored(
    handler: BaseHandler, request: ConversionRequest, stored: ResponseData | Replayed
) -> None:
    """Responds with a stored result or a job, of this request or of an earlier one. Raises PublicError."""
    _close_uploads(request)
    response = handler.unwrap_replay(stored)
    if response.status == 202:
        await respond_with_job(handler, response)
    elif request.store_result:
        handler.respond(response.data)
    elif request.idempotency is not None:
        await send_stored(handler, await handler.services.files.find(handler.client().id, response.file_id or ""))
    else:
        await send_and_delete(handler, response.file_id or "")


async def _convert(services: Services, request: ConversionRequest, output: WorkFile) -> ChargedConversion | Replayed:
    conversions = services.conversions
    if not conversions.lacks_files(request):
        return await conversions.convert(request, output)
    if (stored := await conversions.find_stored(request)) is not None:
        return stored
    async with conversions.with_named_files(request) as complete:
        return await conversions.convert(complete, output)


def _close_uploads(request: ConversionRequest) -> None:
    """Deletes the uploads before the response: the client may read it slowly, or wait for a job."""
    for upload in request.uploads:
        upload.file.close()


async def _dry_run_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Responds with a description of the conversion, which is not run. Raises PublicError."""
    with handler.create_work_file() as output:
        async with handler.services.conversions.with_named_files(request) as complete:
            handler.respond(await handler.services.conversions.dry_run(complete, output))


class TryConvert(PageHandler):
    """Converts a file without an API key. The header X-Result describes the result."""

    access = "trial"

    @Operation(
        id="tryConvert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), TrialFields),
        conversion_options=True,
        responses=(),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        request = await conversion_request(self)
        if "dry_run" in self.input.values and self.input.fields(DryRunField).dry_run:
            await self.services.trials.count_preview(self.authorization.address)
            await _dry_run_and_respond(self, request)
            return
        remaining = await self.services.trials.count(self.authorization.address)
        with self.create_work_file() as output:
            try:
                converted = await self.services.conversions.convert(request, output)
            except NoCredits:
                raise credits_used_up() from None
            assert isinstance(converted, ChargedConversion)  # the request has no idempotency key
            # The page needs the description together with the file, because nothing is stored.
            self.set_header("X-Result", json.dumps(to_json(trial_result(request, converted.outcome, remaining))))
            await send_file(self, output.blocks(), converted.outcome)


class TryIdentify(PageHandler):
    """Finds the format of a file by its beginning, before the file is sent."""

    access = "preview"

    @Operation(
        id="tryIdentify",
        tag="Conversion",
        form=FormFields(FileField("file", "The beginning of the file.")),
        responses=(),
    )
    async def post(self) -> None:
        upload = self.input.form.file("file")
        # The directory at the end of a ZIP archive determines its format.
        is_archive = upload.file.in_memory and upload.file.read()[:2] == b"PK"
        self.respond({"input_format": None if is_archive else upload.format.name})


class TryPreview(PageHandler):
    """Returns a small image of a file that the browser cannot show: of its first page, if it has several.

    With an `output_format`, returns what options of encoders make of a small PNG. With an API key, the file may be as
    large as the account's files. Previews cost no credits; their number for an address is limited.
    """

    access = "preview"

    @Operation(
        id="tryPreview",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to show."), PreviewFields),
        conversion_options=True,
        responses=(),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        target = self.input.fields(PreviewFields).output_format
        if target is None:
            target = _PREVIEW_FORMAT
            allowed = frozenset({"password"})
            fixed = _PREVIEW_OPTIONS
        else:
            allowed = _SAMPLE_OPTIONS
            fixed = MappingProxyType({"width": _SAMPLE_SIDE, "height": _SAMPLE_SIDE})
            if self.input.form.file("file").format.name != "png":
                raise InvalidParameter("A sample has to be a PNG.", reason="malformed", param="file")
        request = await conversion_request(self, target=target)
        own = {name: value for name, value in request.options.items() if name in allowed}
        request = replace(request, options={**own, **fixed})
        with self.create_work_file() as output:
            outcome = await self.services.conversions.preview(request, output)
            await send_file(self, output.blocks(), outcome)
