"""A base path: pages, links, cookies, samples, redirects and answers of the API are below it, through proxies too."""

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from benchmarks.processes import ServerProcess
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.proxies import program

BASE = "/convert"
CONFIGURATIONS = Path(__file__).parents[3] / "config" / "base_path"
_LINK = re.compile(r'(?<![\w-])(?:href|src|action|formaction)="([^"#][^"]*)"')
_NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{ access_log off; client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
    server {{ listen 127.0.0.1:{port}; {site} }} }}
"""


@pytest.fixture(scope="module")
def below(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings: dict[str, Any] = {"base_url": f"http://127.0.0.1{BASE}/api/v1", "simulated_checkout": True}
    with servers.running(tmp_path_factory.mktemp("below"), **settings) as running:
        yield running


class Proxy(ServerProcess):
    """A proxy with one of the provided configurations."""

    def __init__(self, folder: Path, name: str, upstream: str) -> None:
        super().__init__()
        self._path, self._name = folder / name, name
        text = (CONFIGURATIONS / name).read_text()
        assert "127.0.0.1:8000" in text
        text = text.replace("127.0.0.1:8000", upstream).replace("bind :80", f"bind 127.0.0.1:{self.port}")
        self._path.write_text(_NGINX.format(folder=folder, port=self.port, site=text) if name == "nginx.conf" else text)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def command(self) -> list[str]:
        if self._name == "nginx.conf":
            return [program("nginx"), "-e", str(self._path.with_name("error.log")), "-c", str(self._path)]
        return [program("haproxy"), "-db", "-f", str(self._path)]


def crawl(url: str, headers: dict[str, str]) -> dict[str, str]:
    """The texts of all pages that links lead to from the pages at the base path, by path."""
    waiting, texts = [f"{BASE}/", f"{BASE}/dashboard/jobs"], dict[str, str]()
    while waiting:
        path = waiting.pop()
        response = http.get(urljoin(url, path), headers=headers)
        assert response.status_code == 200, path
        texts[path] = response.text
        for link in map(unescape, _LINK.findall(response.text) if "html" in response.headers["Content-Type"] else ()):
            if not re.match(r"https?:|mailto:|data:", link):
                assert link.startswith(f"{BASE}/"), (path, link)
                found = link.partition("#")[0]
                is_form = re.search(rf'<form[^>]*action="{re.escape(found)}"', response.text)
                if found not in texts and found not in waiting and not (is_form and "post" in is_form[0]):
                    waiting.append(found)
    return texts


def test_all_links_are_below_the_base_path(below: Running) -> None:
    origin = {"Origin": below.url}
    signed_in = http.post(f"{below.url}{BASE}/dashboard/sign-in", data={"key": below.key}, headers=origin)
    assert (signed_in.status_code, signed_in.headers["Location"]) == (303, f"{BASE}/dashboard")
    cookie = signed_in.headers["Set-Cookie"]
    assert f"Path={BASE}/;" in f"{cookie};"

    texts = crawl(below.url, {"Cookie": cookie.partition(";")[0]})

    assert {f"{BASE}{path}" for path in ("/", "/docs/jobs", "/status", "/dashboard/webhooks")} <= texts.keys()
    samples = " ".join(text for path, text in texts.items() if path.startswith((f"{BASE}/docs", f"{BASE}/?")))
    assert f"http://127.0.0.1{BASE}/api/v1/convert" in samples
    assert "127.0.0.1/api/v1" not in samples
    found = re.findall(r'<li><a href="([^"]+)"', http.get(f"{below.url}{BASE}/docs/search?q=webhook").text)
    assert any("?q=webhook#" in path for path in found)
    assert all(path.startswith((f"{BASE}/docs", "#")) for path in found)


def test_scripts_find_the_base_path_by_their_own_url() -> None:
    folder = CONFIGURATIONS.parents[1] / "web" / "static"
    for script in folder.glob("*.js"):
        assert not re.search(r"""["'`]/(api|try|docs|register|dashboard|static)\b""", script.read_text()), script


@pytest.mark.parametrize("prefix", [BASE, ""])  # as it is passed on by a proxy that removes it, too
def test_answers_of_the_api(below: Running, prefix: str) -> None:
    api, headers = f"{below.url}{prefix}/api/v1", {**below.auth, "Accept": "application/json"}
    form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}

    done = http.post(f"{api}/convert", headers=headers, **form).json()["data"]
    assert done["download_url"] == f"{BASE}/api/v1/files/{done['file_id']}/download"
    assert http.get(f"{below.url}{done['download_url']}", headers=headers).content[:4] == b"RIFF"
    job = http.post(f"{api}/convert", headers={**headers, "Prefer": "respond-async"}, **form)
    assert job.headers["Location"] == f"{BASE}/api/v1/jobs/{job.json()['data']['job_id']}"
    ended = f"{below.url}{job.headers['Location']}"
    assert eventually(lambda: http.get(ended, headers=headers).json()["data"]["status"] == "completed")
    result = http.get(ended, headers=headers).json()["data"]["result"]
    assert result["download_url"].startswith(f"{BASE}/api/v1/files/")
    events = http.get(f"{ended}/events", headers=headers).text
    assert f'"download_url": "{BASE}/api/v1/files/' in events

    assert http.get(f"{api}/openapi.json").json()["servers"] == [{"url": f"http://127.0.0.1{BASE}/api/v1"}]
    assert {one["endpoint"][:16] for one in http.get(f"{api}/tools").json()["data"]["tools"]} == {f"{BASE}/api/v1/"}
    assert http.get(f"{below.url}{prefix}/openapi.json").headers["Location"] == f"{BASE}/api/v1/openapi.json"
    assert http.get(f"{below.url}{prefix}/healthz").status_code == 200
    bought = http.post(f"{api}/credits/purchase", headers=headers, json={"pack": "starter"}).json()["data"]
    assert urlsplit(bought["checkout_url"]).path.startswith(f"{BASE}/checkout/")
    assert "/checkout/" in http.get(f"{below.url}{urlsplit(bought['checkout_url']).path}").text


def test_a_path_that_only_begins_alike_is_not_below(below: Running) -> None:
    assert http.get(f"{below.url}{BASE}s/docs").status_code == 404
    assert http.get(f"{below.url}{BASE}").status_code == 200


@pytest.mark.parametrize("name", ["nginx.conf", "haproxy.cfg"])
def test_proxies(below: Running, tmp_path: Path, name: str) -> None:
    with Proxy(tmp_path, name, urlsplit(below.url).netloc) as proxy:
        assert eventually(lambda: http.get(f"{proxy.url}{BASE}/api/v1/formats").status_code == 200)
        moved = http.get(f"{proxy.url}{BASE}")
        assert (moved.status_code, urlsplit(moved.headers["Location"]).path) == (308, f"{BASE}/")
        assert f'href="{BASE}/docs"' in http.get(f"{proxy.url}{BASE}/").text
        form: dict[str, Any] = {"files": {"file": ("a.png", sample("png"))}, "data": {"output_format": "webp"}}
        done = http.post(f"{proxy.url}{BASE}/api/v1/convert", headers=below.auth, **form)
        assert done.content[:4] == b"RIFF"
