"""Requests to URLs of clients: where they may lead, and what bodies, times and redirects they bear."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterator, Sequence
from ipaddress import ip_network
from pathlib import Path

import pytest

from tests.support.requests.outgoing import HOUR, LOOPBACK, fetch, get, names, refusal
from tests.support.servers.receiver import Received, Receiver, Send, make_certificate, reply
from web.services.webhooks.outgoing import MAX_URL, Outgoing, OutgoingError
from web.services.webhooks.public_addresses import AddressRules

OUTSIDE = AddressRules((ip_network("127.0.0.2"),))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(reply(200, b"content")) as running:
        yield running


FORBIDDEN = (
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.170.2", "100.64.0.1", "100.100.100.200", "168.63.129.16", "192.0.0.192"),
    *("192.0.2.1", "198.18.0.1", "198.51.100.7", "203.0.113.9", "192.88.99.1", "224.0.0.1", "240.0.0.1"),
    "255.255.255.255",
    *("::1", "::", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1", "2001:db8::1", "3fff::1"),
    *("2001:2::1", "2001:10::1", "5f00::1", "64:ff9b:1::1"),
    *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),  # IPv4-mapped
    *("::127.0.0.1", "::ffff:0:127.0.0.1"),  # IPv4-compatible and IPv4-translated
    *("64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe"),  # NAT64
    *("2002:7f00:1::", "2002:a00:1::1"),  # 6to4
    "2001:0:4136:e378:8000:63bf:80ff:fffe",  # Teredo of 127.0.0.1
)
FORMS = ("127.1", "127.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.1", "0177.0.0.1", "0", "127。0。0。1")
"""Other forms of addresses of this machine."""


async def test_forbidden_addresses_are_not_reached(receiver: Receiver) -> None:
    for address in FORBIDDEN:
        outgoing = Outgoing(resolve=names(name_example=address, mixed_example=["93.184.215.14", address]))
        host = f"[{address}]" if ":" in address else address
        with pytest.raises(OutgoingError) as error:
            outgoing.check_url(f"https://{host}/")
        found = [
            await refusal(outgoing, f"http://{one}:{receiver.port}/") for one in (host, "name.example", "mixed.example")
        ]
        assert {error.value.reason, *found} == {"forbidden_address"}, address
    assert receiver.connections == 0


async def test_forms_of_addresses_are_read_as_resolvers_do(receiver: Receiver) -> None:
    for host in (*FORMS, "localhost"):
        assert await refusal(Outgoing(), f"http://{host}:{receiver.port}/") == "forbidden_address", host
    assert receiver.connections == 0


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1", "64:ff9b::8.8.8.8", "::ffff:8.8.8.8", "2a00:1450::1"])
def test_public_addresses_are_allowed(address: str) -> None:
    host = f"[{address}]" if ":" in address else address
    assert Outgoing().check_url(f"https://{host}/x").path == "/x"


@pytest.mark.parametrize("network", ["10.0.0.0/8", "::ffff:10.0.0.0/104"])
def test_networks_of_the_operator_are_allowed(network: str) -> None:
    outgoing = Outgoing(AddressRules((ip_network(network),)))
    outgoing.check_url("http://[::ffff:10.0.0.1]/")
    with pytest.raises(OutgoingError):
        outgoing.check_url("http://192.168.0.1/")


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org", "//example.org/", "http:", "http://", "http:///x", "http://:80/", "https://?x"),
        *("file:///etc/passwd", "ftp://example.org/", "gopher://example.org/", "javascript:1", "data:,x"),
        *("http://user@example.org/", "http://user:password@example.org/", "http://:@example.org/"),
        *("http://example.org\\@127.0.0.1/", "http://example.org:80@127.0.0.1/"),
        *("http://example.org:0/", "http://example.org:65536/", "http://example.org:-1/", "http://example.org:x/"),
        *("http://exa\r\nmple.org/", "http://example.org/\0", "http://[::1/", "http://[nothing]/", "http://300.1.1.1/"),
        *("http://a b/", "http://a%20b/", "http://exa%6dple.org/", "http://a'b/", "http://[fe80::1%25eth0]/"),
        f"http://example.org/{'x' * MAX_URL}",
    ],
)
def test_invalid_urls(url: str) -> None:
    with pytest.raises(OutgoingError) as error:
        Outgoing().check_url(url)
    assert error.value.reason == "invalid_url"


async def test_a_name_is_resolved_once_for_a_connection() -> None:
    """Otherwise the second answer could be another one."""
    answers = iter(["127.0.0.2", "127.0.0.3", "127.0.0.2"])

    async def resolve(host: str, port: int) -> Sequence[str]:
        return [next(answers)]

    with Receiver(reply(200, b"content"), "127.0.0.2") as receiver:
        outgoing = Outgoing(OUTSIDE, resolve)
        url = f"http://name.example:{receiver.port}/"
        assert await get(outgoing, url) == (200, b"content")
        with pytest.raises(OutgoingError) as error:
            await get(outgoing, url)
        assert error.value.reason == "forbidden_address"
        assert await get(outgoing, url) == (200, b"content")
        assert [request.headers["host"] for request in receiver.requests] == [f"name.example:{receiver.port}"] * 2


async def test_the_next_address_is_tried() -> None:
    with Receiver(reply(200, b"content")) as receiver:
        outgoing = Outgoing(LOOPBACK, names(name_example=["127.0.0.9", "::1", "127.0.0.1"]))
        assert await get(outgoing, f"http://name.example:{receiver.port}/") == (200, b"content")


async def test_an_ipv6_address() -> None:
    with Receiver(reply(200, b"content"), "::1") as receiver:
        assert await get(Outgoing(LOOPBACK), receiver.url) == (200, b"content")
        assert receiver.requests[0].headers["host"] == f"[::1]:{receiver.port}"


async def test_what_cannot_be_reached(receiver: Receiver) -> None:
    with Receiver() as stopped:
        pass
    outgoing = Outgoing(LOOPBACK, names(empty_example=[], strange_example="no address"))
    for host in ("unknown.example", "empty.example", "strange.example", f"{'x' * 64}.example", "-.example"):
        with pytest.raises(OutgoingError) as error:
            await get(outgoing, f"http://{host}:{receiver.port}/")
        assert error.value.reason == "unreachable"
    for url in (stopped.url, receiver.url.replace("http:", "https:"), f"http://{'x' * 70}.invalid/"):
        with pytest.raises(OutgoingError) as error:
            await get(Outgoing(LOOPBACK), url)
        assert error.value.reason == "unreachable"


async def test_what_is_sent(receiver: Receiver) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"a"
        yield b"bc"

    outgoing = Outgoing(LOOPBACK)
    headers = {"Content-Length": "3", "host": "other.example", "X-Own": "1", "accept-encoding": "identity"}
    for content in (b"abc", parts()):
        async with outgoing.request(
            "PUT", f"{receiver.url}/a%20b?c=%2F#d", seconds=HOUR, headers=headers, content=content
        ) as response:
            assert response.status == 200
    first, second = receiver.requests
    assert (
        (first.method, first.path, first.body)
        == ("PUT", "/a%20b?c=%2F", b"abc")
        == (second.method, second.path, second.body)
    )
    assert first.headers["host"] == f"127.0.0.1:{receiver.port}"
    assert (first.headers["x-own"], first.headers["accept-encoding"]) == ("1", "identity")
    assert first.headers["user-agent"].startswith("convertd/")


async def test_certificates_are_verified(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path, "receiver.example")
    trusted = ssl.create_default_context(cafile=certificate)
    resolve = names(receiver_example="127.0.0.1", other_example="127.0.0.1")
    with Receiver(reply(200, b"content"), certificate=certificate) as receiver:
        outgoing = Outgoing(LOOPBACK, resolve, trusted)
        assert await get(outgoing, f"https://receiver.example:{receiver.port}/") == (200, b"content")
        for other, host in (
            (outgoing, "other.example"),
            (outgoing, "127.0.0.1"),
            (Outgoing(LOOPBACK, resolve), "receiver.example"),
        ):
            with pytest.raises(OutgoingError) as error:
                await get(other, f"https://{host}:{receiver.port}/")
            assert error.value.reason == "unreachable"
    assert len(receiver.requests) == 1


async def test_redirects_are_not_followed_unasked(receiver: Receiver) -> None:
    receiver.respond = reply(302, location="/next")
    assert await get(Outgoing(LOOPBACK), receiver.url) == (302, b"")
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_fetch_follows_three_redirects(receiver: Receiver, status: int) -> None:
    def respond(request: Received, send: Send) -> None:
        left = int(request.path[1:])
        (reply(status, location=f"{left - 1}") if left else reply(200, b"content"))(request, send)

    receiver.respond = respond
    assert await fetch(Outgoing(LOOPBACK), f"{receiver.url}/3") == b"content"
    with pytest.raises(OutgoingError) as error:
        await fetch(Outgoing(LOOPBACK), f"{receiver.url}/4")
    assert error.value.reason == "too_many_redirects"
    assert len(receiver.requests) == 4 + 4


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://127.0.0.1:{port}/", "forbidden_address"),
        ("http://0x7f.1:{port}/", "forbidden_address"),
        ("http://0177.0.0.1:{port}/", "forbidden_address"),
        ("//[::ffff:127.0.0.1]:{port}/", "forbidden_address"),
        ("http://inside.example:{port}/", "forbidden_address"),
        ("http://169.254.169.254/latest/meta-data", "forbidden_address"),
        ("http://8.8.8.8:81/", "forbidden_port"),
        ("file:///etc/passwd", "invalid_url"),
        ("http://user:password@outside.example/", "invalid_url"),
        ("", "too_many_redirects"),
        ("http://[", "invalid_url"),
        ("http://[::1", "invalid_url"),
    ],
)
async def test_each_redirect_is_checked(receiver: Receiver, location: str, reason: str) -> None:
    with Receiver(reply(302, location=location.format(port=receiver.port)), "127.0.0.2") as outside:
        resolve = names(outside_example="127.0.0.2", inside_example="127.0.0.1")
        outgoing = Outgoing(AddressRules(OUTSIDE.allowed, ports=(80,)), resolve)
        with pytest.raises(OutgoingError) as error:
            await fetch(outgoing, f"http://outside.example:{outside.port}/")
        assert error.value.reason == reason
    assert receiver.connections == 0


async def test_headers_go_to_the_first_host_only(receiver: Receiver) -> None:
    with Receiver(reply(302, location=f"{receiver.url}/other")) as first:
        assert await fetch(Outgoing(LOOPBACK), first.url, authorization="Bearer secret") == b"content"
        assert first.requests[0].headers["authorization"] == "Bearer secret"
    assert "authorization" not in receiver.requests[0].headers

    receiver.respond = lambda request, send: (
        reply(302, location="/same") if request.path == "/" else reply(200, b"content")
    )(request, send)
    assert await fetch(Outgoing(LOOPBACK), receiver.url, authorization="Bearer secret") == b"content"
    assert [request.headers.get("authorization") for request in receiver.requests[1:]] == ["Bearer secret"] * 2


def endless(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        send(b"x" * 65_536)


def incomplete(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\nConnection: close\r\n\r\nshort")


def endless_headers(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\n")
    while True:
        send(b"X-More: " + b"x" * 1000 + b"\r\n")


def early_hints(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 2000)
    reply(200, b"content")(request, send)


def dust(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
    send(b"1\r\nx\r\n" * 10_500 + b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("respond", "reason"),
    [
        (endless, "too_large"),
        (reply(200, b"x" * 1001), "too_large"),
        (reply(200, content_length="1001"), "too_large"),
        (incomplete, "unreachable"),
        (endless_headers, "unreachable"),
        (early_hints, "unreachable"),
        (dust, "unreachable"),
        (lambda request, send: send(b"nonsense\r\n\r\n"), "unreachable"),
        (lambda request, send: None, "unreachable"),
        (reply(404), "http_status"),
        (reply(500), "http_status"),
        (reply(304), "http_status"),
        (reply(200, b"x", content_encoding="gzip"), "content_encoding"),
    ],
)
async def test_responses_that_are_no_files(receiver: Receiver, respond: object, reason: str) -> None:
    receiver.respond = respond  # type: ignore[assignment]
    with pytest.raises(OutgoingError) as error:
        await fetch(Outgoing(LOOPBACK), receiver.url, max_bytes=20_000 if respond is dust else 1000)
    assert error.value.reason == reason
    assert error.value.status == (None if reason != "http_status" else error.value.status)


async def test_a_file_of_the_limit_is_complete(receiver: Receiver) -> None:
    receiver.respond = reply(200, b"x" * 1000, content_encoding="identity")
    assert await fetch(Outgoing(LOOPBACK), receiver.url) == b"x" * 1000


async def test_slow_responses_end_in_time(receiver: Receiver) -> None:
    def drip(request: Received, send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not receiver.stopped.wait(0.01):
            send(b"x")

    def redirect(request: Received, send: Send) -> None:
        receiver.stopped.wait(0.15)
        reply(302, location="/")(request, send)

    for respond in (receiver.hang, drip, redirect):
        receiver.respond = respond
        with pytest.raises(OutgoingError) as error:
            await fetch(Outgoing(LOOPBACK), receiver.url, seconds=0.3, max_bytes=1 << 30)
        assert error.value.reason == "timeout"


async def test_a_slow_name_server_ends_in_time() -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    with pytest.raises(OutgoingError) as error:
        await get(Outgoing(LOOPBACK, resolve), "http://slow.example/", seconds=0.05)
    assert error.value.reason == "timeout"


async def test_errors_of_the_caller_are_its_own(receiver: Receiver) -> None:
    for error in (TimeoutError, OSError, KeyError):
        with pytest.raises(error):
            async with Outgoing(LOOPBACK).request("GET", receiver.url, seconds=HOUR):
                raise error


def crumbs(request: Received, send: Send) -> None:
    """9,000 bytes, each in a part of its own."""
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
    send(b"1\r\nx\r\n" * 9000 + b"0\r\n\r\n")


async def test_a_body_in_small_parts_lets_others_go_on(receiver: Receiver) -> None:
    receiver.respond = crumbs
    outgoing, turns = Outgoing(LOOPBACK), 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with outgoing.fetch(receiver.url, seconds=HOUR, max_bytes=1 << 20) as response:
        counting = asyncio.create_task(count())
        assert len([part async for part in response.body]) == 9000
        counting.cancel()
    assert turns > 85
