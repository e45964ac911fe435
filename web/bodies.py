"""Bodies of JSON: one object, kept in memory, read strictly."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from email.message import Message
from typing import Any, NoReturn
from urllib.parse import parse_qsl

from web.declarations import ABSENT, AnyField
from web.errors import InvalidParameter
from web.handler import Handler, PublicHandler
from web.services.all import Services

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
