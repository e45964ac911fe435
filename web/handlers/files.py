"""/files: files that are stored to be converted, and what was made of them."""

from __future__ import annotations

from engine.options import Options
from web.api.fields import IDEMPOTENCY_KEY, OUTPUT_FORMAT, PASSWORD, QUALITY
from web.api.operations import CONVERTS, FileField, FormFields, Operation, described, parts
from web.api.schemas.files import ConversionResult, DeletedFile, FileStatus, StoredFile
from web.handlers.conversions import OrderHandler
from web.http.bodies import FormHandler, JsonHandler
from web.http.downloads import DownloadHandler
from web.http.handler import Handler
from web.services.conversion_request import ConversionRequest
from web.services.serializers import file_status, stored_file


class Upload(FormHandler):
    """Stores a file to be converted later."""

    @Operation(
        id="uploadFile",
        tag="Files",
        form=FormFields(FileField("file", "The file to store.")),
        answers=(described(StoredFile),),
        codes=("invalid_file_type",),
    )
    async def post(self) -> None:
        """Store a file

        It is kept for a day, or for as long as `expires_at` says. Costs nothing.
        """
        await self.unless_gone(self._store())

    async def _store(self) -> None:
        upload = self.form().file("file")
        self.reply(stored_file(await self.services.files.upload(self.client(), upload)))


class FileResource(Handler):
    """What is known about a file; and its end."""

    @Operation(id="getFile", tag="Files", answers=(described(FileStatus),))
    async def get(self, file_id: str) -> None:
        """See what is known about a file"""
        self.reply(file_status(await self.services.files.find(self.client().id, file_id)))

    @Operation(id="deleteFile", tag="Files", answers=(described(DeletedFile),))
    async def delete(self, file_id: str) -> None:
        """Erase a file at once"""
        await self.services.files.delete(self.client().id, file_id)
        self.reply({"file_id": file_id, "deleted": True})


class Conversion(OrderHandler, JsonHandler):
    """Converts a stored file."""

    @Operation(
        id="convertFile",
        tag="Files",
        json=(OUTPUT_FORMAT, QUALITY, PASSWORD),
        headers=(IDEMPOTENCY_KEY,),
        answers=(described(ConversionResult),),
        codes=CONVERTS,
    )
    async def post(self, file_id: str) -> None:
        """Convert a stored file

        A file that was processed before stays as it is, and the result becomes another. Costs one credit.
        """
        await self.unless_gone(self._convert(file_id))

    async def _convert(self, file_id: str) -> None:
        values, files = self.given(), self.services.files
        file = await files.find(self.client().id, file_id)
        async with self.services.jobs.folder(file.conversion_source.original_size) as folder:
            order = ConversionRequest(
                account=self.client(),
                operation="convert",
                uploads=(await files.working_copy(file, folder),),
                target=values[OUTPUT_FORMAT],
                options=Options(quality=values[QUALITY], password=values[PASSWORD]),
                keep=True,
                file=file,
                idempotency=self.idempotent_request(values),
            )
            await self.carry_out(order, described=True)


class Download(DownloadHandler):
    """The bytes of a result."""

    @Operation(id="downloadFile", tag="Files", answers=parts())
    async def get(self, file_id: str) -> None:
        """Fetch the result of a conversion

        A file that is not processed yet is answered with 404, reason `not_processed`.
        """
        await self.unless_gone(self.send_stored(file_id))
