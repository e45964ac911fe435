"""Requests to URLs of clients, made without a server."""

from collections.abc import Sequence
from ipaddress import ip_network

import pytest

from web.services.webhooks.outgoing import Outgoing, OutgoingError, Resolve
from web.services.webhooks.public_addresses import AddressRules

LOOPBACK = AddressRules((ip_network("127.0.0.0/8"), ip_network("::1")))
HOUR = 3600.0  # for tests that do not test timeouts


def names(**addresses: str | Sequence[str]) -> Resolve:
    """A resolver that knows some names, with `_` for `.`."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        if host.replace(".", "_") not in addresses:
            raise OSError("no such name")
        found = addresses[host.replace(".", "_")]
        return [found] if isinstance(found, str) else found

    return resolve


async def get(outgoing: Outgoing, url: str, seconds: float = HOUR) -> tuple[int, bytes]:
    async with outgoing.request("GET", url, seconds=seconds) as response:
        return response.status, b"".join([part async for part in response.body])


async def fetch(outgoing: Outgoing, url: str, seconds: float = HOUR, max_bytes: int = 1000, **headers: str) -> bytes:
    async with outgoing.fetch(url, seconds=seconds, max_bytes=max_bytes, headers=headers) as response:
        return b"".join([part async for part in response.body])


async def refusal(outgoing: Outgoing, url: str) -> str:
    with pytest.raises(OutgoingError) as error:
        await get(outgoing, url)
    return error.value.reason
