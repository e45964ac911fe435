"""POST /convert, /pdf/merge and /pdf/delete-pages: files in, the result out."""

from __future__ import annotations

from typing import Literal

from engine.options import OptionValues
from web.api.fields import ConversionFields, DeletePagesFields, IdempotencyHeader, MergeFields
from web.api.operations import CONVERSION_ERRORS, FileField, FormFields, Operation, result_responses
from web.api.schemas.files import ConversionResult, PdfResult
from web.http.downloads import send_stored
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.conversion_request import ChargedConversion, ConversionRequest, Upload

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
                blocks, size = result.file.blocks(), result.size
                await handler.send_file(blocks, size=size, media_type=result.media_type, filename=result.filename)
                return
            response = converted.response
        else:
            handler.set_balance(await services.accounts.balance(handler.client().id))
            response = handler.unwrap_replay(converted)
    if request.store_result:
        handler.respond(response.data)
    else:
        await send_stored(handler, response.file_id or "")


async def _convert_uploads(
    handler: BaseHandler,
    operation: Literal["convert", "pdf_merge", "pdf_delete_pages"],
    uploads: tuple[Upload, ...],
    target: str,
    options: OptionValues,
    *,
    tool: str | None = None,
    name: str = "",
) -> None:
    """Converts the files of the request's form. Stores the result if the client accepts JSON. Raises PublicError."""
    request = ConversionRequest(
        account=handler.client(),
        operation=operation,
        uploads=uploads,
        target=target,
        options=options,
        tool=tool,
        name=name,
        store_result=wants_json(handler.request.headers.get("Accept", "")),
        idempotency=handler.idempotent_request(),
        context=handler.context,
    )
    handler.services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    await convert_and_respond(handler, request)


class Convert(BaseHandler):
    """Converts a file in one request."""

    @Operation(
        id="convert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), ConversionFields),
        headers=IdempotencyHeader,
        responses=result_responses(ConversionResult),
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    async def post(self) -> None:
        """Convert a file in one request

        The response is the file, and nothing is stored. With `Accept: application/json` the result is stored, and the
        response describes it. Costs one credit.
        """
        await self.cancel_on_disconnect(self._convert())

    async def _convert(self) -> None:
        upload, fields = self.form.file("file"), self.form_fields(ConversionFields)
        await _convert_uploads(self, "convert", (upload,), fields.output_format, fields.options())


class Merge(BaseHandler):
    """Merges PDFs in the order in which they are sent."""

    @Operation(
        id="mergePdfs",
        tag="PDF",
        form=FormFields(
            FileField("files[]", "The PDFs, in order.", 2, 20, aliases=("files",), media_type=_PDF), MergeFields
        ),
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
        uploads, options = self.form.uploads, self.form_fields(MergeFields).options()
        await _convert_uploads(self, "pdf_merge", uploads, "pdf", options, tool="pdf-merge", name="merged.pdf")


class DeletePages(BaseHandler):
    """Deletes pages of a PDF."""

    @Operation(
        id="deletePdfPages",
        tag="PDF",
        form=FormFields(FileField("file", "The PDF.", media_type=_PDF), DeletePagesFields),
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
        upload, options = self.form.file("file"), self.form_fields(DeletePagesFields).options()
        await _convert_uploads(self, "pdf_delete_pages", (upload,), "pdf", options, tool="pdf-delete-pages")
