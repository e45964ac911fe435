"""Pages of HTML and Markdown in a browser: what it draws, loads and refuses, in the sandbox."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import pytest_asyncio
from PIL import Image

from engine import InvalidOption, TimedOut, TooLarge
from engine.executor import LocalExecutor, Task, TaskLimits, TaskResult, pool
from engine.executor.forkserver import ForkServer
from engine.executor.pool import WorkerPool
from engine.mupdf import pymupdf
from engine.network import FetchedPage, WebRequest, WebResponse
from engine.options import OptionValue
from engine.registry import load_registry
from engine.sandbox import LAYERS
from plugins._browser import fonts
from plugins._browser.chromium import CHROMIUM
from plugins._fonts import choice
from tests.support.executors.isolated import FileJob, has_ended, run_files
from tests.support.results.conversions import convert
from tests.support.samples import books
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.scripts import MISSING

_REGISTRY = load_registry()
_SYRIAC = "\u072b\u0720\u0721\u0710"
_ORIGIN = "https://page.example/folder/"
_SITE = {
    "a.css": (200, {"Content-Type": "text/css"}, b"body { background: #f00 }"),
    "moved": (302, {"Location": "https://other.example/script.js"}, b""),
    "https://other.example/script.js": (200, {"Content-Type": "text/javascript"}, b"document.body.append('moved')"),
}

pytestmark = [
    pytest.mark.skipif(not CHROMIUM.present, reason="Chromium is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
]


class _Browser:
    """An executor with the browser, and the requests that its tasks have made."""

    def __init__(self, folder: Path) -> None:
        self.requests: list[WebRequest] = []
        modules = _REGISTRY.plan([_REGISTRY.formats["html"]], "pdf").modules
        self.pool = WorkerPool(ForkServer(LAYERS, modules), 1, 100)
        self.executor = LocalExecutor(1, pool=self.pool, fetch=self._fetch)
        self.limits = TaskLimits(seconds=50)
        self._folder = folder

    async def _fetch(self, request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        self.requests.append(request)
        name = request.url.removeprefix(_ORIGIN)
        if name not in _SITE:
            return WebResponse(request.number, failure="forbidden_address")
        status, headers, body = _SITE[name]
        return WebResponse(request.number, status, tuple(headers.items()), body)

    async def run(
        self, data: bytes, target: str, page: FetchedPage | None = None, source: str = "html", /, **options: OptionValue
    ) -> tuple[bytes, TaskResult]:
        """The result and what is said about it. Raises ConversionError."""
        given, made = self._folder / "page", self._folder / "result"
        given.write_bytes(data)
        plan = _REGISTRY.plan([_REGISTRY.formats[source]], target, options=options)
        task = replace(Task.of(plan, options), page=page)
        result = await run_files(self.executor, FileJob(task, [given], made), self.limits)
        return made.read_bytes(), result


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[_Browser]:
    made = _Browser(tmp_path_factory.mktemp("browser"))
    try:
        yield made
    finally:
        await made.executor.close()


def _warnings(result: TaskResult) -> dict[str, str]:
    return {one.code: one.message for one in result.outcome.warnings}


def _image(data: bytes) -> Image.Image:
    return Image.open(BytesIO(data)).convert("RGB")


_DRAWN = b"""<!DOCTYPE html><title>Title</title><style>@media print { b { display: none } } body { margin: 0 }
@media (prefers-color-scheme: dark) { body { background: #000 } }</style>
<canvas width=100 height=50 id=canvas></canvas><b>screen</b><p id=written style="margin: 0; height: 2000px">
<script>canvas.getContext("2d").fillRect(0, 0, 100, 50); written.append("by a script")</script>"""


async def test_a_page_is_printed_with_its_scripts(browser: _Browser) -> None:
    data, result = await browser.run(_DRAWN, "pdf", page_size="a5", margin=30.0, footer_html='<b class="page">x</b>')
    document = pymupdf.open("pdf", data)
    text = document[0].get_text()

    assert "by a script" in text
    assert "screen" not in text
    assert text.split()[-1] == "1"  # the number of the page
    assert document[0].rect.width == pytest.approx(420, abs=1)
    assert document[0].get_images()
    assert document.page_count > 1
    assert _warnings(result) == {}
    (worker,) = browser.pool.idle
    data, _ = await browser.run(_DRAWN, "pdf", media="screen", scripts=False, pages="1", landscape=True)
    document = pymupdf.open("pdf", data)

    assert document[0].get_text().split() == ["screen"]
    assert document.page_count == 1
    assert document[0].rect.width > document[0].rect.height
    assert browser.pool.idle == [worker]  # with the same browser


async def test_a_page_becomes_an_image(browser: _Browser) -> None:
    whole = _image((await browser.run(_DRAWN, "png", dark=True))[0])
    window = _image((await browser.run(_DRAWN, "png", full_page=False, viewport="300x200", device_scale=2.0))[0])
    element = _image((await browser.run(_DRAWN, "jpeg", selector="canvas"))[0])

    assert (whole.width, whole.height > 2000, whole.getpixel((1000, 1000))) == (1280, True, (0, 0, 0))
    assert window.size == (600, 400)
    assert element.size == (100, 50)
    assert element.getpixel((50, 25)) == (0, 0, 0)
    with pytest.raises(InvalidOption, match="no element") as raised:
        await browser.run(_DRAWN, "png", selector="#missing")
    assert (raised.value.param, raised.value.reason) == ("selector", "nothing_found")
    with pytest.raises(TooLarge, match="1280 x"):  # its size is known before it is drawn
        await browser.run(b"<!DOCTYPE html><p style='height: 1e5px'>", "png")


async def test_files_of_an_archive_are_loaded_and_nothing_else(browser: _Browser) -> None:
    markup = (
        "<img src='images/a.png'><img src='http://127.0.0.1:9/b.png'><iframe src='file:///etc/passwd'></iframe>"
        "<script>fetch('http://169.254.169.254/').catch(() => document.body.append('refused'));"
        "alert(1); open('http://127.0.0.1/'); throw Error('mine')</script>"
    )
    archive = books.zipped({"index.html": markup, "images/a.png": saved(quadrants(), "PNG")})

    data, result = await browser.run(archive, "pdf", wait="300")
    page = pymupdf.open("pdf", data)[0]
    found = _warnings(result)

    assert page.get_text().split() == ["refused"]
    assert (168, 120) in {image[2:4] for image in page.get_images()}
    assert found.keys() == {"resource_not_loaded", "script_error"}
    assert "127.0.0.1:9/b.png" in found["resource_not_loaded"]
    assert "mine" in found["script_error"]
    assert browser.requests == []


async def test_a_fetched_page_is_loaded_by_the_executor(browser: _Browser) -> None:
    markup = b"<body><link rel=stylesheet href=a.css><script src=moved></script><img src=https://10.0.0.1/>text"
    page = FetchedPage(
        f"{_ORIGIN}?query", 404, (("Set-Cookie", "a=b"), ("Content-Type", "text/html")), (("X-Key", "k"),)
    )

    data, result = await browser.run(markup, "png", page, wait="network_idle", cookies=[{"name": "c", "value": "d"}])
    urls = {one.url: dict(one.headers) for one in browser.requests}

    assert _image(data).getpixel((1000, 500)) == (255, 0, 0)
    assert urls.keys() == {f"{_ORIGIN}a.css", f"{_ORIGIN}moved", "https://other.example/script.js", "https://10.0.0.1/"}
    own, other = urls[f"{_ORIGIN}a.css"], urls["https://other.example/script.js"]
    assert (own["X-Key"], "X-Key" in other) == ("k", False)
    assert {part.strip() for part in own["Cookie"].split(";")} == {"a=b", "c=d"}
    assert "Headless" not in own["User-Agent"]
    assert "Cookie" not in other
    assert _warnings(result).keys() == {"http_status", "resource_not_loaded"}


async def test_markdown_blank_pages_and_renderers(browser: _Browser) -> None:
    data, _ = await browser.run(b"# Title\n\nsome *text*", "pdf", None, "md")
    _, blank = await browser.run(b"<!DOCTYPE html><p>", "pdf")

    assert pymupdf.open("pdf", data)[0].get_text().split() == ["Title", "some", "text"]
    assert pymupdf.open("pdf", data).get_toc()[0][1] == "Title"
    assert _warnings(blank).keys() == {"blank_page"}
    for renderer, chosen in (("print", False), ("browser", True), ("auto", True)):
        for target in ("pdf", "png", "tiff"):
            plan = _REGISTRY.plan([_REGISTRY.formats["html"]], target, options={"renderer": renderer})
            assert bool(plan.programs) is chosen
            assert not plan.own_process


async def test_details_are_printed_open(browser: _Browser) -> None:
    details = "<details name=a><summary>one</summary>two</details><details name=a>three</details>"
    data, _ = await browser.run(f"<!DOCTYPE html>{details}".encode(), "pdf")
    assert pymupdf.open("pdf", data)[0].get_text().split() == ["one", "two", "Details", "three"]


async def test_characters_that_no_installed_font_has(browser: _Browser) -> None:
    """Frames get fonts of MuPDF. Headers and footers cannot, and have a warning."""
    frame = f'<iframe sandbox srcdoc="<meta charset=utf-8><p>{_SYRIAC}"></iframe>'
    header = f'<span data-a="ஜ" class="title"></span>{MISSING}'

    data, result = await browser.run(f"<meta charset=utf-8>{frame}".encode(), "pdf")
    page = f"<meta charset=utf-8><title>{_SYRIAC}</title><p>text".encode()
    _, told = await browser.run(page, "pdf", header_html=header)
    glyphs = [glyph for run in pymupdf.open("pdf", data)[0].get_texttrace() for _, glyph, *_ in run["chars"]]

    assert len(glyphs) == len(_SYRIAC)
    assert all(glyphs)
    assert _warnings(result) == {}
    message = _warnings(told)["glyphs_missing"]
    assert all(f"U+{ord(char):04X}" in message for char in _SYRIAC + MISSING)
    assert "U+0B9C" not in message  # which is in an attribute


async def test_a_system_without_fonts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    start = os.posix_spawn
    folders = tmp_path / "fonts.conf"
    folders.write_text("<fontconfig><dir>~/.fonts</dir></fontconfig>")
    settings = {"FONTCONFIG_FILE": str(folders)}
    monkeypatch.setattr(
        os, "posix_spawn", lambda path, arguments, env, **more: start(path, arguments, env | settings, **more)
    )
    for module in (choice, fonts):
        monkeypatch.setattr(module, "INSTALLED", ())

    result = convert(b"<!DOCTYPE html><p>abc", "pdf")
    (run,) = pymupdf.open("pdf", result.data)[0].get_texttrace()

    assert result.outcome.warnings == ()
    assert all(glyph for _, glyph, *_ in run["chars"])


def _runs(text: bytes) -> bool:
    """Whether a process has this text in its command."""
    return any(text in path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))


async def test_an_endless_page_ends(browser: _Browser) -> None:
    await browser.run(b"<p>text", "pdf")
    (worker,) = browser.pool.idle
    profile = f"--user-data-dir={worker.process.folder}/".encode()
    assert _runs(profile)
    browser.limits = TaskLimits(seconds=1)
    with pytest.raises(TimedOut):
        await browser.run(b"<script>for (;;);</script>", "pdf")
    browser.limits = TaskLimits(seconds=50)

    assert await has_ended(worker.process.pid)
    assert not _runs(profile)


async def test_a_browser_is_replaced_after_some_tasks(browser: _Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the processes of its pages, which it cannot see end, would reach the limit of the sandbox."""
    monkeypatch.setattr(pool, "MAX_TASKS_OF_PROGRAM", 1)
    await browser.run(b"<p>text", "pdf")
    assert browser.pool.idle == []
    monkeypatch.setattr(pool, "MAX_TASKS_OF_PROGRAM", 2)
    idle = []
    for _ in range(2):
        await browser.run(b"<p>text", "pdf")
        idle.append(len(browser.pool.idle))

    assert idle == [1, 0]
