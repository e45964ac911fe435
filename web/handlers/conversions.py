"""POST /convert and the tools: files in, the result out. With /json, the result is stored.

POST /try/convert, /try/preview and /try/identify are for the script of the landing page, and not part of the API.
"""

import json
import re
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from engine.auto_format import AUTO, DEFAULT_FORMATS, FORMATS
from engine.options import OptionValues
from engine.registry import Registry
from storage.errors import NoCredits
from web.api.errors import InvalidParameter
from web.api.fields import ChargeHeaders, DirectConversionFields, PreviewFields, ToolFields, TrialFields
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
from web.api.url_fields import ExportFields, UrlFields
from web.api.values import to_json
from web.handlers.jobs import accept_job, is_job, respond_with_job
from web.handlers.presets import apply_preset
from web.http.downloads import send_and_delete, send_file, send_stored, set_validator
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.http.responses import wants_json
from web.services.accounts.trials import credits_used_up, trial_result
from web.services.container import Services
from web.services.conversions.conversion_request import LARGE_RESULT, ChargedConversion, ConversionRequest, RemoteFile
from web.services.conversions.idempotency import Replayed, ResponseData
from web.services.files.work_files import WorkFile
from web.site.pages import PageHandler

_ANY_IMAGE = "image/*"
_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*(0(\.0*)?)\s*")  # The client does not accept types with it.
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
        remote = remote_files_of(self)
        uploads = () if remote else (self.input.form.file("file"),)
        await apply_preset(self)
        fields = self.input.form_fields(DirectConversionFields)
        request = ConversionRequest(
            account=self.client(),
            operation="convert",
            uploads=uploads,
            remote=remote,
            **wanted(self, fields),
            store_result=_stores_result(self),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
            export=export_of(self, fields),
            tag=fields.tag,
            webhook_url=fields.webhook_url,
        ).with_additional(self.input.additional_files())
        if fields.dry_run:
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
        remote = remote_files_of(self)
        uploads = () if remote else (self.input.form.file("file"),)
        await apply_preset(self)
        asked = wanted(self, self.input.form_fields(TargetFields))
        request = ConversionRequest(self.client(), "convert", uploads, **asked, remote=remote, context=self.context)
        await _dry_run_and_respond(self, request.with_additional(self.input.additional_files()))


class RunTool(BaseHandler):
    """Runs the tool of its route on the files of a form."""

    @cancelled_on_disconnect
    async def post(self) -> None:
        assert self.operation is not None
        assert self.operation.form is not None
        assert self.operation.tool is not None
        tool, form = self.operation.tool, self.input.form
        inputs = self.operation.form.file.names
        remote = remote_files_of(self)
        uploads = form.uploads(*inputs) if tool.takes_several or remote else (form.file(*inputs),)
        fields = self.input.form_fields(ToolFields)
        request = ConversionRequest(
            account=self.client(),
            operation=tool.operation,
            uploads=uploads,
            remote=remote,
            target=tool.target.name,
            options=self.input.options_given(),
            tool=tool.name,
            name=f"{tool.output_name}.{tool.target.extensions[0]}" if tool.output_name else "",
            store_result=_stores_result(self),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
            export=export_of(self, fields),
            tag=fields.tag,
            webhook_url=fields.webhook_url,
        ).with_additional(self.input.additional_files())
        await convert_and_respond(self, request)


def wanted(handler: BaseHandler, fields: TargetFields) -> dict[str, Any]:
    """What a request for a conversion results in: the values of `target`, `options` and `outputs`.

    Raises InvalidParameter and InvalidOption.
    """
    registry, accept = handler.services.registry, handler.request.headers.get("Accept", "")
    options = handler.input.options_given()
    if fields.outputs is not None:  # an output format beside them has no effect
        given = handler.input.outputs_given(fields.outputs)
        outputs = [replace(one, options=_with_formats(registry, one.target, one.options, accept)) for one in given]
        return {"target": "", "options": options, "outputs": tuple(outputs)}
    if fields.output_format is None:
        raise InvalidParameter("output_format is missing.", reason="missing", param="output_format")
    target = fields.output_format
    return {"target": target, "options": _with_formats(registry, target, options, accept)}


def _stores_result(handler: BaseHandler) -> bool:
    """Whether the response is JSON that describes a stored result: on paths for that, or if the client accepts JSON."""
    handler.services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    always = handler.operation is not None and handler.operation.always_json
    return always or wants_json(handler.request.headers.get("Accept", ""))


def remote_files_of(handler: BaseHandler) -> tuple[RemoteFile, ...]:
    """The files that the form names by their URLs, which are checked but for the addresses of names.

    None if the form has the files. Raises InvalidParameter.
    """
    remote = handler.input.remote_files()
    handler.services.remote_files.check(remote)
    return remote


def export_of(handler: BaseHandler, fields: ExportFields) -> RemoteFile | None:
    """Where the result is also sent, if anywhere. Raises InvalidParameter."""
    if fields.export_url is None:
        return None
    target = RemoteFile(fields.export_url, dict(fields.export_headers or {}), "export_url")
    handler.services.remote_files.check([target])
    return target


async def convert_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Runs a conversion and responds with the result, or with JSON if `store_result` is set. Raises PublicError.

    If the client prefers that, the conversion is accepted as a job, and the response describes the job.
    """
    services = handler.services
    if is_job(handler, request):
        await _respond_with_stored(handler, request, await accept_job(handler, request))
        return
    with handler.create_work_file() as output:
        converted = await _convert(services, request, output)
        _close_uploads(request)
        if isinstance(converted, ChargedConversion):
            handler.authorization.set_balance(converted.balance)
            is_large = converted.outcome.processed_size > LARGE_RESULT
            if converted.response is None or not (request.store_result or is_large):
                if converted.response is not None:  # a repeated request gets the stored file, with the same headers
                    set_validator(handler, converted.response.file_id or "")
                await send_file(handler, converted.file.blocks(), converted.outcome)
                return
            stored: ResponseData | Replayed = converted.response
        else:
            handler.authorization.set_balance(await services.accounts.balance(handler.client().id))
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
    if request.remote and (stored := await services.conversions.find_stored(request)) is not None:
        return stored
    async with services.remote_files.complete(request) as complete:
        return await services.conversions.convert(complete, output)


def _close_uploads(request: ConversionRequest) -> None:
    """Deletes the uploads before the response: the client may read it slowly, or wait for a job."""
    for upload in request.uploads:
        upload.file.close()


async def _dry_run_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Responds with a description of the conversion, which is not run. Raises PublicError."""
    with handler.create_work_file() as output:
        async with handler.services.remote_files.complete(request) as complete:
            handler.respond(await handler.services.conversions.dry_run(complete, output))


def _with_formats(registry: Registry, target: str, options: OptionValues, accept: str) -> OptionValues:
    """The options with the formats of which `auto` chooses, if the request does not name any.

    These are the images that `Accept` names, and DEFAULT_FORMATS if it names none, or `image/*`.
    """
    if target.lower() != AUTO or FORMATS.name in options:
        return options
    return {**options, FORMATS.name: ",".join(_accepted_formats(registry, accept))}


def _accepted_formats(registry: Registry, accept: str) -> tuple[str, ...]:
    """The names of the formats of images that `Accept` names, or DEFAULT_FORMATS."""
    entries = [[part.strip().lower() for part in entry.split(";")] for entry in accept.split(",")]
    refused = {name for name, *weights in entries if any(_ZERO_WEIGHT.fullmatch(weight) for weight in weights)}
    accepted = [name for name, *_ in entries if name not in refused]
    written = {target.media_type: target.name for _, target in reversed(registry.pairs())}
    named = [written[name] for name in accepted if name.startswith("image/") and name in written]
    if not named or _ANY_IMAGE in accepted:
        named += [name for name in DEFAULT_FORMATS if registry.formats[name].media_type not in refused]
    return tuple(dict.fromkeys(named)) or DEFAULT_FORMATS


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
        fields = self.input.form_fields(TrialFields)
        request = _conversion_request(self, fields.output_format, self.input.options_given())
        if fields.dry_run:
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
        target, given = self.input.form_fields(PreviewFields).output_format, self.input.options_given()
        if target is None:
            target, allowed, fixed = _PREVIEW_FORMAT, frozenset({"password"}), _PREVIEW_OPTIONS
        else:
            allowed, fixed = _SAMPLE_OPTIONS, MappingProxyType({"width": _SAMPLE_SIDE, "height": _SAMPLE_SIDE})
            if self.input.form.file("file").format.name != "png":
                raise InvalidParameter("A sample has to be a PNG.", reason="malformed", param="file")
        options = {**{name: value for name, value in given.items() if name in allowed}, **fixed}
        request = _conversion_request(self, target, options)
        with self.create_work_file() as output:
            outcome = await self.services.conversions.preview(request, output)
            await send_file(self, output.blocks(), outcome)


def _conversion_request(handler: PageHandler, target: str, options: OptionValues) -> ConversionRequest:
    """The conversion of the form's file."""
    upload, additional = handler.input.form.file("file"), handler.input.additional_files()
    request = ConversionRequest(handler.client(), "convert", (upload,), target, options, context=handler.context)
    return request.with_additional(additional)
