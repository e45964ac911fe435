"""Bodies of JSON: one object, kept in memory, read strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from email.message import Message
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from web.api.errors import FileTooLarge, InvalidParameter
from web.api.fields import ABSENT, AnyField
from web.api.operations import FormFields
from web.http.handler import Handler, PublicHandler
from web.http.multipart import Form, FormReader
from web.services.container import Services

_FIELDS = 50
_CHARSETS = ("utf-8", "utf8", "us-ascii")
_MAX_DEPTH = 32


class BodyHandler(Handler):
    """A resource that keeps its body in memory."""

    def initialize(self, services: Services) -> None:
        super().initialize(services)
        self._body = bytearray()

    async def take(self, chunk: bytes) -> None:
        await super().take(chunk)
        self._body += chunk

    def raw(self) -> bytes:
        """The body as it came, byte for byte."""
        return bytes(self._body)


class JsonHandler(BodyHandler):
    """A resource that takes a JSON object; an empty body is an empty one."""

    def carried(self) -> Iterator[tuple[AnyField, object]]:
        body = self._object()
        for field in self.operation().json or ():
            yield field, field.of(body.get(field.name, ABSENT))

    def _object(self) -> Mapping[str, Any]:
        if _charset(self.request.headers.get("Content-Type", "")) not in _CHARSETS:
            raise _malformed("The body must be in UTF-8.")
        if not self._body.strip():
            return {}
        try:
            value = json.loads(
                self._body.decode(), object_pairs_hook=_unambiguous, parse_constant=_refuse, parse_float=_finite
            )
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair can be escaped, but not answered
            depth = _depth(value)
        except (ValueError, RecursionError):
            raise _malformed("The body is no valid JSON.") from None
        if depth > _MAX_DEPTH:
            raise _malformed(f"The body is nested more than {_MAX_DEPTH} deep.")
        if not isinstance(value, dict):
            raise _malformed("The body must be a JSON object.")
        return value


class WebForm(BodyHandler):
    """A resource that takes what people enter into a form of a page."""

    def entered(self) -> Mapping[str, str]:
        """The fields that came, the last of those that came twice. Raises InvalidParameter."""
        try:
            return dict(parse_qsl(self._body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_FIELDS))
        except ValueError:
            raise _malformed("The form is malformed.") from None


class PublicJsonHandler(JsonHandler, PublicHandler):
    """A resource that takes a JSON object and needs no key."""


def _charset(content_type: str) -> str:
    message = Message()
    message["Content-Type"] = content_type
    return message.get_content_charset("utf-8")


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these fields. What is written twice could be read either way."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field stands twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError("a number is out of range")
    return value


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)


def _malformed(message: str) -> InvalidParameter:
    return InvalidParameter(message, reason="malformed")


_FRAMING = 256 << 10  # bytes of a form beside its files
_MAX_TOTAL = 512 << 20  # bytes of all files together


class FormHandler(Handler):
    """A resource that takes a form. Its folder goes when the request is over."""

    _folder: Path | None = None
    _form: FormReader | None = None

    async def expect_body(self, length: int | None) -> None:
        form = self._declared()
        self._check(length or 0)
        self._folder = await self.services.work_files.create(self._most() if length is None else length)
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
            self.services.work_files.discard(self._folder)
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
