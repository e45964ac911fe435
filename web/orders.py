"""Requests that are carried out as one order, and answered in the form that the client asks for."""

from __future__ import annotations

from dataclasses import replace

from storage.blobs import read_blocks
from web.downloads import DownloadHandler
from web.negotiation import wants_json
from web.repeating import RepeatableHandler
from web.services.orders import Done, Order, Result


class OrderHandler(RepeatableHandler, DownloadHandler):
    """A resource that converts, charges for it, and answers with the file or with a description of it."""

    async def expect_body(self, length: int | None) -> None:
        account = self.client()
        self.services.turns.check(account.id, account.tier.max_concurrent)
        await super().expect_body(length)

    async def carry_out(self, order: Order, *, described: bool) -> None:
        """Converts and answers."""
        if order.file is None:
            self.services.metrics.conversions.stage("upload", self.request.request_time())
        done = await self.services.conversions.convert(replace(order, trail=self.trail))
        if isinstance(done, Done):
            self.account = replace(self.client(), credits_remaining=done.balance)
            if done.answer is None:
                await self._send_made(done.result)
                return
            answer = done.answer
        else:
            answer = self.unwrapped(done)
        if described:
            self.reply(answer.data)
        else:
            await self.send_stored(answer.file_id or "")

    async def _send_made(self, result: Result) -> None:
        blocks = read_blocks(result.path, 0, result.size)
        await self.send_file(blocks, size=result.size, media_type=result.media_type, filename=result.filename)

    def wants_json(self) -> bool:
        """Whether the client asks for a description rather than for the file."""
        return wants_json(self.request.headers.get("Accept", ""))
