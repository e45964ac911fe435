"""Stored files: rows in the database, content in the blob store; and the header that names a file."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from config.errors import PublicError
from engine.errors import UnknownFormat
from engine.file_names import extension, safe_name
from engine.formats import FileFormat
from engine.outcome import Outcome
from engine.registry import Registry
from storage.blobs.blob_store import BlobStore
from storage.database import Database, Transaction, reading
from storage.database.pages import Page
from storage.errors import CommitUnknown
from storage.ids import new_id
from storage.tables import files, jobs, links
from storage.tables.files import File, SourceFile, StoredResult
from storage.tables.links import Link
from web.api.errors import NotFound, StorageFull
from web.api.schemas.files import ConversionResult, Failure, Result, StoredFile
from web.api.values import from_json, to_json, to_json_text
from web.services.accounts.accounts import Account
from web.services.conversions.charging import SaveResult
from web.services.conversions.conversion_request import ConversionRequest, Upload
from web.services.conversions.idempotency import ResponseData
from web.services.files.work_files import OtherResult, StoredContent, WorkFile, of_worker
from web.services.files.zip_archive import Entry

_BATCH_SIZE = 500  # rows or blobs
_ORPHAN_AGE = 3600  # seconds; the row of a younger blob may not be committed yet

AddRow = Callable[[Transaction, SourceFile], File]
"""Inserts the row of an upload."""


class Files:
    """Files of accounts. Each is kept for as long as the plan of its account says.

    With `jobs_by_key`, jobs read the inputs that are in the blob store from there.
    """

    def __init__(self, database: Database, blobs: BlobStore, registry: Registry, *, jobs_by_key: bool = False) -> None:
        self._database = database
        self._blobs = blobs
        self._registry = registry
        self._jobs_by_key = jobs_by_key

    async def upload(self, account: Account, upload: Upload) -> File:
        """Stores a file for a later conversion. Raises UnknownFormat and StorageFull."""

        def add(transaction: Transaction, source: SourceFile) -> File:
            return files.add(transaction, account.id, source, account.tier.file_retention_seconds)

        return await self.store(account, upload, add)

    async def store(self, account: Account, upload: Upload, add: AddRow) -> File:
        """Stores the content of an upload, then its row. Raises UnknownFormat, StorageFull and the errors of `add`."""
        fmt = upload.format
        blob = await self.put(upload.file)
        source = SourceFile(safe_name(upload.filename), extension(fmt, upload.filename), fmt.name, upload.size, blob)
        try:
            return await self._database.run(_add, account, source, add)
        except CommitUnknown:
            raise  # the row may exist; if not, the orphan sweep deletes the blob
        except Exception:
            await self.discard([blob])
            raise

    async def find(self, account_id: str, file_id: str) -> File:
        """Returns a file of the account. Raises NotFound."""
        return await self._database.run(files.get, account_id, file_id)

    async def stored_bytes(self, account_id: str) -> int:
        """Returns the size of the account's stored uploads and results in bytes."""
        return await self._database.run(files.stored_bytes, account_id)

    async def check_not_full(self, account: Account, size: int = 1) -> None:
        """Raises StorageFull if `size` more bytes cannot be stored."""
        await self._database.run(check_quota, account, size)

    async def delete(self, account_id: str, file_id: str) -> None:
        """Deletes a file of the account. Raises NotFound."""
        await self.discard(await self._database.run(files.delete, account_id, file_id))

    async def find_all(self, account_id: str, file_ids: Sequence[str]) -> tuple[File, ...]:
        """Returns files of the account, in the order of their ids. Raises NotFound if any does not exist."""
        return await self._database.run(files.get_all, account_id, file_ids)

    async def list_page(self, account_id: str, *, processed: bool | None, limit: int, cursor: str | None) -> Page[File]:
        """Returns at most `limit` files of the account, newest first, after the files before the cursor."""
        return await self._database.run(files.list_page, account_id, processed=processed, limit=limit, cursor=cursor)

    async def link(self, file: File, seconds: int) -> Link:
        """Returns a link to the result of a file for some seconds. Raises NotFound, reason `not_processed`."""
        result_of(file)
        return await self._database.run(links.create, file, seconds)

    async def find_linked(self, token: str) -> File:
        """Returns the file of a link. Raises NotFound."""
        return await self._database.run(links.find, token)

    def read(self, blob: str, start: int, end: int) -> AsyncIterator[bytes]:
        """Reads a blob from byte `start` up to, not including, byte `end`."""
        return self._blobs.read(blob, start, end)

    async def working_copy(self, file: File, target: WorkFile) -> Upload:
        """Makes the target the content to convert. A job never gets the stored file itself, which it could change.

        Raises RateLimited and NoSpace.
        """
        source = _conversion_source(file)
        assert source.source is not None  # a stored source always has a blob
        await self.load_input(source.source, source.original_size, target)
        unknown = UnknownFormat("This server no longer supports the format of this file.")
        identified = self._registry.format(source.input_format) or unknown
        return Upload(target, source.original_name, source.original_size, identified)

    async def load(self, file: WorkFile) -> None:
        """Reads the content of a work file from the blob store, if it is there. Raises as WorkFile.load does."""
        await file.load(self._blobs)

    async def put_inputs(self, blobs: Sequence[str], inputs: Sequence[WorkFile]) -> None:
        """Stores files under these keys. If that fails, none of them stays."""
        try:
            for blob, file in zip(blobs, inputs, strict=True):
                await self._blobs.put(blob, file.descriptor)
        except BaseException:
            await asyncio.shield(self.discard(blobs))
            raise

    async def load_input(self, blob: str, size: int, target: WorkFile) -> None:
        """Makes the target the content of a blob. Raises NotFound, RateLimited and NoSpace."""
        target.stored = StoredContent(blob, size)
        if not self._jobs_by_key:
            await self.load(target)

    async def put(self, file: WorkFile) -> str:
        """Stores a file in the blob store, where it stays, and returns its key.

        Raises OtherResult if it is in the blob store already, but missing or of another size.
        """
        blob = new_id("blob")
        if (stored := file.stored) is None:
            await self._blobs.put(blob, file.descriptor)
            return blob
        with of_worker():
            size = await self._blobs.move(stored.key, blob)
        file.stored = None
        if size != stored.size:
            await self.discard([blob])
            raise OtherResult
        return blob

    async def discard(self, blobs: Iterable[str]) -> None:
        """Deletes blobs that no row refers to."""
        if keys := [*blobs]:
            await self._blobs.delete(keys)

    async def sweep(self) -> None:
        """Deletes expired files and jobs."""
        while await self._database.run(jobs.delete_expired, _BATCH_SIZE):
            pass
        while blobs := await self._database.run(files.delete_expired, _BATCH_SIZE):
            await self.discard(blobs)

    async def sweep_orphans(self) -> None:
        """Deletes blobs without a row. They exist if a server is killed after storing a blob and before its row."""
        blobs: list[str] = []
        async for blob in self._blobs.list(_ORPHAN_AGE):
            blobs.append(blob)
            if len(blobs) == _BATCH_SIZE:
                await self._discard_orphans(blobs)
                blobs.clear()
        await self._discard_orphans(blobs)

    async def _discard_orphans(self, blobs: Sequence[str]) -> None:
        referenced = await self._database.run(_referenced, blobs)
        await self.discard([blob for blob in blobs if blob not in referenced])

    def result_saver(self, request: ConversionRequest, source: FileFormat, outcome: Outcome, blob: str) -> SaveResult:
        """Returns a function that saves the result in the row of the request's stored file, or as a new file.

        The function raises StorageFull if the result exceeds the account's storage quota. If the result is `saved`
        already, it only returns the response.
        """
        result = StoredResult(blob, outcome.processed_size, to_json_text(outcome))

        def save(transaction: Transaction, *, saved: bool = False) -> ResponseData:
            account = request.account.id
            retention = request.account.tier.file_retention_seconds
            file = request.file
            if saved:
                made = files.find_by_result(transaction, account, blob)
            else:
                check_quota(transaction, request.account, result.size)
                if file is not None:
                    original = _conversion_source(file)
                    in_batch = request.operation == "batch"
                    made = files.mark_processed(
                        transaction, account, file.file_id, original, result, retention, in_batch=in_batch
                    )
                else:
                    name = request.original_name
                    original = SourceFile(safe_name(name), extension(source, name), source.name, request.size)
                    made = files.add_processed(transaction, account, original, result, retention)
            return ResponseData(to_json(ConversionResult(conversion_result(made, outcome))), made.file_id)

        return save

    async def record_failure(self, account_id: str, file_id: str, error: PublicError) -> None:
        """Saves the error of a failed conversion of a stored file. Does nothing if the file was deleted meanwhile."""
        failure = Failure(error.code, str(error), error.reason, error.retryable)
        await self._database.run(files.mark_failed, account_id, file_id, to_json_text(failure))


def stored_file(file: File) -> StoredFile:
    """A file as the API describes it."""
    result = None if file.outcome is None else conversion_result(file, read_outcome(file.outcome))
    return StoredFile(file, result, None if file.failure is None else from_json(Failure, file.failure))


def conversion_result(file: File, outcome: Outcome) -> Result:
    """The result of a conversion as the API describes it, each of several with the path to download it."""
    whole = Result(file, outcome)
    if outcome.outputs is None:
        return whole
    numbered = enumerate(outcome.outputs, 1)
    outputs = [replace(one, download_url=f"{whole.download_url}?output={number}") for number, one in numbered]
    return Result(file, replace(outcome, outputs=tuple(outputs)))


def result_of(file: File) -> tuple[Outcome, str]:
    """The outcome of a file and its blob. Raises NotFound, reason `not_processed`, if it is not converted."""
    if file.outcome is None or file.result is None:
        raise NotFound("The file has not been converted yet.", reason="not_processed")
    return read_outcome(file.outcome), file.result


def archive_entries(results: Iterable[File]) -> list[Entry]:
    """The entries of an archive of results. Raises NotFound, reason `not_processed`, if one is missing, or all."""
    found = [result_of(file) for file in results]
    if not found:
        raise NotFound("No file has been converted yet.", reason="not_processed")
    return [Entry(outcome.filename, blob, outcome.processed_size) for outcome, blob in found]


def read_outcome(text: str) -> Outcome:
    """Reads the outcome of a row."""
    values = json.loads(text)
    if "size" in values:  # a row of release 1.0, whose files expire after a day
        values["processed_size"] = values["size"]
        values["processing_time_ms"] = round(values["seconds"] * 1000)
        values["warnings"] = [{"code": code, "message": message} for code, message in values["warnings"]]
    return from_json(Outcome, json.dumps(values))


def _conversion_source(file: File) -> SourceFile:
    """The input of the next conversion: the upload if its bytes are stored, else the result."""
    if file.source is not None or file.outcome is None:
        return SourceFile(file.original_name, file.extension, file.input_format, file.original_size, file.source)
    result = read_outcome(file.outcome)
    extension = result.filename.rpartition(".")[2]
    return SourceFile(result.filename, extension, result.output_format, result.processed_size, file.result)


@reading
def _referenced(transaction: Transaction, blobs: Sequence[str]) -> frozenset[str]:
    return files.referenced_blobs(transaction, blobs) | jobs.referenced_blobs(transaction, blobs)


def _add(transaction: Transaction, account: Account, source: SourceFile, add: AddRow) -> File:
    check_quota(transaction, account, source.original_size, param="file")
    return add(transaction, source)


@reading
def check_quota(transaction: Transaction, account: Account, size: int, param: str | None = None) -> None:
    """Raises StorageFull if `size` more bytes would exceed the account's storage quota."""
    limit = account.tier.max_stored_bytes
    most = files.most_stored_bytes(transaction, account.id)
    if most is None or most + size > limit:
        stored = files.stored_bytes(transaction, account.id)
        if stored + size > limit:
            raise StorageFull(stored, limit, param)
