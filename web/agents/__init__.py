"""Tools for agents that speak the Model Context Protocol (MCP): conversions here, or by the API of a server."""
