"""/batch: many files, converted in one call."""

from __future__ import annotations

from dataclasses import replace

from storage import ledger
from web.bodies import JsonHandler
from web.fields import file_ids, json_options, output_format
from web.forms import FormHandler
from web.handler import Handler
from web.orders import OrderHandler
from web.services.batch_conversions import BatchOrder
from web.services.descriptions import batch_status, created, uploaded
from web.services.repeats import Replayed


class NewBatch(JsonHandler):
    """Begins a batch."""

    async def post(self) -> None:
        batches = self.services.batches
        batch = await batches.create(self.client().id, output_format(self.body()))
        self.reply(created(batch, batches.max_files))


class BatchResource(Handler):
    """A batch and its files."""

    async def get(self, batch_id: str) -> None:
        self.reply(batch_status(*await self.services.batches.find(self.client().id, batch_id)))


class BatchFiles(FormHandler):
    """Stores a file in a batch."""

    async def post(self, batch_id: str) -> None:
        await self.unless_gone(self._add(batch_id))

    async def _add(self, batch_id: str) -> None:
        upload = self.form().file("file")
        file, total = await self.services.batches.add(self.client().id, batch_id, upload)
        self.reply({"batch_id": batch_id, **uploaded(file), "total": total})


class BatchConversion(OrderHandler, JsonHandler):
    """Converts files of a batch."""

    async def post(self, batch_id: str) -> None:
        await self.unless_gone(self._convert(batch_id))

    async def _convert(self, batch_id: str) -> None:
        body = self.body()
        order = BatchOrder(
            account=self.client(),
            batch_id=batch_id,
            file_ids=file_ids(body, self.services.batches.max_files),
            target=output_format(body),
            options=json_options(body),
            repeatable=self.repeatable(),
            trail=self.trail,
        )
        answer = await self.services.batch_conversions.convert(order)
        if isinstance(answer, Replayed):
            self.set_header("Idempotency-Replayed", "true")
            answer = answer.answer
        balance = await self.services.database.run(ledger.balance, self.client().id)
        self.account = replace(self.client(), credits_remaining=balance)
        self.reply(answer.data)
