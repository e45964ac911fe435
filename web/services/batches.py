"""Batches: files that are stored together, to be converted together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from config.pricing import CREDITS_PER_CONVERSION
from engine.errors import UnsupportedConversion
from engine.options import Options
from engine.registry import Registry
from storage import batches, files, ledger
from storage.batches import Batch
from storage.database import Database
from storage.errors import NoCredits, NotFound
from storage.files import File, SourceFile
from storage.idempotency import Claim
from storage.ledger import ServerInstance
from storage.transaction import Transaction
from web.api.errors import PublicError, RateLimited, error_body, public_error
from web.metrics.request_context import RequestContext
from web.services.accounts import Account
from web.services.conversion_request import ConversionRequest, Upload
from web.services.conversions import Conversions
from web.services.files import Files
from web.services.idempotency import LEASE, Answer, IdempotencyService, IdempotentRequest, Replayed
from web.services.work_files import WorkFiles


class Batches:
    """Creates batches, and fills them with at most `max_files` files."""

    def __init__(self, database: Database, registry: Registry, files: Files, max_files: int) -> None:
        self.max_files = max_files
        self._database = database
        self._registry = registry
        self._files = files

    async def create(self, account_id: str, target: str) -> Batch:
        """An empty batch. Raises UnsupportedConversion for a format that nothing can be converted to."""
        return await self._database.run(batches.create, account_id, self.target(target), self._files.retention)

    async def find(self, account_id: str, batch_id: str) -> tuple[Batch, tuple[File, ...]]:
        """The account's batch of that id, and its files in the order they came. Raises Missing."""
        return await self._database.run(_with_files, account_id, batch_id)

    async def add(self, account: Account, batch_id: str, upload: Upload) -> tuple[File, int]:
        """Stores a file in the batch; says how many it has now.

        Raises Missing, UnknownFormat, StorageFull, and BatchFull.
        """
        total = 0

        def add(transaction: Transaction, original: SourceFile) -> File:
            nonlocal total
            retention = self._files.retention
            file, total = batches.add_file(transaction, account.id, batch_id, original, self.max_files, retention)
            return file

        return await self._files.store(account, upload, add), total

    def target(self, name: str) -> str:
        """The format of that name. Raises UnsupportedConversion where nothing can be converted to it."""
        fmt = self._registry.format(name)
        available = sorted({plan.target.name for plan in self._registry.catalogue()})
        if fmt is not None and fmt.name in available:
            return fmt.name
        details = {"output_format": fmt.name if fmt else name, "available": available}
        raise UnsupportedConversion(f"Nothing can be converted to {name}.", details=details)


def _with_files(transaction: Transaction, account_id: str, batch_id: str) -> tuple[Batch, tuple[File, ...]]:
    batch = batches.get(transaction, account_id, batch_id)
    return batch, batches.list_files(transaction, batch)


log = logging.getLogger("convertd.batches")

_HEARTBEAT = LEASE / 3


@dataclass(frozen=True)
class BatchRequest:
    """Files of a batch to convert."""

    account: Account
    batch_id: str
    file_ids: tuple[str, ...]
    target: str
    options: Options = Options()
    idempotency: IdempotentRequest | None = None
    context: RequestContext = field(default_factory=RequestContext)


class BatchConversions:
    """Converts files of batches. `owner` is this run of this server, by which the next one knows what it left."""

    def __init__(
        self,
        database: Database,
        files: Files,
        jobs: WorkFiles,
        batches: Batches,
        conversions: Conversions,
        repeats: IdempotencyService,
        owner: ServerInstance,
    ) -> None:
        self._database = database
        self._files = files
        self._jobs = jobs
        self._batches = batches
        self._conversions = conversions
        self._repeats = repeats
        self._owner = owner

    async def convert(self, order: BatchRequest) -> Answer | Replayed:
        """Converts the files side by side; what fails, fails alone. Raises Missing, and NoCredits where none is left.

        Cancelling stops what runs. What has been converted by then is charged, and stays.
        """
        await self._database.run(batches.get, order.account.id, order.batch_id)
        target = self._batches.target(order.target)
        balance = await self._database.run(ledger.balance, order.account.id)
        parameters = {"target": target, "files": order.file_ids, **asdict(order.options)}

        async def work(claim: Claim | None) -> Answer:
            async with self._running(order, claim):
                results = await self._convert_all(order, target)
            successful = sum(entry["status"] == "success" for entry in results)
            if balance < CREDITS_PER_CONVERSION and not successful:
                raise NoCredits(balance, CREDITS_PER_CONVERSION)
            counts = {"total": len(results), "successful": successful, "failed": len(results) - successful}
            return Answer({"batch_id": order.batch_id, "results": results, **counts})

        return await self._repeats.once(order.idempotency, parameters, work)

    @asynccontextmanager
    async def _running(self, order: BatchRequest, claim: Claim | None) -> AsyncIterator[None]:
        """While this lasts, the batch is processing and the request keeps its claim."""
        attempt = await self._database.run(batches.begin, order.account.id, order.batch_id, self._owner, LEASE)
        heartbeat = asyncio.create_task(self._renew(order.batch_id, attempt, claim))
        try:
            yield
        finally:
            heartbeat.cancel()
            with suppress(asyncio.CancelledError):
                await heartbeat
            await asyncio.shield(self._database.run(batches.end, order.batch_id, attempt))

    async def _renew(self, batch_id: str, attempt: str, claim: Claim | None) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            try:
                await self._database.run(batches.renew, batch_id, attempt, LEASE)
                if claim is not None:
                    await self._repeats.renew(claim)
            except Exception:
                log.exception("the batch %s could not be kept alive", batch_id)

    async def _convert_all(self, order: BatchRequest, target: str) -> list[Mapping[str, Any]]:
        """An entry for every file, in the order asked for."""
        entries: dict[str, Mapping[str, Any]] = {}
        waiting = iter(order.file_ids)

        async def work() -> None:
            for file_id in waiting:
                entries[file_id] = await self._entry(order, file_id, target)

        async with asyncio.TaskGroup() as group:
            for _ in range(order.account.tier.max_concurrent):
                group.create_task(work())
        return [entries[file_id] for file_id in order.file_ids]

    async def _entry(self, order: BatchRequest, file_id: str, target: str) -> Mapping[str, Any]:
        try:
            answer = await self._patiently(order, file_id, target)
        except Exception as error:
            if not isinstance(error, PublicError):
                request = {"fields": {"request_id": order.context.request_id}}
                log.exception("a file of the batch %s failed", order.batch_id, extra=request)
            return {
                "file_id": file_id,
                "status": "failed",
                "download_url": None,
                "error": error_body(public_error(error)),
            }
        return {**answer.data, "file_id": file_id, "result_file_id": answer.file_id, "status": "success"}

    async def _patiently(self, order: BatchRequest, file_id: str, target: str) -> Answer:
        """Converts the file. Nothing is held or claimed between one attempt to have a turn and the next."""
        while True:
            try:
                return await self._convert(order, file_id, target)
            except RateLimited as error:
                await asyncio.sleep(error.retry_after)

    async def _convert(self, order: BatchRequest, file_id: str, target: str) -> Answer:
        file = await self._database.run(files.get, order.account.id, file_id)
        if file.batch != order.batch_id:
            raise NotFound("file in this batch")
        idempotency = order.idempotency and order.idempotency.part(file_id)
        async with self._jobs.folder(file.conversion_source.original_size) as folder:
            single = ConversionRequest(
                account=order.account,
                operation="batch",
                uploads=(await self._files.working_copy(file, folder),),
                target=target,
                options=order.options,
                keep=True,
                file=file,
                idempotency=idempotency,
                context=RequestContext(order.context.request_id),
            )
            done = await self._conversions.convert(single)
        order.context.charged(single.context.credits or 0)
        assert done.answer is not None  # as it was ordered
        return done.answer
