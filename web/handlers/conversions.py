"""POST /convert, /pdf/merge and /pdf/delete-pages: files in, the result out. With /json, the result is stored."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

from web.api.fields import DirectConversionFields, IdempotencyHeader
from web.api.operations import (
    CONVERSION_ERRORS,
    CONVERSION_OPTIONS,
    FileField,
    FormFields,
    Operation,
    file_response,
    json_response,
)
from web.api.schemas.files import ConversionResult, PlannedConversion
from web.http.downloads import send_file, send_stored
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.conversion_request import ChargedConversion, ConversionRequest, Upload

_PDF = "application/pdf"
_PDF_RESULT = (json_response(ConversionResult),)

_CONVERT = Operation(
    id="convert",
    tag="Conversion",
    form=FormFields(FileField("file", "The file to convert."), DirectConversionFields),
    options=CONVERSION_OPTIONS,
    headers=IdempotencyHeader,
    responses=(file_response(),),
    codes=CONVERSION_ERRORS,
    queued=True,
    negotiated=True,
)
_MERGE = replace(
    _CONVERT,
    id="mergePdfs",
    tag="PDF",
    form=FormFields(FileField("files[]", "The PDFs, in order.", 2, 20, aliases=("files",), media_type=_PDF)),
    options="pdf-merge",
    responses=(file_response((_PDF,)),),
)
_DELETE_PAGES = replace(
    _MERGE,
    id="deletePdfPages",
    form=FormFields(FileField("file", "The PDF.", media_type=_PDF)),
    options="pdf-delete-pages",
)


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


class _FormConversion(BaseHandler):
    """Converts the files of a form. The result is stored if the client accepts JSON, or if `always_json` is set."""

    always_json: ClassVar[bool] = False

    def conversion(
        self,
        operation: Literal["convert", "pdf_merge", "pdf_delete_pages"],
        uploads: tuple[Upload, ...],
        target: str,
        *,
        tool: str | None = None,
        name: str = "",
    ) -> ConversionRequest:
        """The conversion of the files of the request's form."""
        self.services.metrics.conversions.observe_stage("upload", self.request.request_time())
        return ConversionRequest(
            account=self.client(),
            operation=operation,
            uploads=uploads,
            target=target,
            options=self.input.options_given(),
            tool=tool,
            name=name,
            store_result=self.always_json or wants_json(self.request.headers.get("Accept", "")),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
        )


class Convert(_FormConversion):
    """Converts a file in one request."""

    @_CONVERT
    async def post(self) -> None:
        """Convert a file in one request

        The response is the file, and nothing is stored. With `Accept: application/json` or `dry_run`, it is the JSON of
        `POST /convert/json`. Several pages in a format for one picture are sent as a ZIP. Costs one credit.
        """
        await self.cancel_on_disconnect(self._convert())

    async def _convert(self) -> None:
        upload, fields = self.input.form.file("file"), self.input.form_fields(DirectConversionFields)
        request = self.conversion("convert", (upload,), fields.output_format)
        if fields.dry_run:
            with self.services.work_files.create(request.account.id) as output:
                planned = await self.services.conversions.inspect(request, output)
            self.respond(planned)
        else:
            await convert_and_respond(self, request)


class ConvertToJson(Convert):
    """Converts a file and stores the result."""

    always_json = True

    @replace(
        _CONVERT,
        id="convertToJson",
        responses=(json_response(ConversionResult | PlannedConversion, "The stored result."),),
        negotiated=False,
    )
    async def post(self) -> None:
        """Convert a file and store the result

        Several pages in a format for one picture are stored as a ZIP. Costs one credit.
        """
        await super().post()


class Merge(_FormConversion):
    """Merges PDFs in the order in which they are sent."""

    @_MERGE
    async def post(self) -> None:
        """Merge PDFs

        Outlines, links, form fields and page labels are kept. With `Accept: application/json`, the response is the JSON
        of `POST /pdf/merge/json`. Costs one credit.
        """
        await self.cancel_on_disconnect(self._merge())

    async def _merge(self) -> None:
        request = self.conversion("pdf_merge", self.input.form.uploads, "pdf", tool="pdf-merge", name="merged.pdf")
        await convert_and_respond(self, request)


class MergeToJson(Merge):
    """Merges PDFs and stores the result."""

    always_json = True

    @replace(_MERGE, id="mergePdfsToJson", responses=_PDF_RESULT, negotiated=False)
    async def post(self) -> None:
        """Merge PDFs and store the result

        Outlines, links, form fields and page labels are kept. Costs one credit.
        """
        await super().post()


class DeletePages(_FormConversion):
    """Deletes pages of a PDF."""

    @_DELETE_PAGES
    async def post(self) -> None:
        """Delete pages of a PDF

        Outlines, links, form fields and page labels are kept. With `Accept: application/json`, the response is the JSON
        of `POST /pdf/delete-pages/json`. Costs one credit.
        """
        await self.cancel_on_disconnect(self._delete())

    async def _delete(self) -> None:
        upload = self.input.form.file("file")
        await convert_and_respond(self, self.conversion("pdf_delete_pages", (upload,), "pdf", tool="pdf-delete-pages"))


class DeletePagesToJson(DeletePages):
    """Deletes pages of a PDF and stores the result."""

    always_json = True

    @replace(_DELETE_PAGES, id="deletePdfPagesToJson", responses=_PDF_RESULT, negotiated=False)
    async def post(self) -> None:
        """Delete pages of a PDF and store the result

        Outlines, links, form fields and page labels are kept. Costs one credit.
        """
        await super().post()
