"""The tools in the Model Context Protocol, by the package `mcp`: over standard streams, and over HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from web.agents.calls import MAX_MESSAGE, AgentError
from web.agents.tools import AgentTools

_INSTRUCTIONS = (
    "Converts files between image, document and camera-RAW formats, and changes PDFs. Use inspect to find out what a "
    "conversion would do, and list_formats for what is possible. Warnings list what a format cannot hold."
)


async def serve_stdio(tools: AgentTools) -> None:
    """Serves a client over standard input and output, until it closes them."""
    server = _server(tools)
    async with stdio_server() as (messages, replies):
        await server.run(messages, replies, server.create_initialization_options())


async def reply(
    tools: AgentTools, path: str, headers: Iterable[tuple[str, str]], body: bytes
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Returns the status, headers and body of the response to a message over HTTP: there are no sessions."""
    status = 500
    received = []
    parts = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status, received
        if message["type"] == "http.response.start":
            status = message["status"]
            received = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in message["headers"]]
        else:
            parts.append(message.get("body", b""))

    encoded = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": encoded}
    manager = StreamableHTTPSessionManager(
        _server(tools), json_response=True, stateless=True, max_request_body_size=MAX_MESSAGE
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)
    return status, received, b"".join(parts)


def _server(tools: AgentTools) -> Server[Any]:
    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tools.schema(tool),
                    annotations=types.ToolAnnotations(read_only_hint=tool.read_only),
                )
                for tool in tools.tools.values()
            ]
        )

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        failed = False
        try:
            result = await tools.call(params.name, params.arguments or {})
        except AgentError as error:
            failed = True
            result = error.as_json()
        text = types.TextContent(text=json.dumps(result))
        return types.CallToolResult(content=[text], structured_content=result, is_error=failed)

    return Server(
        "convertd",
        version=version("convertd"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
