"""Which network addresses are public: hosts of others on the internet, and nothing near this server."""

import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from pathlib import Path
from typing import Literal

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
Refusal = Literal["forbidden_address", "forbidden_port"]

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
_LOCAL = re.compile(r"\|-- ([0-9.]+)\n +/32 host LOCAL$", re.MULTILINE)


@dataclass(frozen=True)
class AddressRules:
    """Where URLs of clients may lead: to public addresses, at one of the `ports`, or at any if there are none.

    Addresses of this machine and of `denied` networks do not count as public. All ports of addresses in `allowed`
    networks are reached, whatever these are.
    """

    allowed: tuple[Network, ...] = ()
    denied: tuple[Network, ...] = ()
    ports: tuple[int, ...] = ()

    def refusal(self, address: Address | None, port: int | None) -> Refusal | None:
        """Returns why the port of an address is not reached. None as the address or the port: it is not known yet.

        An IPv6 address that leads to an IPv4 address (IPv4-mapped, NAT64, 6to4, Teredo) is as public as that one.
        """
        if address is not None:
            forms = {address, reached := _reached(address)}
            if _within(forms, self.allowed):
                return None
            if not _is_public(reached) or _within(forms, self.denied) or forms & own_addresses():
                return "forbidden_address"
        return "forbidden_port" if self.ports and port is not None and port not in self.ports else None


def own_addresses() -> set[Address]:
    """Returns the addresses that the interfaces of this machine have now, as far as the kernel lists them in /proc."""
    found = set[Address]()
    with suppress(FileNotFoundError):
        found.update(map(IPv4Address, _LOCAL.findall(Path("/proc/net/fib_trie").read_text())))
    with suppress(FileNotFoundError):  # without IPv6
        lines = Path("/proc/net/if_inet6").read_text().splitlines()
        found.update(IPv6Address(bytes.fromhex(line[:32])) for line in lines)
    return found


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


def _is_public(address: Address) -> bool:
    if isinstance(address, IPv4Address):
        return address.is_global and not (address.is_multicast or _within({address}, _SPECIAL_IPV4))
    return address in _GLOBAL_IPV6 and address.is_global and not _within({address}, _SPECIAL_IPV6)


def _within(addresses: set[Address], networks: tuple[Network, ...]) -> bool:
    return any(address in network for address in addresses for network in networks)


def _reached(address: Address) -> Address:
    """Returns the IPv4 address that packets to an IPv6 address reach, or the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo is not None else address)
