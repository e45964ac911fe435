"""Which names and addresses lead to this machine itself, and nowhere else."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def is_loopback(host: str | None) -> bool:
    """Whether the name or the address is one of the machine itself. No name is looked up."""
    text = (host or "").strip("[]").lower()
    try:
        address = ip_address(text)
    except ValueError:
        return text == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback
