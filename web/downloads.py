"""Downloads: stored results, whole or in parts."""

from __future__ import annotations

from web.handler import Handler
from web.ranges import Range, wanted


class DownloadHandler(Handler):
    """A resource that answers with the bytes of stored results."""

    async def send_stored(self, file_id: str) -> None:
        """Answers with the result, or with the part of it that the client asks for. Raises Missing, NotFound."""
        made = await self.services.files.processed(self.client().id, file_id)
        self.set_header("Accept-Ranges", "bytes")
        etag = f'"{file_id}"'  # a file never changes
        self.set_header("ETag", etag)
        if self.request.method in ("GET", "HEAD") and self.check_etag_header():
            self.set_status(304)
            return
        part = self._part(made.size, etag) or Range(0, made.size)
        if part.size < made.size:
            self.set_status(206)
            self.set_header("Content-Range", f"bytes {part.start}-{part.end - 1}/{made.size}")
        await self.send_file(
            self.services.files.read(made, part.start, part.end),
            size=part.size,
            media_type=made.media_type,
            filename=made.filename,
        )

    def _part(self, size: int, etag: str) -> Range | None:
        headers = self.request.headers
        if self.request.method != "GET" or headers.get("If-Range", etag) != etag:
            return None
        return wanted(headers.get("Range"), size)
