"""Requests of tasks: by the rules of URLs of clients, without redirects, and within a budget."""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_network

import pytest

from engine.executor.network_server import serve
from engine.network import MAX_BYTES, FetchedPage, Network, WebRequest, WebResponse
from tests.support.servers.receiver import Receiver, reply
from web.services.conversions.task_requests import answer
from web.services.webhooks.outgoing import Outgoing
from web.services.webhooks.public_addresses import AddressRules


@pytest.mark.asyncio
async def test_a_request_of_a_task_obeys_the_rules_of_urls() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.2"] if host == "good.example" else ["127.0.0.2", "127.0.0.1"]

    outgoing = Outgoing(AddressRules(allowed=(ip_network("127.0.0.2"),)), resolve)
    with Receiver(reply(302, b"body", location="http://10.0.0.1/"), "127.0.0.2") as server:

        async def ask(host: str, limit: int = 100) -> WebResponse:
            url = f"http://{host}:{server.port}/a?b"
            return await answer(outgoing, WebRequest(7, "POST", url, (("X-Own", "1"),), b"sent"), limit, 5)

        found = await ask("good.example")
        failures = [(await ask(host)).failure for host in ("rebound.example", "127.0.0.1", "169.254.169.254")]
        too_large = await ask("127.0.0.2", 3)
        server.respond = reply(200, b"body", content_encoding="gzip")
        compressed = await ask("127.0.0.2")

    assert (found.number, found.status, found.body, found.failure) == (7, 302, b"body", "")
    assert dict(found.headers)["location"] == "http://10.0.0.1/"
    assert (server.requests[0].method, server.requests[0].body, server.requests[0].headers["x-own"]) == (
        "POST",
        b"sent",
        "1",
    )
    assert failures == ["forbidden_address"] * 3
    assert (too_large.failure, compressed.failure) == ("too_large", "content_encoding")
    assert server.connections == 3
    outgoing.close()


@pytest.mark.asyncio
async def test_the_socket_of_a_task_has_a_budget_and_ends_with_nonsense() -> None:
    limits: list[int] = []

    async def fetch(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        limits.append(max_bytes)
        return WebResponse(request.number, 200, (("A", "b"),), bytes(max_bytes))

    own, remote = socket.socketpair()
    own.setblocking(False)
    serving = asyncio.create_task(serve(own, fetch))
    network = Network(remote.detach(), FetchedPage("https://a.example/", 200))

    def ask(number: int) -> WebResponse:
        network.send(WebRequest(number, "GET", "x"))
        while not (received := network.receive()):
            pass
        return received[0]

    found = [await asyncio.to_thread(ask, number) for number in range(9)]
    with suppress(BrokenPipeError):
        await asyncio.to_thread(network.send, WebRequest(9, "GET", "x", body=bytes(2 << 20)))
    await asyncio.wait_for(serving, 5)

    assert [one.number for one in found] == [*range(9)]
    assert found[0].headers == (("A", "b"),)
    assert sum(len(one.body) for one in found) == sum(limits) <= MAX_BYTES
    with pytest.raises(ConnectionResetError):
        network.receive()
    network.close()
