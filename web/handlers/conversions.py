"""POST /convert, /pdf/merge and /pdf/delete-pages: files in, the result out."""

from __future__ import annotations

from dataclasses import replace

from engine.options import Options
from storage.blob_store import read_blocks
from web.api.fields import ConversionFields, DeletePagesFields, IdempotencyHeader, MergeFields
from web.api.operations import CONVERSION_ERRORS, FileField, FormFields, Operation, result_responses
from web.api.schemas.files import ConversionResult, PdfResult
from web.http.downloads import send_stored
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.conversion_request import Charged, ConversionRequest

_PDF = "application/pdf"
_PDF_RESPONSES = result_responses(PdfResult, (_PDF,))


async def convert_and_reply(handler: BaseHandler, request: ConversionRequest, *, as_json: bool) -> None:
    """Runs a conversion and responds with the result, or with its description as JSON. Raises PublicError."""
    services = handler.services
    if request.file is None:
        services.metrics.conversions.observe_stage("upload", handler.request.request_time())
    outcome = await services.conversions.convert(replace(request, context=handler.context))
    if isinstance(outcome, Charged):
        handler.set_balance(outcome.balance)
        if outcome.answer is None:
            made = outcome.result
            blocks = read_blocks(made.path, 0, made.size)
            await handler.send_file(blocks, size=made.size, media_type=made.media_type, filename=made.filename)
            return
        answer = outcome.answer
    else:
        handler.set_balance(await services.accounts.balance(handler.client().id))
        answer = handler.replayable(outcome)
    if as_json:
        handler.reply(answer.data)
    else:
        await send_stored(handler, answer.file_id or "")


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
        as_json = wants_json(self.request.headers.get("Accept", ""))
        request = ConversionRequest(
            account=self.client(),
            operation="convert",
            uploads=(upload,),
            target=fields.output_format,
            options=fields.options(),
            keep=as_json,
            idempotency=self.idempotent_request(),
        )
        await convert_and_reply(self, request, as_json=as_json)


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
        uploads, fields = self.form.uploads, self.form_fields(MergeFields)
        as_json = wants_json(self.request.headers.get("Accept", ""))
        request = ConversionRequest(
            account=self.client(),
            operation="pdf_merge",
            uploads=uploads,
            target="pdf",
            options=Options(password=fields.password),
            tool="pdf-merge",
            name="merged.pdf",
            keep=as_json,
            idempotency=self.idempotent_request(),
        )
        await convert_and_reply(self, request, as_json=as_json)


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
        upload, fields = self.form.file("file"), self.form_fields(DeletePagesFields)
        as_json = wants_json(self.request.headers.get("Accept", ""))
        request = ConversionRequest(
            account=self.client(),
            operation="pdf_delete_pages",
            uploads=(upload,),
            target="pdf",
            options=Options(pages=fields.pages, password=fields.password),
            tool="pdf-delete-pages",
            keep=as_json,
            idempotency=self.idempotent_request(),
        )
        await convert_and_reply(self, request, as_json=as_json)
