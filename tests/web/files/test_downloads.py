"""Downloads: ranges, conditions, names of results, and links that work without an API key."""

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.file_names import extension_of, stem
from storage.database import Transaction
from storage.tables import models
from tests.support.requests import http
from tests.support.requests.checks import conforms, problem
from tests.support.samples.forms import image
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running, Servers
from web.api.headers import content_disposition

BASE = "http://localhost:8000"
OWN_HEADERS = ("date", "x-request-id", "x-credits-remaining", "ratelimit", "ratelimit-policy")  # of each request
PDF = document("shown", 2)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="20" height="10"><rect width="9" height="9"/></svg>'


@pytest.fixture(scope="module")
def stored(either: Running) -> tuple[Running, str, bytes]:
    """A server, the path of a download, and its content."""
    made = either.convert(image(), headers={"Accept": "application/json"}).json()["data"]
    path = f"/files/{made['file_id']}/download"
    return either, path, either.request("GET", path).content


@pytest.mark.parametrize(
    ("wanted", "start", "end"),
    [("bytes=0-9", 0, 10), ("bytes=10-", 10, None), ("bytes=-7", -7, None), ("bytes=5-999999", 5, None)],
)
def test_a_part(stored: tuple[Running, str, bytes], wanted: str, start: int, end: int | None) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    expected = whole[start:end]
    first = whole.index(expected) if start < 0 else start
    assert (response.status_code, response.content) == (206, expected)
    assert response.headers["Content-Range"] == f"bytes {first}-{first + len(expected) - 1}/{len(whole)}"


@pytest.mark.parametrize("wanted", ["bytes=0-1,5-6", "lines=1-2", "bytes=-", "bytes=9-3", "bytes=a-b"])
def test_malformed_ranges_return_the_whole_file(stored: tuple[Running, str, bytes], wanted: str) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    assert (response.status_code, response.content) == (200, whole)
    assert response.headers["Accept-Ranges"] == "bytes"


@pytest.mark.parametrize("wanted", ["bytes=999999-", "bytes=-0"])
def test_beyond_the_end(stored: tuple[Running, str, bytes], wanted: str) -> None:
    server, path, whole = stored
    response = server.request("GET", path, headers={"Range": wanted})
    problem(response, 416, "range_not_satisfiable", details={"size": len(whole)})
    assert response.headers["Content-Range"] == f"bytes */{len(whole)}"


def test_conditional_headers(stored: tuple[Running, str, bytes]) -> None:
    server, path, whole = stored
    tag = server.request("GET", path).headers["ETag"]
    part = {"Range": "bytes=0-0"}
    assert server.request("GET", path, headers={**part, "If-Range": tag}).content == whole[:1]
    assert server.request("GET", path, headers={**part, "If-Range": '"another"'}).content == whole
    unchanged = server.request("GET", path, headers={"If-None-Match": tag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")


def test_head_request(stored: tuple[Running, str, bytes]) -> None:
    server, path, whole = stored
    response = server.request("HEAD", path)
    assert (response.status_code, response.headers["Content-Length"], response.content) == (200, str(len(whole)), b"")


@pytest.mark.parametrize(
    ("client", "result"),
    [
        ("photo.jpg", "photo.webp"),
        ("photo", "photo.webp"),
        ("archive.tar.gz", "archive.tar.webp"),
        ("/etc/passwd", "passwd.webp"),
        ("C:\\Users\\me\\photo.jpg", "photo.webp"),
        ("../../..", "file.webp"),
        ("", "file.webp"),
        (".htaccess", "htaccess.webp"),
        ("a\r\nSet-Cookie: b.jpg", "aSet-Cookie_ b.webp"),
        ('say "hi".png', "say _hi_.webp"),
        ("Häuser am Fluß.png", "Häuser am Fluß.webp"),
        ("photo\u202egpj.exe", "photogpj.webp"),
        ("写真" * 100 + ".jpg", "写真" * 25 + ".webp"),
        ("-rf", "_-rf.webp"),
        ("CON", "_CON.webp"),
        ("nul.tar.gz", "_nul.tar.webp"),
        ("com¹ .jpg", "_com¹.webp"),
        ("\uff4c\uff50\uff54\uff11.jpg", "_\uff4c\uff50\uff54\uff11.webp"),
        ("console.jpg", "console.webp"),
        ("nul-1.jpg", "nul-1.webp"),
        ("%2e%2e%2fa%5Cb%00%0a%252f.jpg", "_2e_2e_2fa_5Cb_00_0a_252f.webp"),
        ("50%20off 100%.jpg", "50%20off 100%.webp"),
        ("a\u2028b\u2029\x85\ud800.jpg", "ab.webp"),
        ("photo. . .jpg", "photo.webp"),
        ("a" * 149 + " b.jpg", "a" * 149 + ".webp"),
    ],
)
def test_names_of_results(client: str, result: str) -> None:
    assert f"{stem(client)}.webp" == result


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("photo.webp", "attachment; filename=\"photo.webp\"; filename*=UTF-8''photo.webp"),
        ("Häuser.png", "attachment; filename=\"Hauser.png\"; filename*=UTF-8''H%C3%A4user.png"),
        (
            "Отчёт 2.png",
            "attachment; filename=\"Otchet 2.png\"; filename*=UTF-8''%D0%9E%D1%82%D1%87%D1%91%D1%82%202.png",
        ),
        ("\u0301.png", "attachment; filename=\"file.png\"; filename*=UTF-8''%CC%81.png"),
        ("写真.png", "attachment; filename=\"XieZhen.png\"; filename*=UTF-8''%E5%86%99%E7%9C%9F.png"),
        ("\uff0drf.png", "attachment; filename=\"_-rf.png\"; filename*=UTF-8''%EF%BC%8Drf.png"),
        (
            "\uff23\uff2f\uff2e.png",
            "attachment; filename=\"_CON.png\"; filename*=UTF-8''%EF%BC%A3%EF%BC%AF%EF%BC%AE.png",
        ),
        ("a\uff1a\uff0fb.png", "attachment; filename=\"a__b.png\"; filename*=UTF-8''a%EF%BC%9A%EF%BC%8Fb.png"),
        ("100%.png", "attachment; filename=\"100_.png\"; filename*=UTF-8''100%25.png"),
        ("it's (1).png", "attachment; filename=\"it's (1).png\"; filename*=UTF-8''it%27s%20%281%29.png"),
    ],
)
def test_content_disposition(name: str, header: str) -> None:
    assert content_disposition(name) == header


@given(st.text())
def test_file_names_do_not_break_the_header(client: str) -> None:
    name = f"{stem(client)}.png"
    header = content_disposition(name)
    assert name.endswith(".png")
    assert len(name.encode()) < 255
    assert not set("/\\\0\r\n") & set(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


@pytest.mark.parametrize(("name", "extension"), [("a.JPG", "jpg"), ("a", ""), ("a.b/c", ""), ("a.", "")])
def test_extension_of(name: str, extension: str) -> None:
    assert extension_of(name) == extension


def store(server: Running, content: bytes, target: str, **form: Any) -> str:
    """Converts and stores a file. Returns its id."""
    response = server.convert(content, target, headers={"Accept": "application/json"}, **form)
    return str(response.json()["data"]["file_id"])


def create(server: Running, file_id: str, key: str = "", **body: Any) -> httpx.Response:
    return server.request("POST", f"/files/{file_id}/links", key, json=body)


def link_to(server: Running, file_id: str, key: str = "") -> str:
    """A URL that reaches the server, whose base URL does not have its port."""
    response = create(server, file_id, key)
    assert response.status_code == 200, response.text
    return str(response.json()["data"]["url"]).replace(BASE, server.url)


def get(url: str, method: str = "GET", **headers: str) -> httpx.Response:
    return conforms(http.request(method, url, headers={name.replace("_", "-"): text for name, text in headers.items()}))


@pytest.fixture(scope="module")
def linked(either: Running) -> tuple[Running, str, str]:
    """A server, the id of a stored image, and a link to it."""
    file_id = store(either, image(), "webp")
    return either, file_id, link_to(either, file_id)


def test_a_link_is_a_download_without_a_key(linked: tuple[Running, str, str]) -> None:
    server, file_id, url = linked
    download, by_link = server.request("GET", f"/files/{file_id}/download"), get(url)
    assert (by_link.status_code, by_link.content) == (200, download.content)
    headers = [
        {name: value for name, value in response.headers.items() if not name.startswith(("x-ratelimit", *OWN_HEADERS))}
        for response in (download, by_link)
    ]
    assert headers[0] == headers[1]
    assert get(url, Authorization="Bearer nonsense").status_code == 200


def test_head_ranges_and_validators(linked: tuple[Running, str, str]) -> None:
    _, _, url = linked
    whole = get(url)
    head = get(url, "HEAD")
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (200, b"", str(len(whole.content)))
    part = get(url, Range="bytes=5-9")
    assert (part.status_code, part.content) == (206, whole.content[5:10])
    problem(get(url, Range="bytes=999999-"), 416, "range_not_satisfiable")
    assert get(url, If_None_Match=whole.headers["ETag"]).status_code == 304


def test_a_changed_link_is_not_found(linked: tuple[Running, str, str]) -> None:
    server, _, url = linked
    path = url.removeprefix(server.url)
    changed = {path[:-1], path + "A", path + "/", path + "%00", path.replace("/links/", "/files/")}
    for index in range(1, len(path)):
        other = chr(ord(path[index]) ^ 1)
        changed.add(path[:index] + (other if other.isalnum() else "~") + path[index + 1 :])
    first = path.index("/links/") + len("/links/")
    for index in range(first, len(path), 5):
        changed |= {path[:index] + other + path[index + 1 :] for other in "?%.-#/"}
        changed.add(f"{path[:index]}%ff{path[index + 1 :]}")
    with http.Client(base_url=server.url) as client:
        statuses = {text: client.get(text).status_code for text in changed - {path}}
    assert {text: status for text, status in statuses.items() if status not in (401, 403, 404)} == {}


def test_a_link_ends_with_its_file(either: Running) -> None:
    first, second = store(either, image(), "png"), store(either, image(), "png")
    deleted, expired = link_to(either, first), link_to(either, second)
    either.request("DELETE", f"/files/{first}")
    problem(get(deleted), 404, "not_found")

    def expire(transaction: Transaction) -> None:
        transaction.execute(models.File.update(expires_at=1).where(models.File.file_id == second))

    assert get(expired).status_code == 200
    either.database.run_blocking(expire)
    problem(get(expired), 404, "not_found")


def test_a_link_lasts_as_long_as_asked_for_and_as_the_file(either: Running) -> None:
    file_id = store(either, image(), "png")
    stored = either.request("GET", f"/files/{file_id}").json()["data"]
    assert create(either, file_id, expires_in=604_800).json()["data"]["expires_at"] == stored["expires_at"]
    for seconds, body in ((60, {"expires_in": 60}), (3600, dict[str, Any]())):
        until = datetime.fromisoformat(create(either, file_id, **body).json()["data"]["expires_at"])
        assert abs(until.replace(tzinfo=UTC).timestamp() - time.time() - seconds) < 30
    for wrong in (59, 604_801, "3600", True, 90.5, None):
        problem(create(either, file_id, expires_in=wrong), 400, "invalid_parameter", param="expires_in")


def test_there_is_no_link_to_a_file_without_a_result(either: Running) -> None:
    uploaded = either.upload(image())["file_id"]
    problem(create(either, uploaded), 404, "not_found", reason="not_processed")


@pytest.mark.parametrize(("content", "target"), [(image(), "png"), (image(), "pdf")])
def test_images_and_pdfs_may_be_shown(server: Running, content: bytes, target: str) -> None:
    url = link_to(server, store(server, content, target))
    shown, saved = get(f"{url}?disposition=inline"), get(f"{url}?disposition=attachment")
    assert shown.content == saved.content == get(url).content
    assert shown.headers["Content-Disposition"].startswith("inline; filename=")
    assert saved.headers["Content-Disposition"].startswith("attachment; filename=")
    assert "default-src 'none'" in shown.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    ("content", "target", "options"),
    [(SVG, "svg", {}), (PDF, "txt", {}), (PDF, "html", {}), (PDF, "png", {"pages": "all"})],
)
def test_nothing_else_is_shown(server: Running, content: bytes, target: str, options: dict[str, str]) -> None:
    url = link_to(server, store(server, content, target, **options))
    problem(get(f"{url}?disposition=inline"), 400, "invalid_parameter", param="disposition", reason="unsupported")
    assert get(url).headers["Content-Disposition"].startswith("attachment; ")


def test_the_query_of_a_link(linked: tuple[Running, str, str]) -> None:
    _, _, url = linked
    problem(get(f"{url}?disposition=shown"), 400, "invalid_parameter", param="disposition")
    assert get(f"{url}?utm_source=mail").status_code == 200


def test_links_have_the_rate_limit_of_addresses(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, rate_limit_anonymous=3) as server:
        url = link_to(server, store(server, image(), "png"))
        assert [get(one).status_code for one in (url, url + "A", url, url)] == [200, 404, 200, 429]
        assert get(url).headers["X-RateLimit-Limit"] == "3"


def test_links_outlive_the_server(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        path = link_to(server, store(server, image(), "png")).removeprefix(server.url)
    with servers.running(data_dir) as server:
        assert get(server.url + path).status_code == 200
