"""Which address a request comes from, behind proxies too."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

_SUBSCRIBER = 64  # bits of an IPv6 address that one client has to itself


def client_address(peer: str, forwarded_for: str | None, trusted: Collection[IPv4Network | IPv6Network]) -> str:
    """The nearest address that is no trusted proxy: `peer`, or one that such a proxy forwarded for."""
    hops = [peer, *(hop.strip() for hop in reversed((forwarded_for or "").split(",")))]
    nearest = peer
    for hop in hops:
        address = _address(hop)
        if address is None:
            break
        nearest = hop
        if not any(address in network for network in trusted):
            break
    return nearest


def subscriber(address: str) -> str:
    """What to count a client's requests by: the address, or the IPv6 network it may choose addresses from."""
    parsed = _address(address)
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(IPv6Network((parsed, _SUBSCRIBER), strict=False))
    return address


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(text)
    except ValueError:
        return None
