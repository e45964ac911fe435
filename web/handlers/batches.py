"""/batch: many files, converted in one call."""

from __future__ import annotations

from dataclasses import replace

from engine.options import Options
from web.api.errors import InvalidParameter
from web.api.fields import FILE_IDS, IDEMPOTENCY_KEY, OUTPUT_FORMAT, PASSWORD, QUALITY
from web.api.operations import FileField, FormFields, Operation, described
from web.api.schemas import files as shapes
from web.handlers.conversions import OrderHandler
from web.http.bodies import FormHandler, JsonHandler
from web.http.handler import Handler
from web.services.batches import BatchRequest
from web.services.serializers import batch_status, new_batch, stored_file


class NewBatch(JsonHandler):
    """Begins a batch."""

    @Operation(
        id="createBatch",
        tag="Batches",
        json=(OUTPUT_FORMAT,),
        answers=(described(shapes.NewBatch),),
        codes=("unsupported_conversion",),
    )
    async def post(self) -> None:
        """Begin a batch

        Costs nothing.
        """
        batches = self.services.batches
        batch = await batches.create(self.client().id, self.given()[OUTPUT_FORMAT])
        self.reply(new_batch(batch, batches.max_files))


class BatchResource(Handler):
    """A batch and its files."""

    @Operation(id="getBatch", tag="Batches", answers=(described(shapes.BatchStatus),))
    async def get(self, batch_id: str) -> None:
        """See how far a batch is"""
        self.reply(batch_status(*await self.services.batches.find(self.client().id, batch_id)))


class BatchFiles(FormHandler):
    """Stores a file in a batch."""

    @Operation(
        id="addToBatch",
        tag="Batches",
        form=FormFields(FileField("file", "The file to store.")),
        answers=(described(shapes.AddedFile),),
        codes=("invalid_file_type",),
    )
    async def post(self, batch_id: str) -> None:
        """Store a file in a batch

        It is not converted yet. Costs nothing.
        """
        await self.unless_gone(self._add(batch_id))

    async def _add(self, batch_id: str) -> None:
        upload = self.form().file("file")
        file, total = await self.services.batches.add(self.client(), batch_id, upload)
        self.reply({"batch_id": batch_id, **stored_file(file), "total": total})


class BatchConversion(OrderHandler, JsonHandler):
    """Converts files of a batch."""

    @Operation(
        id="convertBatch",
        tag="Batches",
        json=(FILE_IDS, OUTPUT_FORMAT, QUALITY, PASSWORD),
        headers=(IDEMPOTENCY_KEY,),
        answers=(described(shapes.BatchResult),),
        codes=("unsupported_conversion", "no_credits"),
    )
    async def post(self, batch_id: str) -> None:
        """Convert files of a batch

        The files are converted side by side, and what fails, fails alone. Every file that is converted costs one
        credit.
        """
        await self.unless_gone(self._convert(batch_id))

    async def _convert(self, batch_id: str) -> None:
        values = self.given()
        order = BatchRequest(
            account=self.client(),
            batch_id=batch_id,
            file_ids=_limited(values[FILE_IDS], self.services.batches.max_files),
            target=values[OUTPUT_FORMAT],
            options=Options(quality=values[QUALITY], password=values[PASSWORD]),
            idempotency=self.idempotent_request(values),
            context=self.context,
        )
        answer = self.unwrapped(await self.services.batch_conversions.convert(order))
        balance = await self.services.accounts.balance(self.client().id)
        self.account = replace(self.client(), credits_remaining=balance)
        self.reply(answer.data)


def _limited(file_ids: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The ids, each once. Raises InvalidParameter for none, and for more than a batch holds."""
    if 1 <= len(file_ids) <= most:
        return tuple(dict.fromkeys(file_ids))
    message = f"file_ids must name 1 to {most} files."
    raise InvalidParameter(message, reason="out_of_range", param="file_ids", details={"min": 1, "max": most})
