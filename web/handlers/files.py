"""/files and /batch: upload files, list them, convert them by their ids."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from web.api.fields import BatchConversionFields, ChargeHeaders, FileConversionFields, FileListQuery, unique_ids
from web.api.operations import CONVERSION_ERRORS, FileField, FormFields, Operation, job_response, json_response
from web.api.output_fields import ConversionFields
from web.api.schemas.files import (
    AddedFile,
    BatchResult,
    BatchStatus,
    ConversionResult,
    DeletedFile,
    FileList,
    StoredFile,
)
from web.api.url_fields import UrlFields
from web.handlers.conversion_requests import conversion_request, remote_files
from web.handlers.conversions import convert_and_respond
from web.handlers.jobs import accept_job, respond_with_job
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.services.conversions.conversion_request import Upload as UploadedFile
from web.services.files.files import stored_file


@asynccontextmanager
async def _uploaded_file(handler: BaseHandler) -> AsyncIterator[UploadedFile]:
    """The file of the form, or the one that its URL leads to, which exists during the block."""
    if remote := remote_files(handler):
        async with handler.services.remote_files.fetch(handler.client(), remote) as (fetched,):
            yield fetched
    else:
        yield handler.input.form.file("file")


class Upload(BaseHandler):
    """Stores a file."""

    @Operation(
        id="filesUpload",
        tag="Files",
        form=FormFields(FileField("file", "The file to store."), urls=UrlFields),
        responses=(json_response(StoredFile),),
        codes=("invalid_file_type",),
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        """Upload a file

        The file is stored until `expires_at`. Costs nothing.
        """
        async with _uploaded_file(self) as upload:
            self.respond(stored_file(await self.services.files.upload(self.client(), upload)))


class StoredFiles(BaseHandler):
    """The stored files of the account."""

    @Operation(id="filesList", tag="Files", query=FileListQuery, responses=(json_response(FileList),))
    async def get(self) -> None:
        """List the stored files, newest first"""
        query = self.input.query_fields(FileListQuery)
        page = await self.services.files.list_page(
            self.client().id,
            processed=None if query.status is None else query.status == "processed",
            limit=query.limit,
            cursor=query.cursor,
        )
        self.respond(FileList(tuple(map(stored_file, page.values)), page.next_cursor))


class FileResource(BaseHandler):
    """A stored file."""

    @Operation(id="filesGet", tag="Files", responses=(json_response(StoredFile),))
    async def get(self, file_id: str) -> None:
        """Get the status of a file"""
        self.respond(stored_file(await self.services.files.find(self.client().id, file_id)))

    @Operation(id="filesDelete", tag="Files", responses=(json_response(DeletedFile),))
    async def delete(self, file_id: str) -> None:
        """Delete a file"""
        await self.services.files.delete(self.client().id, file_id)
        self.respond(DeletedFile(file_id))


class FileConversion(BaseHandler):
    """Converts a stored file."""

    @Operation(
        id="filesConvert",
        tag="Files",
        json=FileConversionFields,
        conversion_options=True,
        headers=ChargeHeaders,
        responses=(json_response(ConversionResult, "The result of the conversion."), job_response()),
        codes=CONVERSION_ERRORS,
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self, file_id: str) -> None:
        """Convert a stored file

        A file that was converted before stays unchanged, and the result becomes a new file. Costs one credit.
        """
        request = await conversion_request(self, file_id=file_id, store_result=True)
        files = self.services.files
        file = await files.find(self.client().id, file_id)
        with self.services.work_files.create(self.client().id) as source:
            uploads = (await files.working_copy(file, source),)
            await convert_and_respond(self, replace(request, file=file, uploads=uploads))


class Batches(BaseHandler):
    """Creates batches."""

    @Operation(
        id="batchesCreate",
        tag="Batches",
        json=ConversionFields,
        responses=(json_response(BatchStatus),),
        codes=("unsupported_conversion",),
    )
    async def post(self) -> None:
        """Create a batch

        Costs nothing.
        """
        target = self.input.json_fields(ConversionFields).output_format
        self.respond(await self.services.batches.create(self.client(), target))


class BatchResource(BaseHandler):
    """A batch and its files."""

    @Operation(id="batchesGet", tag="Batches", responses=(json_response(BatchStatus),))
    async def get(self, batch_id: str) -> None:
        """Get a batch"""
        self.respond(await self.services.batches.find(self.client().id, batch_id))


class BatchFiles(BaseHandler):
    """Adds files to a batch."""

    @Operation(
        id="batchesAddFile",
        tag="Batches",
        form=FormFields(FileField("file", "The file to add."), urls=UrlFields),
        responses=(json_response(AddedFile),),
        codes=("invalid_file_type",),
    )
    @cancelled_on_disconnect
    async def post(self, batch_id: str) -> None:
        """Add a file to a batch

        The file is stored, but not converted. Costs nothing.
        """
        await self.services.batches.check_exists(self.client().id, batch_id)  # reported before a wrong file
        async with _uploaded_file(self) as upload:
            self.respond(await self.services.batches.add(self.client(), batch_id, upload))


class BatchConversion(BaseHandler):
    """Converts files of a batch."""

    @Operation(
        id="batchesConvert",
        tag="Batches",
        json=BatchConversionFields,
        conversion_options=True,
        headers=ChargeHeaders,
        responses=(json_response(BatchResult, "The results of the conversions."), job_response()),
        codes=("unsupported_conversion", "no_credits"),
        queued=True,
    )
    @cancelled_on_disconnect
    async def post(self, batch_id: str) -> None:
        """Convert files of a batch

        The files are converted concurrently and independently of each other. Every converted file costs one credit.
        """
        file_ids = self.input.json_fields(BatchConversionFields).file_ids
        request = await conversion_request(
            self, operation="batch", batch_id=batch_id, file_ids=unique_ids(file_ids, self.services.batches.max_files)
        )
        job = request.background
        response = self.unwrap_replay(
            await (accept_job(self, request) if job else self.services.batches.convert(request))
        )
        if response.status == 202:
            await respond_with_job(self, response)
            return
        self.authorization.credits_remaining = await self.services.accounts.balance(self.client().id)
        self.respond(response.data)
