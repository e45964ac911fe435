"""POST /mcp: the tools of agents, in the Model Context Protocol over HTTP."""

import asyncio

from web.agents.calls import MAX_MESSAGE, AgentError, Files, load
from web.agents.tools import AgentTools
from web.api.errors import NotFound
from web.http.handler import BaseHandler, cancelled_on_disconnect


class Agents(BaseHandler):
    """A message of an agent, and the response. There are no sessions, and no messages that the server begins."""

    max_body = MAX_MESSAGE

    async def authorize(self) -> None:
        await self.authorization.authenticate()  # the requests to the API count for the rate limit

    @cancelled_on_disconnect
    async def post(self) -> None:
        try:
            protocol = await asyncio.to_thread(load, "web.agents.protocol")
            remote = await asyncio.to_thread(load, "web.agents.remote")
        except AgentError as error:
            raise NotFound(f"This server has no tools for agents: {error}.") from None
        _, _, key = self.request.headers["Authorization"].partition(" ")
        async with remote.connect(self._own_url(), key.strip()) as backend:
            tools = AgentTools(self.services.registry, backend, Files(), served=True)
            status, headers, body = await protocol.reply(
                tools, self.request.path, self.request.headers.get_all(), self.input.content
            )
        self.set_status(status)
        for name, value in headers:
            if name != "content-length":
                self.set_header(name, value)
        self.write(body)

    def _own_url(self) -> str:
        """Where this server accepts requests: the address to which the client, or a proxy, has connected."""
        host, port, *_ = self.connection.socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
