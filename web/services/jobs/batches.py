"""Batches: files that are uploaded one by one and converted in one request."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from config.errors import PublicError
from engine.errors import ExecutorUnavailable
from engine.registry import Registry
from storage.database import Database, Transaction, reading
from storage.errors import DatabaseBusy, NoCredits, NotFound, StoreUnavailable
from storage.tables import batches, files, ledger
from storage.tables.batches import Batch
from storage.tables.files import File, SourceFile
from storage.tables.idempotency import Claim
from storage.tables.ledger import ServerInstance
from web.api.errors import RateLimited, error_body, public_error
from web.api.schemas.files import AddedFile, BatchFailure, BatchFile, BatchStatus
from web.api.values import to_json
from web.metrics.conversions import RequestContext
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import ChargedConversion, ConversionRequest, Upload
from web.services.conversions.conversions import Conversions, output_format, target_of
from web.services.conversions.idempotency import IdempotencyService, Replayed, ResponseData
from web.services.conversions.releases import Releases
from web.services.files.files import Files, stored_file
from web.services.files.work_files import WorkFile, WorkFiles

log = logging.getLogger("convertd.batches")

_OUTAGES = (DatabaseBusy, StoreUnavailable, ExecutorUnavailable)  # all conversions need these services


ConvertFile = Callable[[ConversionRequest, WorkFile], Awaitable[ChargedConversion | Replayed]]
"""Converts a file of a batch, and charges for it."""


@dataclass(frozen=True)
class BatchRun:
    """How the files of a batch are converted.

    `entries` has those that are done, by the id of the file, and `on_failure` gets the entries of files that fail. An
    error of the types `fatal` ends the run.
    """

    convert: ConvertFile
    entries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    on_failure: Callable[[str, Mapping[str, Any]], Awaitable[None]] | None = None
    fatal: tuple[type[Exception], ...] = ()


class Batches:
    """Batches of at most `max_files` files, and their conversion.

    `owner` identifies this run of this server; a later run ends its interrupted work.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        files: Files,
        work_files: WorkFiles,
        conversions: Conversions,
        idempotency: IdempotencyService,
        releases: Releases,
        owner: ServerInstance,
        max_files: int,
    ) -> None:
        self._database = database
        self._registry = registry
        self._files = files
        self._work_files = work_files
        self._conversions = conversions
        self._idempotency = idempotency
        self._releases = releases
        self._owner = owner
        self.max_files = max_files

    async def create(self, account: Account, target: str) -> BatchStatus:
        """Creates an empty batch. Raises UnsupportedConversion if no conversion has this output format."""
        name, retention = output_format(self._registry, target), account.tier.file_retention_seconds
        batch = await self._database.run(batches.create, account.id, name, retention)
        return BatchStatus(batch, (), self.max_files)

    async def find(self, account_id: str, batch_id: str) -> BatchStatus:
        """Returns a batch of the account. Raises NotFound."""
        batch, batch_files = await self._database.run(get_with_files, account_id, batch_id)
        return BatchStatus(batch, batch_files, self.max_files)

    async def check_exists(self, account_id: str, batch_id: str) -> None:
        """Raises NotFound if the account has no such batch."""
        await self._database.run(batches.get, account_id, batch_id)

    async def add(self, account: Account, batch_id: str, upload: Upload) -> AddedFile:
        """Stores a file in the batch. Raises NotFound, UnknownFormat, StorageFull and BatchFull."""
        total = 0

        def add(transaction: Transaction, source: SourceFile) -> File:
            nonlocal total
            retention = account.tier.file_retention_seconds
            file, total = batches.add_file(transaction, account.id, batch_id, source, self.max_files, retention)
            return file

        file = await self._files.store(account, upload, add)
        return AddedFile(stored_file(file), total)

    async def check(self, request: ConversionRequest) -> str:
        """Returns the canonical name of the output format. Raises NotFound and UnsupportedConversion."""
        await self._database.run(batches.get, request.account.id, request.batch_id)
        return target_of(self._registry, request.target, request.outputs)

    async def convert(self, request: ConversionRequest) -> ResponseData | Replayed:
        """Converts the files concurrently and reports each failure in the entry of its file.

        Raises NotFound for an unknown batch, and NoCredits if the account has no credits and no file succeeds.
        Cancelling stops running conversions; completed ones stay charged and stored.
        """
        target = await self.check(request)
        balance = await self._database.run(ledger.balance, request.account.id)

        async def work(_claim: Claim | None) -> ResponseData:
            response, errors = await self._run(request, target, BatchRun(self._conversions.convert))
            if balance < request.credits and not response.data["successful"]:
                raise NoCredits(balance, request.credits)
            await self._record_failures(request, errors)
            return response

        return await self._idempotency.run_once(request.idempotency, request.parameters(target), work)

    async def run(self, request: ConversionRequest, run: BatchRun) -> ResponseData:
        """Converts the files that are not done. Raises NotFound for an unknown batch, and the `fatal` errors."""
        response, errors = await self._run(request, await self.check(request), run)
        await self._record_failures(request, errors)
        return response

    async def _run(
        self, request: ConversionRequest, target: str, run: BatchRun
    ) -> tuple[ResponseData, dict[str, PublicError]]:
        """Returns the response, and the errors by file."""
        async with self._processing(request, target):
            results, errors = await self._convert_all(request, run)
        successful = sum(result["status"] == "success" for result in results)
        counts = {"total": len(results), "successful": successful, "failed": len(results) - successful}
        data = {"kind": "result", "batch_id": request.batch_id, "results": results, **counts}
        return ResponseData(data), errors

    async def _record_failures(self, request: ConversionRequest, errors: Mapping[str, PublicError]) -> None:
        for file_id, error in errors.items():
            if not isinstance(error, NotFound):
                await self._files.record_failure(request.account.id, file_id, error)

    @asynccontextmanager
    async def _processing(self, request: ConversionRequest, target: str) -> AsyncIterator[None]:
        """Keeps the batch in status `processing` during the block."""
        attempt = await self._database.run(batches.begin, request.account.id, request.batch_id, target, self._owner)
        try:
            yield
        finally:
            await self._releases.run(batches.end, request.batch_id, attempt)

    async def _convert_all(
        self, request: ConversionRequest, run: BatchRun
    ) -> tuple[list[Mapping[str, Any]], dict[str, PublicError]]:
        """Returns one entry per file, in the order of the request, and the errors by file.

        Once a file fails because something that the server needs does not respond, files that wait fail as well.
        """
        entries: dict[str, Mapping[str, Any]] = {**run.entries}
        errors: dict[str, PublicError] = {}
        fatal: list[Exception] = []
        remaining = iter([file_id for file_id in request.file_ids if file_id not in entries])

        async def work() -> None:
            for file_id in remaining:
                if fatal:
                    return
                try:
                    if outage := next((error for error in errors.values() if isinstance(error, _OUTAGES)), None):
                        raise outage
                    entries[file_id] = await self._successful_entry(request, file_id, run.convert)
                except run.fatal as error:
                    fatal.append(error)
                except Exception as error:
                    errors[file_id] = self._public_error(request, error)
                    entries[file_id] = to_json(BatchFailure(file_id, error_body(errors[file_id])))
                    if run.on_failure is not None:
                        await run.on_failure(file_id, entries[file_id])

        async with asyncio.TaskGroup() as group:
            for _ in range(request.account.tier.max_concurrent):
                group.create_task(work())
        if fatal:
            raise fatal[0]
        return [entries[file_id] for file_id in request.file_ids], errors

    def _public_error(self, request: ConversionRequest, error: Exception) -> PublicError:
        """The error of a file for the client. Logs an unexpected one."""
        if not isinstance(error, PublicError):
            fields = {"request_id": request.context.request_id}
            log.error("a file of batch %s failed", request.batch_id, exc_info=error, extra={"fields": fields})
        return public_error(error)

    async def _successful_entry(
        self, request: ConversionRequest, file_id: str, convert: ConvertFile
    ) -> Mapping[str, Any]:
        """Converts a file; waits and retries while the queue is full, without a hold or a claim between attempts."""
        while True:
            try:
                return successful_entry(file_id, await self._convert(request, file_id, convert))
            except RateLimited as error:
                await asyncio.sleep(error.retry_after)

    async def _convert(self, request: ConversionRequest, file_id: str, convert: ConvertFile) -> ResponseData:
        file = await self._database.run(files.get, request.account.id, file_id)
        if file.batch_id != request.batch_id or file.source_file_id is not None:
            raise NotFound("file in this batch")
        create = partial(self._work_files.create, request.account.id)
        with create() as source, create() as output:
            conversion = replace(
                request,
                operation="batch",
                batch_id="",
                file_ids=(),
                file_id=file_id,
                file=file,
                uploads=(await self._files.working_copy(file, source),),
                store_result=True,
                idempotency=request.idempotency and request.idempotency.part(file_id),
                context=RequestContext(request.context.request_id, stages=request.context.stages),
            )
            converted: ChargedConversion | Replayed | None = await self._conversions.find_stored(conversion)
            if converted is None:
                async with self._conversions.with_named_files(conversion) as complete:
                    converted = await convert(complete, output)
        request.context.add_credits(conversion.context.credits or 0)
        assert converted.response is not None  # `store_result` is set
        return converted.response


def successful_entry(file_id: str, response: ResponseData) -> dict[str, Any]:
    """The entry of a file of a batch that was converted."""
    return {**response.data, "file_id": file_id, "result_file_id": response.file_id, "status": "success"}


@reading
def get_with_files(transaction: Transaction, account_id: str, batch_id: str) -> tuple[Batch, tuple[BatchFile, ...]]:
    """Returns a batch and its files, each with its latest result. Raises NotFound."""
    batch = batches.get(transaction, account_id, batch_id)
    latest = batches.latest_results(transaction, batch)
    described = []
    for file in batches.list_files(transaction, batch):
        result = stored_file(latest.get(file.file_id, file)).result
        described.append(BatchFile(file, result, stored_file(file).error))
    return batch, tuple(described)
