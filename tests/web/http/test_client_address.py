"""Client addresses behind proxies, and client networks."""

from ipaddress import ip_network

import pytest

from web.http.authorization import client_address, client_network

TRUSTED = (ip_network("10.0.0.0/8"), ip_network("::1"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("1.2.3.4", None, "1.2.3.4"),
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", None, "10.0.0.1"),
        ("::1", "2001:db8::1", "2001:db8::1"),
        ("::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "9.9.9.9:4711", "9.9.9.9"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("10.0.0.1", "fe80::1%\nchosen", "fe80::1"),
        ("10.0.0.1", "8.8.8.8,,", "10.0.0.1"),
        ("10.0.0.1", "6.6.6.6," * 2000 + "9.9.9.9", "9.9.9.9"),
    ],
)
def test_client_address(peer: str, forwarded: str | None, client: str) -> None:
    assert client_address(peer, forwarded, TRUSTED) == client


def test_one_network_is_one_subscriber() -> None:
    assert client_network("2001:db8::1") == client_network("2001:db8::ffff:1") == "2001:db8::/64"
    assert client_network("1.2.3.4") == "1.2.3.4"
    assert client_network("::ffff:1.2.3.4") == "1.2.3.4"
