"""The Model Context Protocol over HTTP: each message is a request of its own, and each call one to the API."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from convertd_client import AsyncClient
from engine.registry import Registry
from web.agents.calls import MAX_MESSAGE, Files
from web.agents.protocol import make_server
from web.agents.remote import RemoteBackend
from web.agents.tools import AgentTools

_MAX_RETRY_WAIT = 5  # seconds; if the wait would be longer, the agent gets an error


@dataclass
class HttpReply:
    """The response to a message: status, headers and body."""

    status: int = 500
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""


async def reply(
    registry: Registry, server: str, key: str, path: str, headers: Iterable[tuple[str, str]], body: bytes
) -> HttpReply:
    """Returns the response to a message. Its calls are requests to the API of the `server`, with the API key."""
    async with AsyncClient(server, key, max_retry_wait=_MAX_RETRY_WAIT) as client:
        return await _reply(AgentTools(registry, RemoteBackend(client), Files(), served=True), path, headers, body)


async def _reply(tools: AgentTools, path: str, headers: Iterable[tuple[str, str]], body: bytes) -> HttpReply:
    found = HttpReply()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.status = message["status"]
            found.headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            found.body += message.get("body", b"")

    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": encoded}
    manager = StreamableHTTPSessionManager(
        make_server(tools), json_response=True, stateless=True, max_request_body_size=MAX_MESSAGE
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return found
