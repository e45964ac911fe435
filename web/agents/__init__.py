"""Tools for agents that use the Model Context Protocol (MCP): conversions here, or by the API of a server."""
