"""Where the operator lets URLs of clients lead, and the proxy that makes their connections."""

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from tests.support.requests.checks import problem
from tests.support.requests.outgoing import LOOPBACK, fetch, get, names, refusal
from tests.support.samples.forms import image
from tests.support.servers.in_process import Servers
from tests.support.servers.network import add_address, own_network
from tests.support.servers.receiver import Receiver, make_certificate, reply
from web.services.webhooks.outgoing import Outgoing, OutgoingError
from web.services.webhooks.public_addresses import AddressRules


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(reply(200, b"content")) as running:
        yield running


DENIED = ("8.8.8.8", "0x8080808", "[::ffff:8.8.8.8]", "[64:ff9b::808:808]", "[2606:4700::1]")


async def test_networks_that_the_operator_denies_are_not_reached() -> None:
    denied = (ip_network("8.8.8.0/24"), ip_network("2606:4700::/32"))
    resolve = names(name_example=["9.9.9.9", "8.8.8.8"])
    for host in (*DENIED, "name.example"):
        assert await refusal(Outgoing(AddressRules(denied=denied), resolve), f"http://{host}/") == "forbidden_address"
    for host in DENIED:
        Outgoing(AddressRules(denied, denied)).check_url(f"http://{host}/")
    Outgoing(AddressRules(denied=denied)).check_url("http://9.9.9.9/")


async def test_addresses_of_this_machine_are_not_reached() -> None:
    resolve, hosts = names(name_example="93.184.215.14"), ("93.184.215.14", "[::ffff:93.184.215.14]", "[2606:4700::1]")
    with own_network():
        outgoing = Outgoing(resolve=resolve)
        for host in hosts:
            outgoing.check_url(f"http://{host}/")
        for address in ("93.184.215.13/24", "93.184.215.14/24", "2606:4700::1/64"):
            add_address(address)
        for host in (*hosts, "name.example"):
            assert await refusal(outgoing, f"http://{host}/") == "forbidden_address", host
        with Receiver(reply(200, b"content"), "93.184.215.14") as receiver:
            assert await get(Outgoing(AddressRules((ip_network("93.184.215.14"),))), receiver.url) == (200, b"content")


@pytest.mark.parametrize(
    ("url", "port"),
    [("http://9.9.9.9/", 80), ("https://9.9.9.9/", 443), ("http://name.example:81/", 81), ("http://[2606::1]:82", 82)],
)
async def test_ports_that_the_operator_names_are_reached(url: str, port: int) -> None:
    Outgoing(AddressRules(ports=(port,))).check_url(url)
    with pytest.raises(OutgoingError):
        Outgoing(AddressRules(ports=(1, 2))).check_url(url)
    resolve = names(name_example="93.184.215.14")
    for allowed in ((), LOOPBACK.allowed):  # names may lead to allowed networks, so that their port is checked later
        assert await refusal(Outgoing(AddressRules(allowed, ports=(1, 2)), resolve), url) == "forbidden_port"


async def test_allowed_networks_have_every_port(receiver: Receiver) -> None:
    outgoing = Outgoing(AddressRules(LOOPBACK.allowed, ports=(443,)), names(name_example="127.0.0.1"))
    for host in ("127.0.0.1", "name.example"):
        assert await get(outgoing, f"http://{host}:{receiver.port}/") == (200, b"content")


@pytest.fixture
def proxy() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running


async def test_a_proxy_resolves_names(receiver: Receiver, proxy: Receiver) -> None:
    proxy.tunnels["name.example:80"] = receiver.port
    outgoing = Outgoing(resolve=names(), proxy=proxy.url.replace("//", "//us%20er:pass%3Aword@"))
    assert await get(outgoing, "http://name.example/path") == (200, b"content")
    (connect,), (request,) = proxy.requests, receiver.requests
    assert (connect.method, connect.path, connect.headers["host"]) == ("CONNECT", *["name.example:80"] * 2)
    assert connect.headers["proxy-authorization"] == f"Basic {b64encode(b'us er:pass:word').decode()}"
    assert (request.path, request.headers["host"]) == ("/path", "name.example")
    assert "proxy-authorization" not in request.headers


async def test_addresses_are_checked_before_a_proxy_is_asked(receiver: Receiver, proxy: Receiver) -> None:
    rules = AddressRules((ip_network("10.0.0.1"),), (ip_network("9.9.9.9"),), (80,))
    outgoing = Outgoing(rules, proxy=proxy.url)
    for host in ("0x7f.1", "[::1]", "[::ffff:9.9.9.9]"):
        assert await refusal(outgoing, f"http://{host}/") == "forbidden_address"
    for host in ("8.8.8.8", "name.example"):  # no name is known to lead to an allowed network
        assert await refusal(outgoing, f"http://{host}:81/") == "forbidden_port"
    assert proxy.connections == 0
    proxy.tunnels |= dict.fromkeys(("8.8.8.8:80", "[2606:4700::1]:80", "10.0.0.1:81"), receiver.port)
    for url in ("http://0x8080808/", "http://[2606:4700:0::1]/", "http://10.0.0.1:81/"):
        assert await get(outgoing, url) == (200, b"content")
    assert {request.path for request in proxy.requests} == {*proxy.tunnels}


async def test_what_a_proxy_refuses(proxy: Receiver, outages: Callable[[], int]) -> None:
    outgoing, url = Outgoing(proxy=proxy.url), "http://name.example/"
    for status, reason in ((403, "forbidden_address"), (407, "forbidden_address"), (502, "unreachable")):
        proxy.respond = reply(status, b"content")
        assert await refusal(outgoing, url) == reason
    assert await refusal(Outgoing(proxy="http://127.0.0.1:1"), url) == "unreachable"
    assert outages() == 3  # the operator sees a wrong password, and a proxy that is gone
    proxy.respond = proxy.hang
    with pytest.raises(OutgoingError) as error:
        await get(outgoing, url, seconds=0.05)
    assert error.value.reason == "timeout"


async def test_no_headers_go_to_the_same_host_without_tls(receiver: Receiver, proxy: Receiver, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "receiver.example")
    with Receiver(reply(302, location="http://receiver.example/"), certificate=certificate) as secure:
        proxy.tunnels |= {"receiver.example:443": secure.port, "receiver.example:80": receiver.port}
        outgoing = Outgoing(tls=ssl.create_default_context(cafile=certificate), proxy=proxy.url)
        assert await fetch(outgoing, "https://receiver.example/", authorization="Bearer secret") == b"content"
    assert secure.requests[0].headers["authorization"] == "Bearer secret"
    assert "authorization" not in receiver.requests[0].headers


async def test_a_proxy_with_tls(receiver: Receiver, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "localhost")
    with Receiver(certificate=certificate) as proxy:
        proxy.tunnels["name.example:80"] = receiver.port
        url = f"https://localhost:{proxy.port}"
        assert await refusal(Outgoing(proxy=url), "http://name.example/") == "unreachable"
        outgoing = Outgoing(tls=ssl.create_default_context(cafile=certificate), proxy=url)
        assert await get(outgoing, "http://name.example/") == (200, b"content")


def test_what_the_operator_refuses(servers: Servers, data_dir: Path) -> None:
    """With a proxy, at every door for URLs."""
    settings: dict[str, Any] = {"url_deny": ["8.8.8.8"], "public_addresses": ["9.9.9.9"], "url_ports": [80, 443]}
    refused = {"8.8.8.8": "forbidden_address", "9.9.9.9": "forbidden_address", "name.example:81": "forbidden_port"}
    with (
        Receiver() as proxy,
        Receiver(reply(200, image())) as outside,
        servers.running(data_dir, egress_proxy=proxy.url, **settings) as server,
    ):
        key, proxy.tunnels["name.example:80"] = server.account(), outside.port
        for host, reason in refused.items():
            for param in ("url", "export_url", "webhook_url"):
                file = {} if param == "url" else {"url": "http://name.example/"}
                fields = {"output_format": "png", **file, param: f"http://{host}/"}
                response = server.request("POST", "/convert", key, json=fields)
                problem(response, 400, "invalid_parameter", param=param, reason=reason)
            response = server.request("POST", "/webhooks", key, json={"url": f"http://{host}/"})
            problem(response, 400, "invalid_parameter", param="url", reason=reason)
        assert proxy.requests == []
        response = server.request("POST", "/files/upload", key, json={"url": "http://name.example/"})
        assert (response.status_code, [request.path for request in proxy.requests]) == (200, ["name.example:80"])
