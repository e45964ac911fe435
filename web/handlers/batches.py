"""/batch: many files, converted in one request."""

from __future__ import annotations

from web.api.errors import InvalidParameter
from web.api.fields import BatchConversionFields, IdempotencyHeader, NewBatchFields
from web.api.operations import FileField, FormFields, Operation, json_response
from web.api.schemas.files import AddedFile, BatchResult, BatchStatus
from web.http.handler import BaseHandler
from web.services.batches import BatchRequest


class Batches(BaseHandler):
    """Creates batches."""

    @Operation(
        id="createBatch",
        tag="Batches",
        json=NewBatchFields,
        responses=(json_response(BatchStatus),),
        codes=("unsupported_conversion",),
    )
    async def post(self) -> None:
        """Create a batch

        Costs nothing.
        """
        target = self.input.json_fields(NewBatchFields).output_format
        self.respond(await self.services.batches.create(self.client().id, target))


class BatchResource(BaseHandler):
    """A batch and its files."""

    @Operation(id="getBatch", tag="Batches", responses=(json_response(BatchStatus),))
    async def get(self, batch_id: str) -> None:
        """Get a batch"""
        self.respond(await self.services.batches.find(self.client().id, batch_id))


class BatchFiles(BaseHandler):
    """Adds files to a batch."""

    @Operation(
        id="addToBatch",
        tag="Batches",
        form=FormFields(FileField("file", "The file to add.")),
        responses=(json_response(AddedFile),),
        codes=("invalid_file_type",),
    )
    async def post(self, batch_id: str) -> None:
        """Add a file to a batch

        The file is stored, but not converted. Costs nothing.
        """
        await self.cancel_on_disconnect(self._add(batch_id))

    async def _add(self, batch_id: str) -> None:
        upload = self.input.form.file("file")
        self.respond(await self.services.batches.add(self.client(), batch_id, upload))


class BatchConversion(BaseHandler):
    """Converts files of a batch."""

    @Operation(
        id="convertBatch",
        tag="Batches",
        json=BatchConversionFields,
        conversion_options=True,
        headers=IdempotencyHeader,
        responses=(json_response(BatchResult),),
        codes=("unsupported_conversion", "no_credits"),
        queued=True,
    )
    async def post(self, batch_id: str) -> None:
        """Convert files of a batch

        The files are converted concurrently and independently of each other. Every converted file costs one credit.
        """
        await self.cancel_on_disconnect(self._convert(batch_id))

    async def _convert(self, batch_id: str) -> None:
        fields = self.input.json_fields(BatchConversionFields)
        request = BatchRequest(
            account=self.client(),
            batch_id=batch_id,
            file_ids=_unique(fields.file_ids, self.services.batches.max_files),
            target=fields.output_format,
            options=self.input.options_given(),
            idempotency=self.input.idempotent_request(self.client().id),
            context=self.context,
        )
        response = self.unwrap_replay(await self.services.batch_conversions.convert(request))
        self.authorization.set_balance(await self.services.accounts.balance(self.client().id))
        self.respond(response.data)


def _unique(file_ids: tuple[str, ...], limit: int) -> tuple[str, ...]:
    """The ids without duplicates. Raises InvalidParameter unless there are 1 to `limit` ids, duplicates included."""
    if 1 <= len(file_ids) <= limit:
        return tuple(dict.fromkeys(file_ids))
    message = f"file_ids must have 1 to {limit} ids."
    raise InvalidParameter(message, reason="out_of_range", param="file_ids", details={"min": 1, "max": limit})
