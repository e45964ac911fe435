"""Network addresses: the client's address behind trusted proxies, networks for rate limits."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_CLIENT_PREFIX = 64  # bits of an IPv6 address that identify one subscriber
_WITH_PORT = re.compile(r"\[([^]]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+", re.ASCII)


def client_address(peer: str, forwarded_for: str | None, trusted: Collection[IPv4Network | IPv6Network]) -> str:
    """The client's address: `peer`, or if that is a trusted proxy, the last untrusted address in X-Forwarded-For."""
    nearest = peer
    for hop in [peer, *reversed((forwarded_for or "").split(","))]:
        address = _parse(hop.strip())
        if address is None:
            break
        nearest = str(address)
        if not is_trusted(nearest, trusted):
            break
    return nearest


def is_trusted(address: str, trusted: Collection[IPv4Network | IPv6Network]) -> bool:
    """Whether the address belongs to a trusted proxy."""
    parsed = _parse(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_network(address: str) -> str:
    """The network that rate limits apply to: an IPv4 address, or the /64 network of an IPv6 address."""
    parsed = _parse(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, _CLIENT_PREFIX), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(4096)  # every request parses its client's address
def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """Parses an address. Ignores a port, which some proxies add, and an IPv6 zone."""
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((match[1] or match[2]) if match else text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))
