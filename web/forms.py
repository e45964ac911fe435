"""Forms: requests with files, which go to a folder of the request's own as they arrive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from web.declarations import AnyField
from web.errors import FileTooLarge
from web.handler import Handler
from web.operations import FormFields
from web.uploads import Form, FormReader

_FRAMING = 256 << 10  # bytes of a form beside its files
_MAX_TOTAL = 512 << 20  # bytes of all files together


class FormHandler(Handler):
    """A resource that takes a form. Its folder goes when the request is over."""

    _folder: Path | None = None
    _form: FormReader | None = None

    async def expect_body(self, length: int | None) -> None:
        form = self._declared()
        self._check(length or 0)
        self._folder = await self.services.jobs.open(self._most() if length is None else length)
        self._form = FormReader(
            self.request.headers.get("Content-Type", ""),
            self._folder,
            files=form.file.names,
            texts=tuple(field.name for field in form.fields),
            max_file_size=self.client().tier.max_file_size,
            identify=self.services.registry.identify,
        )

    async def take(self, chunk: bytes) -> None:
        if self._form is None:  # OPTIONS takes none
            await super().take(chunk)
            return
        self._check(self.received)
        await self._form.feed(chunk)

    def form(self) -> Form:
        """The form that has arrived. Raises InvalidParameter."""
        assert self._form is not None
        return self._form.finished()

    def carried(self) -> Iterator[tuple[AnyField, object]]:
        texts = self.form().fields
        for field in self._declared().fields:
            yield field, field.of_text(texts.get(field.name))

    def on_finish(self) -> None:
        super().on_finish()
        if self._folder is not None:
            self.services.jobs.discard(self._folder)
            self._folder = None

    def _declared(self) -> FormFields:
        form = self.operation().form
        assert form is not None, f"{type(self).__name__} declares no form"
        return form

    def _check(self, length: int) -> None:
        """Raises FileTooLarge for a body that cannot be one of files within the limits."""
        if length > self._most():
            raise FileTooLarge(self.client().tier.max_file_size)

    def _most(self) -> int:
        """Bytes that a form may have at most."""
        each = self.client().tier.max_file_size
        return min(each * self._declared().file.most, max(each, _MAX_TOTAL)) + _FRAMING
