"""/files: upload a file, convert it by its id, download the result."""

from __future__ import annotations

from web.api.fields import ConversionFields, IdempotencyHeader
from web.api.operations import (
    CONVERSION_ERRORS,
    FileField,
    FormFields,
    Operation,
    download_responses,
    json_response,
)
from web.api.schemas.files import ConversionResult, DeletedFile, StoredFile
from web.handlers.conversions import convert_and_respond
from web.http.downloads import send_stored
from web.http.handler import BaseHandler
from web.services.conversion_request import ConversionRequest
from web.services.files import stored_file


class Upload(BaseHandler):
    """Stores a file."""

    @Operation(
        id="uploadFile",
        tag="Files",
        form=FormFields(FileField("file", "The file to store.")),
        responses=(json_response(StoredFile),),
        codes=("invalid_file_type",),
    )
    async def post(self) -> None:
        """Upload a file

        The file is stored until `expires_at`. Costs nothing.
        """
        await self.cancel_on_disconnect(self._store())

    async def _store(self) -> None:
        upload = self.input.form.file("file")
        self.respond(stored_file(await self.services.files.upload(self.client(), upload)))


class FileResource(BaseHandler):
    """A stored file."""

    @Operation(id="getFile", tag="Files", responses=(json_response(StoredFile),))
    async def get(self, file_id: str) -> None:
        """Get the status of a file"""
        self.respond(stored_file(await self.services.files.find(self.client().id, file_id)))

    @Operation(id="deleteFile", tag="Files", responses=(json_response(DeletedFile),))
    async def delete(self, file_id: str) -> None:
        """Delete a file"""
        await self.services.files.delete(self.client().id, file_id)
        self.respond(DeletedFile(file_id))


class FileConversion(BaseHandler):
    """Converts a stored file."""

    @Operation(
        id="convertFile",
        tag="Files",
        json=ConversionFields,
        conversion_options=True,
        headers=IdempotencyHeader,
        responses=(json_response(ConversionResult),),
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    async def post(self, file_id: str) -> None:
        """Convert a stored file

        A file that was converted before stays unchanged, and the result becomes a new file. Costs one credit.
        """
        await self.cancel_on_disconnect(self._convert(file_id))

    async def _convert(self, file_id: str) -> None:
        fields, options = self.input.json_fields(ConversionFields), self.input.options_given()
        idempotency, files = self.input.idempotent_request(self.client().id), self.services.files
        file = await files.find(self.client().id, file_id)
        with self.services.work_files.create(self.client().id) as source:
            request = ConversionRequest(
                account=self.client(),
                operation="convert",
                uploads=(await files.working_copy(file, source),),
                target=fields.output_format,
                options=options,
                store_result=True,
                file=file,
                idempotency=idempotency,
                context=self.context,
            )
            await convert_and_respond(self, request)


class Download(BaseHandler):
    """The result of a conversion."""

    @Operation(id="downloadFile", tag="Files", responses=download_responses())
    async def get(self, file_id: str) -> None:
        """Download the result of a conversion

        Returns 404 with the reason `not_processed` for a file that has not been converted.
        """
        await self.cancel_on_disconnect(send_stored(self, file_id))
