"""Requests that tasks make: as those to URLs of clients, to public addresses only, and each within a budget."""

import httpx

from engine.network import Headers, WebRequest, WebResponse
from web.services.webhooks.outgoing import Outgoing, OutgoingError

_FRAMING = frozenset({"content-length", "transfer-encoding", "connection", "keep-alive", "content-encoding"})


def headers_of_page(headers: httpx.Headers) -> Headers:
    """The headers of a response without those about its transfer."""
    return tuple((name, value) for name, value in headers.multi_items() if name.lower() not in _FRAMING)


async def answer(outgoing: Outgoing, request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
    """Makes a request of a task, whose values are untrusted. Redirects are responses, which the task may follow.

    The failure of the response is the reason of an OutgoingError.
    """
    try:
        making = outgoing.request(
            request.method, request.url, seconds=seconds, headers=dict(request.headers), content=request.body or None
        )
        async with making as response:
            if response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity"):
                return WebResponse(request.number, failure="content_encoding")
            body = bytearray()
            async for part in response.body:
                body += part
                if len(body) > max_bytes:
                    return WebResponse(request.number, failure="too_large")
            return WebResponse(request.number, response.status, headers_of_page(response.headers), bytes(body))
    except OutgoingError as error:
        return WebResponse(request.number, failure=error.reason)
