"""POST /convert, /pdf/merge and /pdf/delete-pages: files in, the result out."""

from __future__ import annotations

from typing import Literal

from web.api.fields import DirectConversionFields, IdempotencyHeader
from web.api.operations import (
    CONVERSION_ERRORS,
    CONVERSION_OPTIONS,
    FileField,
    FormFields,
    Operation,
    result_responses,
)
from web.api.schemas.files import ConversionResult, PdfResult, PlannedConversion
from web.http.downloads import send_file, send_stored
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.conversion_request import ChargedConversion, ConversionRequest, Upload
from web.services.serializers import planned_conversion

_PDF = "application/pdf"
_PDF_RESPONSES = result_responses(PdfResult, (_PDF,))


async def convert_and_respond(handler: BaseHandler, request: ConversionRequest) -> None:
    """Runs a conversion and responds with the result, or with JSON if `store_result` is set. Raises PublicError."""
    services = handler.services
    with services.work_files.create(request.account.id) as output:
        converted = await services.conversions.convert(request, output)
        if isinstance(converted, ChargedConversion):
            handler.set_balance(converted.balance)
            if converted.response is None:
                result = converted.result
                await send_file(
                    handler,
                    result.file.blocks(),
                    size=result.size,
                    media_type=result.media_type,
                    filename=result.filename,
                    warnings=[warning.code for warning in result.warnings],
                )
                return
            response = converted.response
        else:
            handler.set_balance(await services.accounts.balance(handler.client().id))
            response = handler.unwrap_replay(converted)
    if request.store_result:
        handler.respond(response.data)
    else:
        await send_stored(handler, response.file_id or "")


def _request(
    handler: BaseHandler,
    operation: Literal["convert", "pdf_merge", "pdf_delete_pages"],
    uploads: tuple[Upload, ...],
    target: str,
    *,
    tool: str | None = None,
    name: str = "",
) -> ConversionRequest:
    """The conversion of the files of the request's form. Stores its result if the client accepts JSON."""
    handler.services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    return ConversionRequest(
        account=handler.client(),
        operation=operation,
        uploads=uploads,
        target=target,
        options=handler.options_given(),
        tool=tool,
        name=name,
        store_result=wants_json(handler.request.headers.get("Accept", "")),
        idempotency=handler.idempotent_request(),
        context=handler.context,
    )


class Convert(BaseHandler):
    """Converts a file in one request."""

    @Operation(
        id="convert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), DirectConversionFields),
        options=CONVERSION_OPTIONS,
        headers=IdempotencyHeader,
        responses=result_responses(ConversionResult | PlannedConversion),
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    async def post(self) -> None:
        """Convert a file in one request

        The response is the file, and nothing is stored. With `Accept: application/json` the result is stored, and the
        response describes it. Several pages in a format for one picture are sent as a ZIP. Costs one credit.
        """
        await self.cancel_on_disconnect(self._convert())

    async def _convert(self) -> None:
        upload, fields = self.form.file("file"), self.form_fields(DirectConversionFields)
        request = _request(self, "convert", (upload,), fields.output_format)
        if fields.dry_run:
            with self.services.work_files.create(request.account.id) as output:
                plan, inspection = await self.services.conversions.inspect(request, output)
            self.respond(planned_conversion(plan, request.options, inspection))
        else:
            await convert_and_respond(self, request)


class Merge(BaseHandler):
    """Merges PDFs in the order in which they are sent."""

    @Operation(
        id="mergePdfs",
        tag="PDF",
        form=FormFields(FileField("files[]", "The PDFs, in order.", 2, 20, aliases=("files",), media_type=_PDF)),
        options="pdf-merge",
        headers=IdempotencyHeader,
        responses=_PDF_RESPONSES,
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    async def post(self) -> None:
        """Merge PDFs

        Outlines, links, form fields and page labels are kept. With `Accept: application/json` the result is stored, and
        the response describes it. Costs one credit.
        """
        await self.cancel_on_disconnect(self._merge())

    async def _merge(self) -> None:
        request = _request(self, "pdf_merge", self.form.uploads, "pdf", tool="pdf-merge", name="merged.pdf")
        await convert_and_respond(self, request)


class DeletePages(BaseHandler):
    """Deletes pages of a PDF."""

    @Operation(
        id="deletePdfPages",
        tag="PDF",
        form=FormFields(FileField("file", "The PDF.", media_type=_PDF)),
        options="pdf-delete-pages",
        headers=IdempotencyHeader,
        responses=_PDF_RESPONSES,
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    async def post(self) -> None:
        """Delete pages of a PDF

        Outlines, links, form fields and page labels are kept. With `Accept: application/json` the result is stored, and
        the response describes it. Costs one credit.
        """
        await self.cancel_on_disconnect(self._delete())

    async def _delete(self) -> None:
        upload = self.form.file("file")
        await convert_and_respond(self, _request(self, "pdf_delete_pages", (upload,), "pdf", tool="pdf-delete-pages"))
