"""Files that the server fetches by URLs: on every endpoint with files, and what must not be fetched."""

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from config.pricing import DEFAULT_PLANS
from engine.outcome import Outcome
from tests.support.requests.batches import create
from tests.support.requests.checks import problem
from tests.support.samples.forms import TARGET, conversion_request, form, image, part
from tests.support.samples.pdf_documents import document, page_texts
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.receiver import Received, Receiver, Send, reply
from web.api.errors import FileTooLarge, InvalidParameter
from web.metrics.service import RemoteFileMetrics
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import RemoteFile
from web.services.conversions.remote_files import RemoteFiles
from web.services.files.work_files import WorkFiles
from web.services.webhooks.outgoing import Outgoing
from web.services.webhooks.public_addresses import AddressRules

ACCOUNT = Account(
    "acct_1", "a@example.org", "A", 1, 50, 0, 0, 0, 1, None, None, tier=DEFAULT_PLANS["free"], key_id="key_1"
)
ALLOWED = "127.0.0.2"  # which the server may reach
REACHABLE = AddressRules((ip_network(ALLOWED),))
PDF = document("one", 1), document("two", 1)
JSON = {"Accept": "application/json"}


@pytest.fixture(scope="module")
def place() -> Iterator[Receiver]:
    """The server of the files."""
    with Receiver(address=ALLOWED) as running:
        yield running


@pytest.fixture(autouse=True)
def empty(place: Receiver, server: Running) -> Iterator[None]:
    """The server of the files has an image. After each test, no uploads are left."""
    place.respond = reply(200, image())
    place.requests.clear()
    place.connections = 0
    yield
    assert eventually(lambda: server.work_files() == [])


def send(server: Running, path: str, key: str = "", /, headers: Any = None, **fields: Any) -> httpx.Response:
    """Sends a multipart form without files."""
    sent = {name: (None, value if isinstance(value, str) else json.dumps(value)) for name, value in fields.items()}
    return server.request("POST", path, key, files=sent, headers=headers or {})


def upload(server: Running, url: str, key: str = "", **fields: Any) -> httpx.Response:
    return send(server, "/files/upload", key, url=url, **fields)


def credits(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["data"]["credits_remaining"])


def test_every_endpoint_with_a_file_fetches_it(server: Running, place: Receiver) -> None:
    key, url = server.account(purchased=1), f"{place.url}/a%20photo.JPG?signature=x"
    converted = send(server, "/convert", key, url=url, output_format="png")
    assert (converted.status_code, converted.headers["Content-Type"]) == (200, "image/png")
    assert 'filename="a photo.png"' in converted.headers["Content-Disposition"]
    stored = upload(server, url, key).json()["data"]
    assert (stored["original_name"], stored["extension"], stored["size"]) == ("a photo.JPG", "jpg", len(image()))
    batch = create(server, key)
    added = send(server, f"/batch/{batch}/files", key, url=url).json()["data"]
    assert (added["batch_id"], added["total"]) == (batch, 1)
    made = send(server, "/convert/json", key, url=url, output_format="png").json()["data"]
    assert made["original_size"] == len(image())
    planned = send(server, "/convert", key, url=url, output_format="png", dry_run=True).json()["data"]
    assert planned["input_format"] == "jpeg"
    assert credits(server, key) == 49
    assert [request.path for request in place.requests] == ["/a%20photo.JPG?signature=x"] * 5
    assert {request.headers["accept-encoding"] for request in place.requests} == {"identity"}


def test_tools_fetch_one_file_or_several(server: Running, place: Receiver) -> None:
    place.respond = lambda request, send: reply(200, PDF[int(request.path[1:])])(request, send)
    urls = [f"{place.url}/1", f"{place.url}/0"]
    for value in (urls, ", ".join(urls)):
        merged = send(server, "/pdf/merge", urls=value)
        assert [text[:3] for text in page_texts(merged.content)] == ["two", "one"]
    rotated = send(server, "/pdf/rotate", url=urls[0], angle="90")
    assert rotated.headers["Content-Type"] == "application/pdf"
    got = server.request("POST", "/pdf/watermark", files={"url": (None, urls[0]), "stamp": ("stamp.png", image("PNG"))})
    assert got.status_code == 200
    problem(send(server, "/pdf/merge", urls=urls[:1]), 400, "invalid_parameter", param="urls", reason="out_of_range")
    problem(send(server, "/pdf/merge", urls=urls * 11), 400, "invalid_parameter", param="urls", reason="out_of_range")
    problem(send(server, "/pdf/merge", url=urls[0]), 400, "invalid_parameter", reason="unknown_parameter")
    for wrong in ("[", "[1]", "[]"):
        problem(send(server, "/pdf/merge", urls=wrong), 400, "invalid_parameter", param="urls", reason="malformed")


def test_a_request_without_files_needs_no_multipart_form(server: Running, place: Receiver) -> None:
    fields = {"url": place.url, "output_format": "png", "width": 9, "url_headers": {"X-Own": "1"}, "dry_run": False}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}
    for body in ({"json": fields}, {"data": texts}):
        response = server.request("POST", "/convert", **body)
        assert (response.status_code, response.headers["X-Width"]) == (200, "9")
    assert [request.headers["x-own"] for request in place.requests] == ["1", "1"]
    merged = server.request("POST", "/pdf/from-images", json={"urls": [place.url] * 2})
    assert merged.headers["Content-Type"] == "application/pdf"
    missing = server.request("POST", "/convert", json={"output_format": "png"})
    problem(missing, 400, "invalid_parameter", param="file", reason="missing")
    named = server.request("POST", "/convert", data={**texts, "file": "x"})
    problem(named, 400, "invalid_parameter", param="file", reason="no_file")
    for content in (b'{"url":', b"url=%ff", b"url=a&url=b", b"[]", b""):
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        problem(server.request("POST", "/convert", content=content, headers=headers), 400, "invalid_parameter")
    large = server.request("POST", "/convert", json={"url": "x" * 70_000})
    problem(large, 413, "file_too_large", param="body")


def test_the_name_is_that_of_the_server(server: Running, place: Receiver) -> None:
    names = {
        'attachment; filename="b.jpg"': "b.jpg",
        "inline; filename*=UTF-8''gr%C3%B6%C3%9Fe.jpg": "größe.jpg",
        'attachment; filename="../../etc/c.jpg"': "c.jpg",
        "attachment": "a.jpg",
        'attachment; filename=""': "a.jpg",
        "attachment; filename*=undefined''x": "a.jpg",
        "attachment; filename*=iso-8859-1'de'gr%F6%DFe.jpg": "größe.jpg",
        f'attachment; filename="{";" * 5000}"': "a.jpg",
        "": "a.jpg",
    }
    for header, name in names.items():
        place.respond = reply(200, image(), content_disposition=header)
        assert upload(server, f"{place.url}/x/a.jpg").json()["data"]["original_name"] == name
    place.respond = reply(200, image())
    for path, name in (("", "file"), ("/", "file"), ("/x/", "file"), ("/%2e%2e%2fb.jpg", "b.jpg"), ("/ä.jpg", "ä.jpg")):
        assert upload(server, place.url + path).json()["data"]["original_name"] == name


def test_headers_are_for_the_first_host(server: Running, place: Receiver) -> None:
    with Receiver(reply(200, image()), ALLOWED) as other:
        headers = {"Authorization": "Bearer secret", "X-Own": "1"}
        place.respond = reply(302, location=other.url)
        assert upload(server, place.url, url_headers=headers).status_code == 200
        place.respond = reply(200, image("PNG"))
        both = [place.url, other.url]
        assert send(server, "/pdf/from-images", urls=both, url_headers=headers).status_code == 200
        assert [request.headers.get("authorization") for request in place.requests] == ["Bearer secret"] * 2
        assert [request.headers.get("x-own") for request in other.requests] == [None] * 2
    for wrong in (
        "x",
        "[]",
        {"a": 1},
        {"Host": "b"},
        {"a b": "c"},
        {"a": "b\r\nc: d"},
        {"a": ""},
        {"content-length": "1"},
    ):
        response = upload(server, place.url, url_headers=wrong)
        problem(response, 400, "invalid_parameter", param="url_headers", reason="malformed")


def test_a_file_or_a_url(server: Running, place: Receiver) -> None:
    files = {"file": ("a.jpg", image()), "url": (None, place.url)}
    problem(server.request("POST", "/files/upload", files=files), 400, "invalid_parameter", reason="exclusive")
    problem(send(server, "/files/upload", url_headers={}), 400, "invalid_parameter", param="file", reason="missing")
    assert place.connections == 0
    problem(send(server, "/convert", url=place.url, output_format="png", qualty="1"), 400, "invalid_parameter")
    problem(send(server, "/batch/batch_0123456789ABCDEFGHIJKL/files", url=place.url), 404, "not_found")
    assert place.connections == 0
    place.respond = reply(200, b"\0no picture")
    problem(upload(server, place.url), 400, "invalid_file_type", reason="unrecognized")
    place.respond = reply(200, b"")
    problem(upload(server, place.url), 400, "invalid_file_type", reason="empty_file")


FORBIDDEN = (
    *("127.0.0.1", "127.1", "127.0.0.3", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "017700000001", "0"),
    *("0.0.0.0", "localhost", "LOCALHOST", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]"),
    *("[64:ff9b::7f00:1]", "[64:ff9b::a9fe:a9fe]", "[2002:7f00:1::]", "10.0.0.1", "172.16.0.1", "192.168.1.1"),
    *("169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:169.254.169.254]", "2852039166", "100.100.100.200"),
    *("168.63.129.16", "192.0.0.192", "224.0.0.1", "255.255.255.255", "198.18.0.1", "[ff02::1]"),
)
UNKNOWN = ("localhost.", "127.0.0.1.", "①②⑦.0.0.1", "127.0.0.1%2e", "127。0。0。1")  # addresses for some resolvers
INVALID = (
    *("", "x", "file:///etc/passwd", "ftp://127.0.0.2/a.jpg", "gopher://127.0.0.2:{port}/", "data:image/png;base64,AA"),
    *("http://", "http:///a.jpg", "//127.0.0.2:{port}/", "http://user:secret@127.0.0.2:{port}/a.jpg", "http://[::1"),
    *("http://127.0.0.2:99999/", "http://127.0.0.2:{port}\\@127.0.0.1/", "javascript:alert(1)", "http://a\r\nb/"),
)


@pytest.fixture(scope="module")
def inside() -> Iterator[tuple[Receiver, Receiver]]:
    """Servers that must not be reached, by IPv4 and by IPv6."""
    with Receiver(reply(200, image())) as first, Receiver(reply(200, image()), "::1") as second:
        yield first, second


@pytest.fixture(scope="module")
def poor(server: Running) -> str:
    """The key of an account with one credit."""
    return server.account(credits=0, purchased=1)


@pytest.mark.parametrize("host", [*FORBIDDEN, *UNKNOWN])
def test_addresses_that_are_not_public(
    server: Running, place: Receiver, inside: tuple[Receiver, Receiver], poor: str, host: str
) -> None:
    url, reasons = f"http://{host}:{inside[host.startswith('[')].port}/a.jpg", {"forbidden_address"}
    if host in UNKNOWN:
        reasons |= {"invalid_url", "unreachable"}
    response = send(server, "/convert", poor, url=url, output_format="png")
    problem(response, 400, "invalid_parameter", param="url")
    assert response.json()["error"]["reason"] in reasons
    place.respond = reply(302, location=url)
    redirected = send(server, "/convert", poor, url=place.url, output_format="png")
    problem(redirected, 400, "invalid_parameter", param="url")
    assert redirected.json()["error"]["reason"] in reasons
    assert [one.connections for one in inside] == [0, 0]
    assert credits(server, poor) == 1


@pytest.mark.parametrize("url", INVALID)
def test_urls_that_are_none(server: Running, place: Receiver, poor: str, url: str) -> None:
    response = send(server, "/convert", poor, url=url.format(port=place.port), output_format="png")
    problem(response, 400, "invalid_parameter", param="url", reason="invalid_url")
    assert (place.connections, credits(server, poor)) == (0, 1)


def endless(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        send(bytes(1 << 20))


def incomplete(request: Received, send: Send) -> None:
    send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\nConnection: close\r\n\r\nabc")


def bomb(request: Received, send: Send) -> None:
    body = gzip.compress(bytes(100 << 20), 1)
    send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def looping(request: Received, send: Send) -> None:
    reply(307, location=f"{request.path}x")(request, send)


BAD: dict[str, tuple[Callable[[Received, Send], object], int, str, str]] = {
    "endless": (endless, 413, "file_too_large", "bytes"),
    "huge": (reply(200, content_length=str(1 << 40)), 413, "file_too_large", "bytes"),
    "incomplete": (incomplete, 400, "invalid_parameter", "unreachable"),
    "no-http": (lambda request, send: send(b"220 mail.example ESMTP\r\n"), 400, "invalid_parameter", "unreachable"),
    "gzip": (bomb, 400, "invalid_parameter", "content_encoding"),
    "loop": (looping, 400, "invalid_parameter", "too_many_redirects"),
    "missing": (reply(404, b"x"), 400, "invalid_parameter", "http_status"),
    "failing": (reply(503), 400, "invalid_parameter", "http_status"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_responses(server: Running, place: Receiver, poor: str, name: str) -> None:
    place.respond, status, code, reason = BAD[name]
    response = send(server, "/convert", poor, url=f"{place.url}/", output_format="png")
    problem(response, status, code, reason=reason, param="url")
    if reason == "http_status":
        assert response.json()["error"]["details"] == {"status": 404 if name == "missing" else 503}
    assert credits(server, poor) == 1


def test_nothing_listens(server: Running) -> None:
    with Receiver(address=ALLOWED) as closed:
        pass
    problem(upload(server, closed.url), 400, "invalid_parameter", param="url", reason="unreachable")
    problem(upload(server, "http://nowhere.invalid/"), 400, "invalid_parameter", param="url", reason="unreachable")


def test_a_repeated_request_fetches_nothing(server: Running, place: Receiver) -> None:
    """The URL may have expired meanwhile."""
    key, headers = server.account(), {"Idempotency-Key": "once"}
    fields = {"url": f"{place.url}/a.jpg", "output_format": "jpg"}
    first = send(server, "/convert/json", key, **fields, headers=headers)
    place.respond = reply(403)
    second = send(server, "/convert/json", key, **{**fields, "output_format": "JPEG"}, headers=headers)
    assert (second.json()["data"], second.headers["Idempotency-Replayed"]) == (first.json()["data"], "true")
    assert send(server, "/convert", key, **fields, headers=headers).headers["Content-Type"] == "image/jpeg"
    assert (len(place.requests), credits(server, key)) == (1, 49)
    other = send(server, "/convert", key, **{**fields, "url": f"{place.url}/b.jpg"}, headers=headers)
    problem(other, 422, "idempotency_key_reused")
    fields["url"] = f"{place.url}/c.jpg"
    problem(send(server, "/convert", key, **fields, headers={"Idempotency-Key": "x"}), 400, "invalid_parameter")
    place.respond = reply(200, image())
    assert send(server, "/convert", key, **fields, headers={"Idempotency-Key": "x"}).status_code == 200


def test_a_client_that_disconnects_ends_the_fetch(server: Running, place: Receiver) -> None:
    place.respond = place.hang
    body = form(part(place.url.encode(), 'name="url"'), TARGET)
    with server.connect() as connection:
        connection.sendall(conversion_request(server.posting, body))
        assert eventually(lambda: len(place.requests) == 1)
        assert server.work_files() != []
    assert eventually(lambda: server.work_files() == [])


def unread() -> RemoteFileMetrics:
    return RemoteFileMetrics(CollectorRegistry())


async def test_transfers_are_counted_by_outcome(servers: Servers, place: Receiver, tmp_path: Path) -> None:
    registry, work_files = CollectorRegistry(), WorkFiles(tmp_path)
    outgoing = Outgoing(REACHABLE)
    files = RemoteFiles(outgoing, work_files, servers.detector, RemoteFileMetrics(registry), try_seconds=5)
    place.respond = reply(200, image())
    async with files.fetch(ACCOUNT, [RemoteFile(place.url)] * 2) as (first, _):
        await files.send(RemoteFile(place.url), first.file, Outcome("png", first.size))
    place.respond = reply(404)
    with pytest.raises(InvalidParameter):
        async with files.fetch(ACCOUNT, [RemoteFile(place.url)]):
            pass
    with pytest.raises(InvalidParameter):
        async with files.fetch(ACCOUNT, [RemoteFile("http://127.0.0.9/")]):
            pass
    samples = [sample for metric in registry.collect() for sample in metric.samples if sample.name.endswith("_total")]
    counted = {tuple(sample.labels.values()): sample.value for sample in samples}
    fetched = {("fetch", "completed"): 2, ("fetch", "http_status"): 1, ("fetch", "forbidden_address"): 1}
    assert counted == {**fetched, ("export", "completed"): 1}


async def test_files_arrive_in_time_or_not_at_all(servers: Servers, place: Receiver, tmp_path: Path) -> None:
    def drip(request: Received, send: Send) -> None:
        send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while not place.stopped.wait(0.01):
            send(b"x")

    work_files = WorkFiles(tmp_path)
    files = RemoteFiles(Outgoing(REACHABLE), work_files, servers.detector, unread(), seconds=0.2)
    for respond in (drip, place.hang):
        place.respond = respond
        with pytest.raises(InvalidParameter) as error:
            async with files.fetch(ACCOUNT, [RemoteFile(place.url)]):
                pass
        assert (error.value.reason, error.value.param) == ("timeout", "url")
    assert (work_files.open_files.total(), work_files.used_memory) == (0, 0)


async def test_an_account_fetches_a_few_files_at_a_time(servers: Servers, place: Receiver, tmp_path: Path) -> None:
    """More wait for their turn, without a connection; those of other accounts do not wait."""
    place.respond = place.hang
    files = RemoteFiles(Outgoing(REACHABLE), WorkFiles(tmp_path), servers.detector, unread())

    async def fetch(account: Account, count: int) -> None:
        async with files.fetch(account, [RemoteFile(place.url)] * count):
            pass

    async def connections(count: int) -> None:
        assert await asyncio.to_thread(eventually, lambda: len(place.requests) >= count)

    async with asyncio.timeout(20):
        waiting = [asyncio.create_task(fetch(ACCOUNT, 3)), asyncio.create_task(fetch(ACCOUNT, 1))]
        await connections(2)
        waiting.append(asyncio.create_task(fetch(replace(ACCOUNT, id="acct_other"), 1)))
        await connections(3)
        await asyncio.sleep(0.05)
        assert len(place.requests) == 3
        waiting[0].cancel()  # both files that arrive, and the one that waits
        await connections(4)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.long
async def test_all_files_of_a_request_together_have_a_limit(servers: Servers, place: Receiver, tmp_path: Path) -> None:
    place.respond = endless
    files = RemoteFiles(Outgoing(REACHABLE), WorkFiles(tmp_path), servers.detector, unread())
    account = replace(ACCOUNT, tier=replace(ACCOUNT.tier, max_file_size=300 << 20, max_concurrent=2))
    with pytest.raises(FileTooLarge):
        async with files.fetch(account, [RemoteFile(place.url)] * 2):
            pass
