"""POST /convert and the tools: files in, the result out. With /json, the result is stored.

POST /try/convert, /try/tools/{id}, /try/preview and /try/identify are for scripts of pages, and not part of the API.
"""

import asyncio
import json
import re
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from engine.errors import ConversionError
from engine.file_names import safe_name
from engine.options import OptionValues
from storage.errors import DatabaseBusy, NoCredits
from storage.tables.idempotency import Claim
from web.api.errors import IdempotencyConflict, InvalidParameter
from web.api.fields import ChargeHeaders, DirectConversionFields, DryRunField, PreviewFields, TrialFields
from web.api.job_fields import TAG_LENGTH
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
from web.api.schemas.jobs import describe_job
from web.api.url_fields import UrlFields
from web.api.values import to_json
from web.handlers.conversion_requests import conversion_request
from web.handlers.jobs import accept_job, respond_with_job
from web.http.downloads import send_and_delete, send_file, send_stored, set_validator
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.http.responses import wants_json
from web.services.accounts.trials import credits_used_up, header_text, trial_result
from web.services.container import Services
from web.services.conversions.conversion_request import LARGE_RESULT, ChargedConversion, ConversionRequest
from web.services.conversions.idempotency import IdempotentRequest, Replayed, ResponseData
from web.services.files.work_files import WorkFile
from web.site.dashboard import session_account
from web.site.pages import PageHandler

CANCEL_PATH = "/try/cancel"
_CANCELLED = '{"message": "The conversion was cancelled."}'
_JOB_SECONDS = 60  # for which a repeated request waits
_PREVIEW_FORMAT = "webp"
_PREVIEW_OPTIONS: OptionValues = MappingProxyType({"width": 640, "height": 640, "pages": "1", "effort": 1})
_PREVIEWED_PAGES = 12  # of one request
_RANGE = re.compile(r"([1-9]\d{0,5})(?:-([1-9]\d{0,5}))?", re.ASCII)
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
        await convert_and_respond(self, await _tool_request(self, store_result=_stores_result(self)))


async def _tool_request(handler: BaseHandler, **known: Any) -> ConversionRequest:
    """The run of the tool of the route that the form asks for. Raises PublicError."""
    assert handler.operation is not None
    assert handler.operation.tool is not None
    tool = handler.operation.tool
    name = f"{tool.output_name}.{tool.target.extensions[0]}" if tool.output_name else ""
    return await conversion_request(
        handler, operation=tool.operation, tool=tool.name, target=tool.target.name, name=name, **known
    )


def _stores_result(handler: BaseHandler) -> bool:
    """Whether the response is JSON that describes a stored result: on paths for that, or if the client accepts JSON."""
    handler.services.metrics.conversions.observe_stage(handler.context, "upload", handler.request.request_time())
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


class _PageConversion(PageHandler):
    """Converts files for a page, whose script gets the result in the response, and its description in X-Result.

    The account that is signed in is charged, and the result is stored; for other visitors, it is a trial conversion.
    """

    access = "trial"

    async def convert(self, request: ConversionRequest) -> None:
        """Converts, and responds. Raises PublicError."""
        with self.create_work_file() as output:
            if self.authorization.session is None:
                await self._convert_trial(replace(request, idempotency=None), output)
            else:
                await self._convert_and_store(request, output)

    async def _convert_trial(self, request: ConversionRequest, output: WorkFile) -> None:
        async with self.services.trials.counted(self.authorization.address) as remaining:
            try:
                converted = await self.services.conversions.convert(request, output)
            except NoCredits:
                raise credits_used_up() from None
        assert isinstance(converted, ChargedConversion)
        # The page needs the description together with the file, because nothing is stored.
        self.set_header("X-Result", header_text(to_json(trial_result(request, converted.outcome, remaining))))
        await send_file(self, output.blocks(), converted.outcome)

    async def _convert_and_store(self, request: ConversionRequest, output: WorkFile) -> None:
        account = self.client().id
        attempt = request.idempotency or IdempotentRequest(account, self.request.path, self.request_id)
        tag = safe_name(request.original_name)[:TAG_LENGTH]
        request = replace(request, store_result=True, idempotency=attempt, tag=tag)
        try:
            stored = await _convert(self.services, request, output)
        except asyncio.CancelledError:
            cancellation = replace(attempt, path=CANCEL_PATH)
            if self.disconnected and await self.services.idempotency.find(cancellation, {}) is None:
                await self._go_on(request)  # the page was reloaded or closed, and shows the result later
            raise
        _close_uploads(request)
        if isinstance(stored, ChargedConversion):
            self.authorization.credits_remaining = stored.balance
            assert stored.response is not None
            response = stored.response
        else:
            response = self.unwrap_replay(stored)
            if response.status == 202:
                response = await self._wait(response)
            self.authorization.credits_remaining = await self.services.accounts.balance(account)
        self.set_header("X-Result", header_text(response.data))
        await send_stored(self, await self.services.files.find(account, response.file_id or ""))

    async def _go_on(self, request: ConversionRequest) -> None:
        """Accepts a cancelled conversion as a job, once what it holds is released: a busy database takes a while."""
        for seconds in (0, 1, 3, 9, 27):
            await asyncio.sleep(seconds)
            with suppress(IdempotencyConflict, DatabaseBusy):
                await self.services.jobs.accept(request)
                return

    async def _wait(self, accepted: ResponseData) -> ResponseData:
        """The result of the job that an earlier attempt has become. Raises its error, or IdempotencyConflict."""
        jobs = self.services.jobs
        job = await jobs.wait(await jobs.find(self.client().id, accepted.data["job_id"]), _JOB_SECONDS)
        if not job.has_ended:
            raise IdempotencyConflict("The same conversion is still running as a job.", retry_after=_JOB_SECONDS)
        if job.status != "completed":
            raise ConversionError.from_json(json.loads(job.error or _CANCELLED))
        return ResponseData(describe_job(job)["result"], job.file_id)


class CancelConversion(PageHandler):
    """Notes that the visitor has cancelled the conversion with this idempotency key.

    Without that, a conversion whose page is left goes on as a job.
    """

    access = "session"

    async def post(self) -> None:
        async def note(_claim: Claim | None) -> ResponseData:
            return ResponseData({})

        request = self.input.idempotent_request(session_account(self).id)
        await self.services.idempotency.run_once(request, {}, note)
        self.set_status(204)


class TryTool(_PageConversion):
    """Runs the tool of its route for a page."""

    @cancelled_on_disconnect
    async def post(self) -> None:
        await self.convert(await _tool_request(self))


class TryConvert(_PageConversion):
    """Converts a file for a page, or finds out what a conversion would do."""

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
            await self.services.trials.count_preview(self.authorization.address, self.authorization.session)
            await _dry_run_and_respond(self, request)
        else:
            await self.convert(request)


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

    With `pages`, returns a ZIP of small images of up to 12 pages. With an `output_format`, returns what options of
    encoders make of a small PNG. Previews cost no credits; their number is limited.
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
            allowed = frozenset({"password", "pages"})
            fixed = _PREVIEW_OPTIONS
            if "pages" in self.input.values:
                fixed = _page_options(str(self.input.values["pages"]))
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


def _page_options(pages: str) -> OptionValues:
    """The options of a preview of some pages, which are smaller if there are several. Raises InvalidParameter."""
    match = _RANGE.fullmatch(pages)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last < first + _PREVIEWED_PAGES:
        message = f"pages must be one page, or up to {_PREVIEWED_PAGES} such as 13-24."
        raise InvalidParameter(message, reason="out_of_range", param="pages", details={"max": _PREVIEWED_PAGES})
    side = 1000 if first == last else 240
    return MappingProxyType({"width": side, "height": side, "effort": 1})
