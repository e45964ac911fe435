"""POST /mcp: the tools of agents, in the Model Context Protocol over HTTP."""

import asyncio

from web.agents.calls import MAX_MESSAGE, AgentError, load
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
            over_http = await asyncio.to_thread(load, "web.agents.over_http")
        except AgentError as error:
            raise NotFound(f"This server has no tools for agents: {error}.") from None
        _, _, key = self.request.headers["Authorization"].partition(" ")
        headers = list(self.request.headers.get_all())
        reply = await over_http.reply(
            self.services.registry, self._own_url(), key.strip(), self.request.path, headers, self.input.content
        )
        self.set_status(reply.status)
        for name, value in reply.headers:
            if name != "content-length":
                self.set_header(name, value)
        self.write(reply.body)

    def _own_url(self) -> str:
        """Where this server accepts requests: the address to which the client, or a proxy, has connected."""
        host, port, *_ = self.connection.socket.getsockname()
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
