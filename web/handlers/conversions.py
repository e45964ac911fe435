"""POST /convert and the tools: files in, the result out. With /json, the result is stored."""

from __future__ import annotations

from web.api.fields import DirectConversionFields, IdempotencyHeader
from web.api.operations import CONVERSION_ERRORS, FileField, FormFields, Operation, file_response
from web.api.schemas.files import ConversionResult, PlannedConversion
from web.http.downloads import send_file, send_stored
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.http.responses import wants_json
from web.services.conversion_request import ChargedConversion, ConversionRequest


class Convert(BaseHandler):
    """Converts a file in one request."""

    @Operation(
        id="convert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), DirectConversionFields),
        conversion_options=True,
        headers=IdempotencyHeader,
        responses=(file_response(),),
        codes=CONVERSION_ERRORS,
        queued=True,
        json_schema=ConversionResult | PlannedConversion,
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        """Convert a file in one request

        The response is the file, and nothing is stored. With `Accept: application/json` or `dry_run`, it is the JSON of
        `POST /convert/json`. Several pages in a format for one picture are sent as a ZIP. Costs one credit.
        """
        upload, fields = self.input.form.file("file"), self.input.form_fields(DirectConversionFields)
        request = ConversionRequest(
            account=self.client(),
            operation="convert",
            uploads=(upload,),
            target=fields.output_format,
            options=self.input.options_given(),
            store_result=_stores_result(self),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
        )
        if fields.dry_run:
            with self.services.work_files.create(request.account.id) as output:
                self.respond(await self.services.conversions.inspect(request, output))
        else:
            await convert_and_respond(self, request)


class RunTool(BaseHandler):
    """Runs the tool of its route on the files of a form."""

    @cancelled_on_disconnect
    async def post(self) -> None:
        assert self.operation is not None
        assert self.operation.form is not None
        assert self.operation.tool is not None
        tool, form = self.operation.tool, self.input.form
        inputs = self.operation.form.file.names
        further = tuple(name for name in tool.files if form.uploads(name))
        uploads = form.uploads(*inputs) if tool.takes_several else (form.file(*inputs),)
        request = ConversionRequest(
            account=self.client(),
            operation=tool.operation,
            uploads=(*uploads, *(form.file(name) for name in further)),
            target=tool.target.name,
            options=self.input.options_given(),
            tool=tool.name,
            file_names=further,
            name=f"{tool.output_name}.{tool.target.extensions[0]}" if tool.output_name else "",
            store_result=_stores_result(self),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
        )
        await convert_and_respond(self, request)


def _stores_result(handler: BaseHandler) -> bool:
    """Whether the response is JSON that describes a stored result: on paths for that, or if the client accepts JSON."""
    handler.services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    always = handler.operation is not None and handler.operation.always_json
    return always or wants_json(handler.request.headers.get("Accept", ""))


async def convert_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Runs a conversion and responds with the result, or with JSON if `store_result` is set. Raises PublicError."""
    services = handler.services
    with services.work_files.create(request.account.id) as output:
        converted = await services.conversions.convert(request, output)
        if isinstance(converted, ChargedConversion):
            handler.authorization.set_balance(converted.balance)
            if converted.response is None:
                await send_file(handler, converted.file.blocks(), converted.outcome)
                return
            response = converted.response
        else:
            handler.authorization.set_balance(await services.accounts.balance(handler.client().id))
            response = handler.unwrap_replay(converted)
    if request.store_result:
        handler.respond(response.data)
    else:
        await send_stored(handler, response.file_id or "")
