"""Which names and addresses lead to this machine itself, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address


def is_loopback(host: str | None) -> bool:
    """Whether the name or the address is one of the machine itself. No name is looked up."""
    text = (host or "").strip("[]").lower()
    try:
        address = ip_address(text)
    except ValueError:
        return text == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


_SUBSCRIBER = 64  # bits of an IPv6 address that one client has to itself
_WITH_PORT = re.compile(r"\[([^]]+)\](?::\d+)?|(\d+(?:\.\d+){3}):\d+", re.ASCII)


def client_address(peer: str, forwarded_for: str | None, trusted: Collection[IPv4Network | IPv6Network]) -> str:
    """The nearest address that is no trusted proxy: `peer`, or one that such a proxy forwarded for."""
    hops = [peer, *(hop.strip() for hop in reversed((forwarded_for or "").split(",")))]
    nearest = peer
    for hop in hops:
        address = _address(hop)
        if address is None:
            break
        nearest = str(address)
        if not is_trusted(nearest, trusted):
            break
    return nearest


def is_trusted(address: str, trusted: Collection[IPv4Network | IPv6Network]) -> bool:
    """Whether the address is that of a trusted proxy."""
    parsed = _address(address)
    return parsed is not None and any(parsed in network for network in trusted)


def client_network(address: str) -> str:
    """What to count a client's requests by: the address, or the IPv6 network it may choose addresses from."""
    parsed = _address(address)
    if isinstance(parsed, IPv6Address):
        return str(IPv6Network((parsed, _SUBSCRIBER), strict=False))
    return address if parsed is None else str(parsed)


@lru_cache(4096)  # each request looks at its client's, and clients make many
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address, without a port that some proxies add, and without a zone, which means nothing elsewhere."""
    found = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address((found[1] or found[2]) if found else text)
    except ValueError:
        return None
    if isinstance(address, IPv4Address):
        return address
    return address.ipv4_mapped or IPv6Address(int(address))
