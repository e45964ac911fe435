"""POST /convert: a file in, the converted file out."""

from __future__ import annotations

from pathlib import Path

from web.errors import FileTooLarge
from web.fields import options, output_format, wants_json
from web.handler import Handler
from web.services.accounts import Account
from web.services.conversion import Converted
from web.uploads import FormReader

_FRAMING = 256 << 10  # bytes of a form beside its file


class Convert(Handler):
    """The form goes to a folder of its own as it arrives; the folder goes when the request is over."""

    _folder: Path | None = None
    _form: FormReader | None = None

    async def expect_body(self, length: int | None) -> None:
        limit = self.client().tier.max_file_size
        if (length or 0) > limit + _FRAMING:
            raise FileTooLarge(limit)
        self._folder = await self.services.jobs.open()
        self._form = FormReader(
            self.request.headers.get("Content-Type", ""),
            self._folder,
            files=("file",),
            texts=("output_format", "quality"),
            max_file_size=limit,
        )

    def take(self, chunk: bytes) -> None:
        limit = self.client().tier.max_file_size
        if self.received > limit + _FRAMING:
            raise FileTooLarge(limit)
        self.form().feed(chunk)

    def form(self) -> FormReader:
        """The reader of the form that was expected."""
        assert self._form is not None
        return self._form

    async def post(self) -> None:
        await self.unless_gone(self._convert())

    async def _convert(self) -> None:
        account, form = self.client(), self.form().finished()
        upload, target, chosen = form.file("file"), output_format(form.fields), options(form.fields)
        converted = await self.services.conversions.convert(account, upload, target, chosen)
        if wants_json(self.request.headers.get("Accept", "")):
            await self._reply_kept(account, converted)
        else:
            await self.send_file(
                converted.path,
                size=converted.size,
                media_type=converted.target.media_type,
                filename=converted.filename,
            )

    async def _reply_kept(self, account: Account, converted: Converted) -> None:
        kept = await self.services.results.keep(account, converted)
        path = self.reverse_url("download", kept.file_id)
        self.reply({"file_id": kept.file_id, **converted.as_json(), "download_url": path})

    def on_finish(self) -> None:
        super().on_finish()
        if self._form is not None:
            self._form.close()
        if self._folder is not None:
            self.services.jobs.discard(self._folder)
            self._folder = None
