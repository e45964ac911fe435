"""Bodies of JSON: one object, kept in memory, read strictly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.message import Message
from typing import Any, NoReturn

from web.errors import InvalidParameter
from web.handler import Handler, PublicHandler
from web.services import Services

_CHARSETS = ("utf-8", "utf8", "us-ascii")


class JsonHandler(Handler):
    """A resource that takes a JSON object."""

    def initialize(self, services: Services) -> None:
        super().initialize(services)
        self._body = bytearray()

    def take(self, chunk: bytes) -> None:
        super().take(chunk)
        self._body += chunk

    def raw(self) -> bytes:
        """The body as it came, byte for byte."""
        return bytes(self._body)

    def body(self) -> Mapping[str, Any]:
        """The object that came; an empty body is an empty one. Raises InvalidParameter."""
        if _charset(self.request.headers.get("Content-Type", "")) not in _CHARSETS:
            raise _malformed("The body must be in UTF-8.")
        if not self._body.strip():
            return {}
        try:
            value = json.loads(self._body.decode(), object_pairs_hook=_object, parse_constant=_refuse)
        except (ValueError, RecursionError):
            raise _malformed("The body is no valid JSON.") from None
        if not isinstance(value, dict):
            raise _malformed("The body must be a JSON object.")
        return value


class PublicJsonHandler(JsonHandler, PublicHandler):
    """A resource that takes a JSON object and needs no key."""


def _charset(content_type: str) -> str:
    message = Message()
    message["Content-Type"] = content_type
    return message.get_content_charset("utf-8")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these fields. What is written twice could be read either way."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field stands twice")
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _malformed(message: str) -> InvalidParameter:
    return InvalidParameter(message, reason="malformed")
