"""How requests are read: their verbs, and the fields that operations declare."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tornado.web import RequestHandler

from web.declarations import AnyField, Values
from web.errors import InvalidParameter
from web.operations import Operation, operation_of


class Requests(RequestHandler):
    """The half of a handler that reads requests."""

    def verbs(self) -> tuple[str, ...]:
        """The verbs that the resource answers to."""
        verbs = ("GET", "POST", "PUT", "PATCH", "DELETE")
        own = [verb for verb in verbs if _method(type(self), verb) is not _method(RequestHandler, verb)]
        return (*own, *(["HEAD"] if "GET" in own else []), "OPTIONS")

    def operation(self) -> Operation:
        """The operation that is asked for. HEAD is like GET."""
        verb = str(self.request.method)
        found = operation_of(type(self), "GET" if verb == "HEAD" else verb)
        assert found is not None, f"{type(self).__name__} does not declare {verb}"
        return found

    def given(self) -> Values:
        """What the declared fields of the request stand for. Raises InvalidParameter."""
        declared, headers = self.operation(), self.request.headers
        return Values(
            [
                *((field, field.of_text(self._asked(field.name))) for field in declared.query),
                *self.carried(),
                *((field, field.of_text(headers.get(field.name))) for field in declared.headers),
            ]
        )

    def carried(self) -> Iterator[tuple[AnyField, object]]:
        """What the declared fields of the body stand for. Raises InvalidParameter."""
        yield from ()

    def _asked(self, name: str) -> str | None:
        """The field of the query. What is written twice could be read either way."""
        found = self.get_query_arguments(name, strip=False)
        if len(found) > 1:
            raise InvalidParameter(f"{name} was sent twice.", reason="duplicate", param=name)
        return found[0] if found else None


def _method(handler: type[RequestHandler], verb: str) -> object:
    return getattr(handler, verb.lower())


def declared_length(content_length: str | None) -> int | None:
    """The bytes that a request announces; None where it does not say, or says nonsense."""
    plain = content_length is not None and re.fullmatch(r"[0-9]{1,4000}", content_length)
    return int(plain[0]) if plain else None
