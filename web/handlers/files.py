"""GET /files/{file_id}/download: a result, once more."""

from __future__ import annotations

from web.errors import NotFound
from web.handler import Handler


class Download(Handler):
    """The bytes of a result."""

    async def get(self, file_id: str) -> None:
        await self.unless_gone(self._send(file_id))

    async def _send(self, file_id: str) -> None:
        kept = await self.services.results.find(self.client().id, file_id)
        if kept is None:
            raise NotFound("There is no such file, or it has expired.")
        await self.send_file(
            self.services.results.path(kept),
            size=kept.size,
            media_type=kept.media_type,
            filename=kept.filename,
        )
