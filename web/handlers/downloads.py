"""Downloads of results: one, several as a ZIP, and links to results that work without an API key."""

from web.api.fields import MAX_ARCHIVE, ArchiveFields, DownloadQuery, LinkFields, LinkQuery, unique_ids
from web.api.operations import Operation, archive_response, download_responses, json_response
from web.api.schemas.files import FileLink
from web.http.downloads import send_archive, send_stored
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.services.files.files import archive_entries


class Download(BaseHandler):
    """The result of a conversion."""

    @Operation(id="filesDownload", tag="Files", query=DownloadQuery, responses=download_responses())
    @cancelled_on_disconnect
    async def get(self, file_id: str) -> None:
        """Download the result of a conversion

        Returns 404 with the reason `not_processed` for a file that has not been converted.
        """
        output = self.input.query_fields(DownloadQuery).output
        await send_stored(self, await self.services.files.find(self.client().id, file_id), output=output)


class FilesArchive(BaseHandler):
    """The results of several files."""

    @Operation(
        id="filesDownloadZip", tag="Files", json=ArchiveFields, responses=(archive_response(),), codes=("not_found",)
    )
    @cancelled_on_disconnect
    async def post(self) -> None:
        """Download the results of several files as a ZIP

        The ZIP is made while it is sent. Results of the same name are numbered. Returns 404 if one of the files does
        not exist or has not been converted. Costs nothing.
        """
        file_ids = unique_ids(self.input.json_fields(ArchiveFields).file_ids, MAX_ARCHIVE)
        files = await self.services.files.find_all(self.client().id, file_ids)
        await send_archive(self, "files.zip", archive_entries(files))


class BatchArchive(BaseHandler):
    """The results of a batch."""

    @Operation(id="batchesDownload", tag="Batches", responses=(archive_response(),))
    @cancelled_on_disconnect
    async def get(self, batch_id: str) -> None:
        """Download the results of a batch as a ZIP

        The ZIP is made while it is sent, and has no files that are not converted. Results of the same name are
        numbered. Returns 404 with the reason `not_processed` for a batch without results.
        """
        await send_batch(self, self.client().id, batch_id)


async def send_batch(handler: BaseHandler, account: str, batch_id: str) -> None:
    """Sends the results of a batch of the account as a ZIP. Raises NotFound."""
    batch = await handler.services.batches.find(account, batch_id)
    entries = archive_entries(file.result.file for file in batch.files if file.result is not None)
    await send_archive(handler, f"{batch_id}.zip", entries)


class FileLinks(BaseHandler):
    """Creates links to a result."""

    @Operation(id="linksCreate", tag="Files", json=LinkFields, responses=(json_response(FileLink),))
    async def post(self, file_id: str) -> None:
        """Create a link to the result of a conversion

        Anyone with the link can download the result without an API key, until it expires or the file is deleted.
        """
        files = self.services.files
        seconds = self.input.json_fields(LinkFields).expires_in
        link = await files.link(await files.find(self.client().id, file_id), seconds)
        self.respond(FileLink(f"{self.services.settings.base_url}/links/{link.token}", link.expires_at))


class LinkedDownload(BaseHandler):
    """A result by a link, whose signature takes the place of an API key."""

    access = "address"

    @Operation(id="linksDownload", tag="Files", query=LinkQuery, responses=download_responses(), codes=("not_found",))
    @cancelled_on_disconnect
    async def get(self, token: str) -> None:
        """Download a result by a link

        Needs no API key. Returns 404 if the link is not valid, has expired, or the file is deleted.
        """
        query = self.input.query_fields(LinkQuery)
        await send_stored(self, self.file, inline=query.disposition == "inline", output=query.output)

    async def authorize(self) -> None:
        await super().authorize()
        self.file = await self.services.files.find_linked(*self.path_args)

    def decode_argument(self, value: bytes, name: str | None = None) -> str:
        return value.decode(errors="replace")  # a changed link is not found, whatever its bytes are
