"""Requests that may come again under an idempotency key."""

from __future__ import annotations

from web.declarations import Values
from web.fields import IDEMPOTENCY_KEY
from web.handler import Handler
from web.services.repeats import Answer, Repeatable, Replayed


class RepeatableHandler(Handler):
    """A resource that answers a request which comes again as it did before."""

    def repeatable(self, values: Values) -> Repeatable | None:
        """What the request is known by should it come again."""
        key = values[IDEMPOTENCY_KEY]
        return Repeatable(self.client().id, self.request.path, key) if key else None

    def unwrapped(self, answer: Answer | Replayed) -> Answer:
        """The answer to give. One that was given before is marked."""
        if isinstance(answer, Replayed):
            self.set_header("Idempotency-Replayed", "true")
            return answer.answer
        return answer
