"""POST /convert: a file in, the converted file out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from web.errors import FileTooLarge, NotFound
from web.fields import idempotency_key, options, output_format, wants_json
from web.handler import Handler
from web.services.conversion import Converted, Order
from web.services.repeats import Repeatable, Replayed
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
        self._folder = await self.services.jobs.open(limit if length is None else length)
        self._form = FormReader(
            self.request.headers.get("Content-Type", ""),
            self._folder,
            files=("file",),
            texts=("output_format", "quality"),
            max_file_size=limit,
        )

    async def take(self, chunk: bytes) -> None:
        limit = self.client().tier.max_file_size
        if self.received > limit + _FRAMING:
            raise FileTooLarge(limit)
        await self.form().feed(chunk)

    def form(self) -> FormReader:
        """The reader of the form that was expected."""
        assert self._form is not None
        return self._form

    async def post(self) -> None:
        await self.unless_gone(self._convert())

    async def _convert(self) -> None:
        result = await self.services.conversions.convert(self._order())
        if isinstance(result, Replayed):
            await self._replay(result)
            return
        self.account = replace(self.client(), credits_remaining=result.balance)
        if self._wants_json():
            self._reply_kept(result)
        else:
            media_type = result.target.media_type
            await self.send_file(result.path, size=result.size, media_type=media_type, filename=result.filename)

    def _order(self) -> Order:
        account, form = self.client(), self.form().finished()
        upload, target, chosen = form.file("file"), output_format(form.fields), options(form.fields)
        key = idempotency_key(self.request.headers.get("Idempotency-Key"))
        repeatable = Repeatable(account.id, self.request.path, key) if key else None
        return Order(account, upload, target, chosen, keep=self._wants_json(), repeatable=repeatable)

    def _wants_json(self) -> bool:
        return wants_json(self.request.headers.get("Accept", ""))

    def _reply_kept(self, converted: Converted) -> None:
        assert converted.kept is not None  # as it was ordered
        self._reply_file(converted.kept.file_id, dict(converted.as_json()))

    def _reply_file(self, file_id: str, data: dict[str, object]) -> None:
        self.reply({"file_id": file_id, **data, "download_url": self.reverse_url("download", file_id)})

    async def _replay(self, answer: Replayed) -> None:
        """The answer once more, in the form that is asked for now. Nothing is charged."""
        self.set_header("Idempotency-Replayed", "true")
        file_id = answer.file_id or ""
        kept = await self.services.results.find(self.client().id, file_id)
        if kept is None:
            raise NotFound("The result of this request has expired.")
        if self._wants_json():
            self._reply_file(file_id, dict(answer.data))
        else:
            path = self.services.results.path(kept)
            await self.send_file(path, size=kept.size, media_type=kept.media_type, filename=kept.filename)

    def on_finish(self) -> None:
        super().on_finish()
        if self._folder is not None:
            self.services.jobs.discard(self._folder)
            self._folder = None
