"""Which network addresses are public: hosts of others on the internet, and nothing near this server."""

import socket
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# Besides the private, local, reserved and documentation networks that `ipaddress` knows. Which ones it knows depends
# on the release of Python.
_SPECIAL_IPV4 = tuple(
    map(
        IPv4Network,
        (
            "100.64.0.0/10",  # shared by the customers of a provider; Alibaba's metadata
            "168.63.129.16/32",  # Azure's services for virtual machines
            "192.0.0.0/24",  # protocol assignments; Oracle's metadata
            "192.88.99.0/24",  # relays of 6to4
        ),
    )
)
_GLOBAL_IPV6 = IPv6Network("2000::/3")
_SPECIAL_IPV6 = (IPv6Network("2001::/23"), IPv6Network("2001:db8::/32"), IPv6Network("3fff::/20"))
_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: Address, allowed: tuple[Network, ...] = ()) -> bool:
    """Whether the address is public, or in one of the `allowed` networks.

    An IPv6 address that leads to an IPv4 address (IPv4-mapped, NAT64, 6to4, Teredo) is as public as that one.
    """
    if any(address in network for network in allowed):
        return True
    if isinstance(address, IPv4Address):
        special = any(address in network for network in _SPECIAL_IPV4)
        return address.is_global and not (address.is_multicast or special)
    inner = _embedded(address)
    if inner is not None:
        return is_public(inner, allowed)
    return address in _GLOBAL_IPV6 and address.is_global and not any(address in network for network in _SPECIAL_IPV6)


def parse_literal(host: str) -> Address | None:
    """Returns the address that a host of a URL is, in any form that resolvers read; None for a name.

    `127.1`, `2130706433`, `0x7f.1` and `0177.0.0.1` are forms of 127.0.0.1.
    """
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(socket.inet_aton(host)) if not any(map(str.isspace, host)) else None
    except (OSError, UnicodeError):
        return None


def _embedded(address: IPv6Address) -> IPv4Address | None:
    """Returns the IPv4 address that packets to the address reach."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo is not None else None)
