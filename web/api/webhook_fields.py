"""The fields of requests about webhooks."""

from typing import Annotated

from pydantic import Field
from pydantic_core import PydanticCustomError

from storage.tables.webhooks import EVENTS, Event
from web.api.field_types import URL, RequestModel, field_type
from web.api.fields import PageCursor, PageLimit


def _events(value: object) -> tuple[Event, ...]:
    """The events in the order of the documentation."""
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("malformed", "must be a list of events.")
    if not all(name in EVENTS for name in value):
        raise PydanticCustomError("unknown", f"must be some of {', '.join(EVENTS)}.", {"available": list(EVENTS)})
    return tuple(event for event in EVENTS if event in value)


class WebhookFields(RequestModel):
    """POST /webhooks."""

    url: Annotated[
        str,
        URL,
        Field(
            description="The URL that gets the messages: http or https, at a public address, without credentials.",
            examples=["https://app.example/hooks/convertd"],
        ),
    ]
    events: Annotated[
        tuple[Event, ...],
        field_type(_events, Annotated[list[Event], Field(min_length=1)]),
        Field(description="The events that it gets.", examples=[["job.completed", "job.failed"]]),
    ] = EVENTS


class PageQuery(RequestModel):
    """GET /webhooks and GET /webhooks/{webhook_id}/deliveries."""

    limit: PageLimit = 50
    cursor: PageCursor | None = None
