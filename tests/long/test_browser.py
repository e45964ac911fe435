"""Pages in a browser equal those of the program itself, reach nothing that they must not, and leave nothing behind."""

import asyncio
import os
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator
from dataclasses import replace
from io import BytesIO
from ipaddress import ip_network
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import pytest
from PIL import Image

from engine import OutOfMemory, TimedOut, WorkerCrashed, sandbox
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.executor.forkserver import ForkServer
from engine.executor.pool import WorkerPool
from engine.mupdf import pymupdf
from engine.network import FetchedPage, WebRequest, WebResponse
from engine.options import OptionValue
from engine.registry import load_registry
from plugins._browser.chromium import CHROMIUM, PROGRAMS
from plugins._browser.devtools import DevTools
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import convert
from tests.support.samples.corpus import CORPUS
from tests.support.servers.receiver import Received, Receiver, Send, reply
from web.services.conversions.task_requests import answer
from web.services.webhooks.outgoing import Outgoing
from web.services.webhooks.public_addresses import AddressRules

pytestmark = [pytest.mark.long, pytest.mark.skipif(not CHROMIUM.present, reason="Chromium is not installed")]

_REGISTRY = load_registry()
_PAGES = 1000  # in a row
_FILES = sorted((CORPUS.parent / "hard3").glob("*.html"))
_LONG = "".join(f"<h2>Chapter {number}</h2><p>{'words of a text ' * 60}" for number in range(30))
_GENERATED = {
    "flex": "<div style='display:flex;gap:9px'><b style='flex:1;background:#acf'>a</b><b style='flex:2'>b</b></div>",
    "grid": "<div style='display:grid;grid-template-columns:1fr 2fr 1fr'><i>a</i><i>b</i><i>c</i><i>d</i></div>",
    "mathml": "<math display=block><mfrac><mi>a</mi><msqrt><mi>b</mi></msqrt></mfrac></math>",
    "svg": "<svg width=200 height=99><circle cx=50 cy=50 r=40 fill=teal /><text y=50>svg</text></svg>",
    "canvas": "<canvas id=c></canvas><script>x=c.getContext('2d');x.arc(50,50,40,0,6);x.fill()</script>",
    "webgl": "<canvas id=c></canvas><script>x=c.getContext('webgl');x.clearColor(0,1,0,1);x.clear(16384)</script>",
    "script": "<ol id=o></ol><script>for(i=0;i<99;i++)o.innerHTML+=`<li>${i}`</script>",
    "table": f"<table border=1>{'<tr>' + '<td>cell' * 9}</table>" * 9,
    "columns": f"<div style='columns:3'>{_LONG[:4000]}</div>",
    "chapters": _LONG,
    "page rules": f"<style>@page {{ size: a5; margin: 9mm }} h2 {{ break-before: page }}</style>{_LONG[:9000]}",
    "languages": "<p>Ελληνικά русский עברית العربية 中文 日本語 😀",
    "rtl": "<html dir=rtl lang=ar><p>مرحبا بالعالم 123",
    "gradients": "<div style='height:300px;background:conic-gradient(red,blue,red);border-radius:50%'></div>",
    "transforms": "<div style='transform:rotate(9deg) scale(.8);box-shadow:3px 3px 9px #888;width:99px'>turned</div>",
    "container": "<style>@container (width>9px){p{color:red}}body{container-type:inline-size}</style><p>container",
    "variables": "<style>:root{--a:calc(1em*2);--b:color-mix(in oklch,red,blue)}p{font-size:var(--a);color:var(--b)}"
    "</style><p>variables",
    "forms": "<input value=text><select><option>one</select><textarea>area</textarea><input type=checkbox checked>",
}


@pytest.fixture(scope="module")
def reference() -> Iterator[DevTools]:
    """Chromium with as few flags as possible, and what its pages refer to is not intercepted."""
    pipes = [*os.pipe(), *os.pipe()]
    flags = (
        "--remote-debugging-pipe",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--force-color-profile=srgb",
    )
    shell = f'exec "$@" 3<&{pipes[0]} 4>&{pipes[3]}'
    with subprocess.Popen(["bash", "-c", shell, "-", *PROGRAMS, *flags], pass_fds=(pipes[0], pipes[3])) as process:
        yield DevTools(pipes[2], pipes[1])
        process.kill()


def _print_and_picture(tools: DevTools, path: Path) -> tuple[bytes, bytes]:
    target = tools.call("Target.createTarget", url="about:blank")["targetId"]
    session = tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    tools.call("Emulation.setDeviceMetricsOverride", session, **size)
    tools.call("Page.enable", session)
    tools.call("Page.navigate", session, url=path.as_uri())
    while all(event.method != "Page.loadEventFired" for event in tools.events):
        tools.wait(0.1)
    tools.events.clear()
    margins = dict.fromkeys(("marginTop", "marginRight", "marginBottom", "marginLeft"), 20 / 25.4)
    paper = {"paperWidth": 210 / 25.4, "paperHeight": 297 / 25.4, "printBackground": True, "preferCSSPageSize": True}
    printed = tools.call("Page.printToPDF", session, **paper, **margins)["data"]
    content = tools.call("Page.getLayoutMetrics", session)["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": content["width"], "height": content["height"], "scale": 1}
    picture = tools.call("Page.captureScreenshot", session, captureBeyondViewport=True, clip=clip)["data"]
    return b64decode(printed), b64decode(picture)


def _source(name: str, folder: Path) -> Path:
    path = folder / "index.html"
    markup = _GENERATED.get(name)
    path.write_text(f"<!DOCTYPE html><meta charset=utf-8>{markup}" if markup else (_FILES[0].parent / name).read_text())
    return path


def _shown(pdf: bytes) -> list[tuple[str, bytes]]:
    return [(page.get_text(), page.get_pixmap(dpi=100).samples) for page in pymupdf.open("pdf", pdf)]


@pytest.mark.parametrize("name", [*_GENERATED, *(path.name for path in _FILES)])
def test_pages_are_those_of_the_program(name: str, tmp_path: Path, reference: DevTools) -> None:
    path = _source(name, tmp_path)
    expected, picture = _print_and_picture(reference, path)

    printed = convert(path.read_bytes(), "pdf", "a.html").data
    taken = Image.open(BytesIO(convert(path.read_bytes(), "png", "a.html").data))

    assert _shown(printed) == _shown(expected)
    assert np.array_equal(np.asarray(taken.convert("RGB")), np.asarray(Image.open(BytesIO(picture)).convert("RGB")))


_SECRET = "a secret of this machine"
_TAGS = (
    "<img src='{}'>", "<img srcset='{} 2x'>", "<link rel=stylesheet href='{}'>",
    "<link rel=preload as=image href='{}'>",
    "<link rel=prefetch href='{}'>", "<link rel=preconnect href='{}'>", "<link rel=dns-prefetch href='{}'>",
    "<link rel=modulepreload href='{}'>", "<link rel=icon href='{}'>", "<link rel=manifest href='{}'>",
    "<script src='{}'></script>", "<script type=module>import '{}'</script>", "<iframe src='{}'></iframe>",
    "<iframe srcdoc=\"<img src='{}'>\"></iframe>", "<object data='{}'></object>", "<embed src='{}'>",
    "<video src='{}' autoplay></video>", "<video poster='{}'></video>", "<audio src='{}' autoplay></audio>",
    "<input type=image src='{}'>", "<body background='{}'>", "<svg><image href='{}'/></svg>",
    "<svg><use href='{}#a'/></svg>",
    "<style>body {{ background: url({}) }}</style>", "<style>@import '{}';</style>",
    "<style>@font-face {{ font-family: a; src: url({}) }} p {{ font-family: a }}</style><p>text",
    "<meta http-equiv=refresh content='0;url={}'>",
    "<form action='{}' id=f method=post></form><script>f.submit()</script>",
    "<a href='{}' ping='{}' id=a>a</a><script>a.click()</script>",
    "<a href='{}' download id=a>a</a><script>a.click()</script>",
    "<script type=speculationrules>{{\"prerender\":[{{\"urls\":[\"{}\"],\"eagerness\":\"immediate\"}}]}}</script>",
)  # fmt: skip
_SCRIPTS = (
    "fetch('{}', {{mode: 'no-cors'}})", "fetch('{}', {{method: 'PUT', body: 'a', headers: {{A: 'b'}}}})",
    "navigator.sendBeacon('{}', 'a')", "x = new XMLHttpRequest; x.open('GET', '{}', false); x.send()",
    "new EventSource('{}')", "new WebSocket('{}'.replace('http', 'ws'))", "new Worker('{}')", "new SharedWorker('{}')",
    "new Worker(URL.createObjectURL(new Blob([\"importScripts('{}')\"])))", "navigator.serviceWorker.register('{}')",
    "location = '{}'", "open('{}')", "new WebTransport('{}'.replace('http:', 'https:'))", "import('{}')",
    "p = new RTCPeerConnection({{iceServers: [{{urls: 'stun:' + new URL('{}').host}}]}}); p.createDataChannel('a');"
    "p.createOffer().then(o => p.setLocalDescription(o))", "document.cookie = 'a=b'; new Image().src = '{}'",
)  # fmt: skip
_ENDLESS = {
    "loop": "<script>for (;;);</script>",
    "dialogs": "<script>for (i = 0; i < 99; i++) { alert(i); confirm(i); prompt(i) }</script>a",
    "frames": "<body><script>for (i = 1e4; i--;) document.body.append(document.createElement('iframe'))</script>",
    "memory": "<script>for (a = [];;) a.push(new Uint8Array(1e8).fill(1))</script>",
    "heap": "<script>for (a = [];;) a.push(new Array(1e6).fill(a.length))</script>",
    "reload": "<script>location.reload()</script>a",
    "workers": "<script>for (i = 0; i < 999; i++) new Worker(URL.createObjectURL(new Blob(['for (;;);'])))</script>a",
    "timers": "<script>setInterval(() => { for (;;); })</script>a",
    "requests": "<script>setInterval(() => fetch('/' + Math.random()), 0)</script>a",
    "download": f"<a download=a href='data:,{'a' * 99}' id=a>a</a><script>a.click()</script>a",
    "print": "<script>print(); onbeforeunload = () => 1</script>a",
    "canvas": "<script>for (;;) { c = document.createElement('canvas'); c.width = c.height = 16000; "
    "c.getContext('2d').fillRect(0, 0, 1, 1); (window.a ??= []).push(c) }</script>",
    "nesting": "<div>" * 20_000,
    "animation": "<style>@keyframes a { to { rotate: 1turn } } p { animation: a 1s infinite }</style><p>a</p>"
    "<script>f = () => { requestAnimationFrame(f); document.body.append(' x') }; f()</script>",
    "promises": "<script>f = () => Promise.resolve().then(f); f()</script>a",
    "observers": "<body><script>new MutationObserver(() => document.body.append('x'))"
    ".observe(document, { childList: true, subtree: true }); setTimeout(() => document.body.append('y'))</script>a",
    "recursion": "<script>f = () => f() + 1; f()</script> a",
    "navigation": "<script>location = '?' + Math.random()</script>a",
    "refresh": "<meta http-equiv=refresh content=0>a",
    "WebAssembly": "<script>WebAssembly.instantiate(new Uint8Array([0,97,115,109,1,0,0,0,1,4,1,96,0,0,3,2,1,0,8,1,0,10,"
    "9,1,7,0,3,64,12,0,11,11]))</script>a",
    "WebAssembly memory": "<script>for (a = [];;) a.push(new WebAssembly.Memory({ initial: 16384 }))</script>",
    "style": f"<style>{''.join(f'.a{n} > .b:has(.c{n}) ~ * {{ color: red }}' for n in range(60_000))}</style>"
    f"{'<div class=a1><b class=b>x</b></div>' * 2000}",
    "filters": "<svg width=4000 height=4000><filter id=f><feTurbulence numOctaves=99 /></filter>"
    f"{'<rect width=4000 height=4000 filter=url(#f) />' * 50}</svg>",
    "references": "<svg><g id=a0><circle r=9 /></g>"
    + "".join(f"<g id=a{n}>{f'<use href=#a{n - 1} />' * 10}</g>" for n in range(1, 9))
    + "</svg>",
    "size": "<div style='width: 1e9px; height: 1e9px; background: red'>a</div>",
    "pages": "<script>for (i = 0; i < 5e4; i++) document.write('<p style=break-after:page>' + i)</script>",
    "regular expression": "<script>/^(a+)+$/.test('a'.repeat(50) + 'b')</script>",
    "windows": "<script>for (i = 0; i < 1e4; i++) open('about:blank')</script>a",
    "console": "<script>for (;;) console.log('x'.repeat(1e6))</script>",
    "errors": "<script>setInterval(() => { for (i = 1e3; i--;) setTimeout(() => { throw 'x'.repeat(9e4) }) })</script>",
    "blobs": "<script>for (;;) URL.createObjectURL(new Blob(['x'.repeat(1e7)]))</script>",
    "storage": "<script>indexedDB.open('a').onupgradeneeded = e => { s = e.target.result.createObjectStore('b'); "
    "for (i = 0; i < 1e4; i++) s.add(new Uint8Array(1e7), i) }</script>a",
    "history": "<script>for (;;) history.pushState(1, '', '?' + Math.random())</script>",
}


@pytest.fixture
def secret() -> Iterator[Path]:
    with TemporaryDirectory(dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        path = Path(name, "secret.txt")
        path.write_text(_SECRET)
        yield path


@pytest.mark.parametrize("layers", [sandbox.ALWAYS, sandbox.LAYERS], ids=["no layers", "all layers"])
@pytest.mark.asyncio
async def test_no_page_reaches_what_it_must_not(layers: Collection[str], tmp_path: Path, secret: Path) -> None:
    """Neither an uploaded page nor one by URL, by redirects, or by a name that leads elsewhere the second time."""
    resolved: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.2" if resolved.count(host) == 1 else "127.0.0.1"]

    outgoing = Outgoing(AddressRules(allowed=(ip_network("127.0.0.2"),)), resolve)

    async def fetch(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        return await answer(outgoing, request, max_bytes, seconds)

    executor = LocalExecutor(1, pool=_pool(layers), fetch=fetch)
    await executor.start()
    with Receiver(reply(200, _SECRET.encode()), "127.0.0.1") as inner, Receiver(reply(404), "127.0.0.2") as outer:

        def redirect(request: Received, send: Send) -> None:
            reply(302, location=f"{inner.url}{request.path}")(request, send)

        outer.respond = redirect
        targets = (inner.url, secret.as_uri(), f"{outer.url}/moved", f"http://rebound.example:{inner.port}/")
        shown = b""
        for form in (*_TAGS, *(f"<script>{script}</script>" for script in _SCRIPTS)):
            markup = "".join(form.replace("{}", target).replace("{{", "{").replace("}}", "}") for target in targets)
            for page in (None, FetchedPage(f"{outer.url}/page", 200)):
                shown += await _run(executor, tmp_path, markup, page, wait="100")
        assert inner.connections == 0
        assert _SECRET.encode() not in shown
        assert outer.connections > len(_TAGS) / 2
    await executor.close()
    outgoing.close()


def _pool(layers: Collection[str] = sandbox.LAYERS, spares: int = 1) -> WorkerPool:
    modules = _REGISTRY.plan([_REGISTRY.formats["html"]], "pdf").modules
    return WorkerPool(ForkServer(layers, modules), spares, _PAGES)


async def _run(
    executor: LocalExecutor, folder: Path, markup: str, page: FetchedPage | None = None, **options: OptionValue
) -> bytes:
    """The text of a page as it is printed; empty if it is refused."""
    try:
        return (await _print(executor, folder, markup, TaskLimits(seconds=30), page, **options))[0]
    except (TimedOut, OutOfMemory, WorkerCrashed):
        return b""


async def _print(
    executor: LocalExecutor,
    folder: Path,
    markup: str,
    limits: TaskLimits,
    page: FetchedPage | None = None,
    account: str = "account",
    /,
    **options: OptionValue,
) -> tuple[bytes, set[str]]:
    """The text of a page as it is printed, and the codes of the warnings."""
    source, printed = folder / f"{account}.html", folder / f"{account}.pdf"
    source.write_text(markup)
    plan = _REGISTRY.plan([_REGISTRY.formats["html"]], "pdf", options=options)
    task = replace(Task.of(plan, options), page=page)
    result = await run_files(executor, FileJob(task, [source], printed), limits, account)
    text = "".join(one.get_text() for one in pymupdf.open(printed)).encode()
    return text, {one.code for one in result.outcome.warnings}


@pytest.mark.parametrize("name", _ENDLESS)
@pytest.mark.asyncio
async def test_endless_pages_end_and_disturb_no_others(name: str, tmp_path: Path) -> None:
    pool = _pool(spares=2)
    executor = LocalExecutor(2, pool=pool)
    await executor.start()
    started = perf_counter()
    running = _print(executor, tmp_path, _ENDLESS[name], TaskLimits(seconds=10), None, "other")
    endless = asyncio.create_task(running)
    others = 0
    while not endless.done() or not others:
        assert b"beside" in await _run(executor, tmp_path, "<p>beside")
        others += 1
        await asyncio.sleep(0.5)
    assert perf_counter() - started < 40
    try:
        text, warnings = await endless
        assert text.strip() or "blank_page" in warnings
    except (TimedOut, OutOfMemory):
        pass
    folder = pool.idle[0].process.folder.parents[1]
    await executor.close()
    await asyncio.sleep(1)
    assert _processes(folder) == []


def _processes(folder: Path) -> list[bytes]:
    """The commands of processes that name a folder."""
    commands = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [command for command in commands if bytes(folder) in command]


@pytest.mark.asyncio
async def test_memory_stays_and_processes_end(tmp_path: Path) -> None:
    picture = b64encode(np.random.default_rng(0).bytes(20_000)).decode()
    markup = f"<h1>Title</h1><canvas></canvas><img src='data:image/png;base64,{picture}'>{_LONG}"
    pool = _pool()
    executor = LocalExecutor(1, pool=pool)
    await executor.start()
    sizes = []
    folders: set[Path] = set()
    for _ in range(_PAGES):
        assert await _run(executor, tmp_path, markup)
        await asyncio.sleep(0.1)  # until it is examined
        sizes += [worker.memory >> 20 for worker in pool.idle]
        folders |= {worker.process.folder.parents[1] for worker in pool.idle}
    (folder,) = folders
    assert _processes(folder)
    await executor.close()
    await asyncio.sleep(1)
    assert len(sizes) >= _PAGES * 0.9
    assert np.median(sizes[-50:]) < np.median(sizes[10:60]) + 100
    assert _processes(folder) == []
    assert not folder.exists()
