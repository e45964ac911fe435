"""/files: files that are stored to be converted, and what was made of them."""

from __future__ import annotations

from web.bodies import JsonHandler
from web.downloads import DownloadHandler
from web.fields import json_options, output_format
from web.forms import FormHandler
from web.handler import Handler
from web.orders import OrderHandler
from web.services.descriptions import status, uploaded
from web.services.orders import Order


class Upload(FormHandler):
    """Stores a file to be converted later."""

    async def post(self) -> None:
        await self.unless_gone(self._store())

    async def _store(self) -> None:
        upload = self.form().file("file")
        self.reply(uploaded(await self.services.files.upload(self.client().id, upload)))


class FileResource(Handler):
    """What is known about a file; and its end."""

    async def get(self, file_id: str) -> None:
        self.reply(status(await self.services.files.find(self.client().id, file_id)))

    async def delete(self, file_id: str) -> None:
        await self.services.files.delete(self.client().id, file_id)
        self.reply({"file_id": file_id, "deleted": True})


class Conversion(OrderHandler, JsonHandler):
    """Converts a stored file."""

    async def post(self, file_id: str) -> None:
        await self.unless_gone(self._convert(file_id))

    async def _convert(self, file_id: str) -> None:
        body, files = self.body(), self.services.files
        target, options, repeatable = output_format(body), json_options(body), self.repeatable()
        file = await files.find(self.client().id, file_id)
        async with self.services.jobs.folder(file.material.original_size) as folder:
            order = Order(
                account=self.client(),
                operation="convert",
                uploads=(await files.working_copy(file, folder),),
                target=target,
                options=options,
                keep=True,
                file=file,
                repeatable=repeatable,
            )
            await self.carry_out(order, described=True)


class Download(DownloadHandler):
    """The bytes of a result."""

    async def get(self, file_id: str) -> None:
        await self.unless_gone(self.send_stored(file_id))
