"""The tools in the Model Context Protocol, by the package `mcp`, and over standard streams."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from web.agents.calls import AgentError
from web.agents.tools import AgentTools

_INSTRUCTIONS = (
    "Converts files between image, document and camera-RAW formats, and changes PDFs. Use inspect to find out what a "
    "conversion would do, and list_formats for what is possible. Warnings list what a format cannot hold."
)


def make_server(tools: AgentTools) -> Server[Any]:
    """Returns a server of the protocol with these tools."""

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        listed = [
            types.Tool(
                name=tool.name,
                description=tool.description,
                input_schema=tools.schema(tool),
                annotations=types.ToolAnnotations(read_only_hint=tool.read_only),
            )
            for tool in tools.tools.values()
        ]
        return types.ListToolsResult(tools=listed)

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        failed = False
        try:
            result = await tools.call(params.name, params.arguments or {})
        except AgentError as error:
            result, failed = error.as_json(), True
        text = types.TextContent(text=json.dumps(result))
        return types.CallToolResult(content=[text], structured_content=result, is_error=failed)

    return Server(
        "convertd",
        version=version("convertd"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def serve_stdio(tools: AgentTools) -> None:
    """Serves a client over standard input and output, until it closes them."""
    server = make_server(tools)
    async with stdio_server() as (messages, replies):
        await server.run(messages, replies, server.create_initialization_options())
